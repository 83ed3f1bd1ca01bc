"""The properties of a causal language model, each as the largest deviation from it."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from sympformer.models import LanguageModel
from tests.models.cases import tokens

Logits = Callable[[Tensor], Tensor]


def future_leak(logits: Logits, idx: Tensor, vocab: int) -> float:
    """Edit the tokens from place t on, for several t: the largest change of a logit before t."""
    before, worst = logits(idx), 0.0
    for t in (1, 5, idx.shape[1] - 1):
        edited = idx.clone()
        edited[:, t:] = (edited[:, t:] + 7) % vocab
        worst = max(worst, (logits(edited)[:, :t] - before[:, :t]).abs().max().item())
    return worst


def prefix_change(logits: Logits, idx: Tensor) -> float:
    """A prefix alone against the same tokens inside the longer text."""
    whole = logits(idx)
    return max((logits(idx[:, :t]) - whole[:, :t]).abs().max().item() for t in (1, 2, 7, idx.shape[1] - 1))


def batch_mixing(logits: Logits, idx: Tensor) -> float:
    """A text alone against the same text beside another."""
    return (logits(idx[:1]) - logits(idx)[:1]).abs().max().item()


@torch.no_grad()
def cache_change(model: LanguageModel, idx: Tensor, chunks: Sequence[int]) -> float:
    """The text in chunks through the cache against the full pass."""
    cache, parts = model.new_cache(idx.shape[0]), []
    for part in idx.split(list(chunks), 1):
        parts.append(model(part, cache=cache).logits)
    assert cache.length == idx.shape[1]
    return (torch.cat(parts, 1) - model(idx).logits).abs().max().item()


CHUNKINGS = ([24], [1] * 24, [1, 23], [23, 1], [5, 1, 1, 9, 8], [12, 12])


def worst_deviation(model: LanguageModel) -> dict[str, float]:
    """All four properties of a model."""
    idx = tokens()

    @torch.no_grad()
    def logits(ids: Tensor) -> Tensor:
        return model(ids).logits

    return {
        "causality": future_leak(logits, idx, model.cfg.vocab_size),
        "prefix": prefix_change(logits, idx),
        "batch": batch_mixing(logits, idx),
        "cache": max(cache_change(model, idx, chunks) for chunks in CHUNKINGS),
    }
