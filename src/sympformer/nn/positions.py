"""Where a token stands, said in one of two ways: a vector beside its embedding, or a turn of its queries and keys."""

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from sympformer.errors import InputError
from sympformer.nn.options import StackConfig
from sympformer.nn.parts import Embedding
from sympformer.nn.tables import BASES, POSITIONS, register

BASE = 10_000.0  # the slowest pair of columns turns by one radian in about so many places


class Rotation(NamedTuple):
    """Turns R_i of a head's c columns, one for every place: the columns j and j + c/2 by the angle i BASE^(-2j/c).

    <R_i q, R_j k> depends on i - j alone.
    """

    cos: Tensor  # (T, 1, c), or (B, T, 1, c) where rows of a batch stand at places of their own
    sin: Tensor  # the same, minus in the first half of the columns

    @classmethod
    def at(cls, places: Tensor, width: int, dtype: torch.dtype) -> "Rotation":
        """The turns of heads of an even `width` at `places` (T,) or (B, T), in float32 at least."""
        dtype = torch.promote_types(dtype, torch.float32)  # in bfloat16 place 257 would be place 256
        rates = BASE ** (-torch.arange(0, width, 2, dtype=dtype, device=places.device) / width)  # (c/2,)
        angles = (places.to(dtype).unsqueeze(-1) * rates).unsqueeze(-2)  # (..., T, 1, c/2)
        cos, sin = angles.cos(), angles.sin()
        return cls(torch.cat((cos, cos), -1), torch.cat((-sin, sin), -1))

    def turn(self, t: Tensor) -> Tensor:
        """R_i t_i of every head, (B, T, H c) -> (B, T, H c)."""
        c = self.cos.shape[-1]
        heads = t.unflatten(-1, (-1, c))
        turned = torch.addcmul(heads * self.cos, heads.roll(c // 2, -1), self.sin)
        return turned.to(t.dtype).flatten(-2)

    def back(self) -> "Rotation":
        """The turns that undo these."""
        return Rotation(self.cos, -self.sin)


class Positions(nn.Module):
    """A row of the table of positions, made of a config. By itself: none, a text is a bag of tokens to the layers."""

    turns = False  # whether queries and keys are turned

    def __init__(self, cfg: StackConfig | None = None) -> None:
        super().__init__()

    def forward(self, places: Tensor) -> Tensor | None:
        """What is added to the embeddings of tokens at `places` (T,) or (B, T): (..., T, d), or nothing."""
        return None

    def rotation(self, places: Tensor, dtype: torch.dtype) -> Rotation | None:
        """How the layers turn queries and keys of tokens at `places`, if they do."""
        return None


class LearnedPositions(Embedding, Positions):
    """A table with a vector for each of the block_size places."""

    def __init__(self, cfg: Any) -> None:
        if not hasattr(cfg, "block_size"):
            raise InputError("positions = 'learned' is a table of block_size places, which layers by themselves do not"
                             " have; choose rotary or none")  # fmt: skip
        super().__init__(cfg.block_size, cfg.d_model)


class Rotary(Positions):
    """Queries and keys turned by their places, head by head; scores then depend on the distance alone."""

    turns = True

    def __init__(self, cfg: StackConfig) -> None:
        super().__init__(cfg)
        self.width = cfg.d_query

    def rotation(self, places: Tensor, dtype: torch.dtype) -> Rotation | None:
        return Rotation.at(places, self.width, dtype)


def positions(cfg: StackConfig) -> Positions:
    return POSITIONS[cfg.positions](cfg)


def with_positions(embedded: Tensor, table: Positions, places: Tensor) -> Tensor:
    """Embeddings (B, T, d), and what a row adds to them at their places."""
    added = table(places)
    return embedded if added is None else embedded + added


BASES["positions"] = Positions
register("positions", "learned", LearnedPositions)
register("positions", "rotary", Rotary)
register("positions", "none", Positions)
