"""The next token as a model would guess it at any stage: its own final norm and head, applied early."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

Readout = Callable[[Tensor], Tensor]  # positions (..., d) -> logits (..., V)
LARGEST = 2**24  # logits that are held at a time


@dataclass(frozen=True)
class Lens:
    """The k best guesses at every stage, and how the token that did come next stood. The last token has none such."""

    ids: Tensor  # (S, B, T, k), best first
    probabilities: Tensor  # (S, B, T, k)
    true_rank: Tensor  # (S, B, T), 1: the best guess; 0 where nothing follows
    true_probability: Tensor  # (S, B, T), NaN where nothing follows

    @property
    def reached(self) -> Tensor:
        """The first stage whose best guess is the final one, (B, T)."""
        best = self.ids[..., 0]
        return (best == best[-1]).int().argmax(0)


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
