"""What was seen of a model on a text: a record of tensors, stage by stage, and its guesses at any stage."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from sympformer.watching.physics import Physics, clusters, effective_rank, rms

Half = Literal["embedding", "attention", "mlp", "layer"]
ALIKE = 0.9  # cosine of two tokens' positions from which on they are one cluster
Readout = Callable[[Tensor], Tensor]  # positions (..., d) -> logits (..., V)
LARGEST = 2**24  # logits that are held at a time


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
class Lens:
    """The k best guesses of the next token at every stage, by the model's own final norm and head applied early.

    And how the token that did come next stood; the last one has none such.
    """

    ids: Tensor  # (S, B, T, k), best first
    probabilities: Tensor  # (S, B, T, k)
    true_rank: Tensor  # (S, B, T), 1: the best guess; 0 where nothing follows
    true_probability: Tensor  # (S, B, T), NaN where nothing follows

    @property
    def reached(self) -> Tensor:
        """The first stage whose best guess is the final one, (B, T)."""
        best = self.ids[..., 0]
        return (best == best[-1]).int().argmax(0)


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


def look(readout: Readout, x: Tensor, idx: Tensor, k: int) -> Lens:
    """The lens over positions x (S, B, T, d) of the tokens idx (B, T). No more than LARGEST logits are held."""
    following = torch.cat([idx[:, 1:], idx.new_full((len(idx), 1), -1)], 1)  # (B, T), -1: nothing follows
    rows, truth = x.flatten(0, -2), following.expand(len(x), -1, -1).flatten()
    vocabulary = readout(rows[:1]).shape[-1]
    parts = [
        _guesses(readout(some), true, min(k, vocabulary))
        for some, true in zip(*(t.split(max(1, LARGEST // vocabulary)) for t in (rows, truth)), strict=True)
    ]
    ids, probabilities, rank, probability = (
        torch.cat(part).unflatten(0, x.shape[:-1]) for part in zip(*parts, strict=True)
    )
    return Lens(ids, probabilities, rank, probability)


def _guesses(logits: Tensor, truth: Tensor, k: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Of logits (n, V) and true ids (n,): best ids and probabilities (n, k), the true token's rank and probability."""
    chances = logits.to(torch.promote_types(logits.dtype, torch.float32)).softmax(-1)
    best = chances.topk(k)
    there = truth >= 0
    true = chances.gather(-1, truth.clamp_min(0).unsqueeze(-1))
    rank = torch.where(there, 1 + (chances > true).sum(-1), 0)
    return best.indices, best.values, rank, true.squeeze(-1).masked_fill(~there, torch.nan)
