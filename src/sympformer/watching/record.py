"""What was seen of a model on a text: a record of tensors, stage by stage."""

from dataclasses import dataclass
from typing import Literal, NamedTuple

from torch import Tensor

from sympformer.watching.lens import Lens
from sympformer.watching.physics import Physics, clusters, effective_rank, rms

Half = Literal["embedding", "attention", "mlp", "layer"]
ALIKE = 0.9  # cosine of two tokens' positions from which on they are one cluster


class Stage(NamedTuple):
    """A point on a token's way: the embedding (layer 0), or what follows a half of a layer, or a whole one."""

    layer: int  # from 1 on; 0 is the embedding
    half: Half

    @property
    def name(self) -> str:
        """In words."""
        if self.half == "embedding":
            return "embedding"
        word = {"attention": ", attention", "mlp": ", MLP", "layer": ""}[self.half]
        return f"layer {self.layer}{word}"


@dataclass(frozen=True)
class Record:
    """A text's way through a model. S stages: the embedding, then each half of each of the L layers.

    `y` is None for tokens without momentum. `attention` holds the rows of the tokens `rows`, of every kernel (head) of
    every layer, and is there on request only, as is the `lens`.
    """

    idx: Tensor  # (B, T) token ids, or what a stack was given, (B, T, d)
    stages: tuple[Stage, ...]
    x: Tensor  # (S, B, T, d) positions
    y: Tensor | None  # (S, B, T, d) momenta
    physics: Physics
    rows: tuple[int, ...] = ()
    attention: Tensor | None = None  # (L, B, H, R, T)
    lens: Lens | None = None

    @property
    def size_x(self) -> Tensor:
        """Root mean square of the positions, (S, B, T)."""
        return rms(self.x)

    @property
    def size_y(self) -> Tensor | None:
        """Root mean square of the momenta, (S, B, T)."""
        return None if self.y is None else rms(self.y)

    @property
    def effective_rank(self) -> Tensor:
        """In how many directions the tokens spread, (S, B); see `effective_rank`."""
        return effective_rank(self.x)

    def clusters(self, threshold: float = ALIKE) -> Tensor:
        """In how many clusters the tokens lie, (S, B); see `clusters`."""
        return clusters(self.x, threshold)
