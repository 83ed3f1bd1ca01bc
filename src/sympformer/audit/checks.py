"""What must hold for a causal language model: pure functions of its logits, each giving the largest deviation.

`logits` maps (B, T) ids to (B, T, V). Positions count from 0. A check compares logits that should be equal; the first
position where they differ by more than `tolerance` is where the leak shows.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from sympformer.loading import Logits

ChunkedLogits = Callable[[Tensor, Sequence[int]], Tensor]  # ids, sizes of the chunks -> logits of all

MANY, SOME, FEW = 96, 24, 6  # places to try: with random edits, with prefixes, with all other edits
LOGITS_AT_ONCE = 2**23  # in one pass over edited texts: 64 MB of float64


@dataclass(frozen=True)
class Finding:
    """What a check found. deviation None: it could not be tried, and the note says why."""

    deviation: float | None
    first_position: int | None = None
    note: str = ""


class Deviations:
    """Collects the differences between logits that should be equal."""

    def __init__(self, tolerance: float) -> None:
        self.tolerance, self.largest = tolerance, 0.0
        self.first: int | None = None

    def compare(self, given: Tensor, expected: Tensor) -> None:
        """Take in the logits (B, T, V) of positions 0 to T - 1, twice."""
        by_position = difference(given, expected).amax((0, 2))
        self.largest = max(self.largest, by_position.max().item())
        over = (by_position > self.tolerance).nonzero().flatten().tolist()
        if over:
            self.found_at(over[0])

    def found_at(self, position: int) -> None:
        """Something leaks at this position."""
        self.first = position if self.first is None else min(self.first, position)

    def finding(self, note: str = "") -> Finding:
        return Finding(self.largest, self.first, note)


def difference(a: Tensor, b: Tensor) -> Tensor:
    """|a - b|; equal infinities (masked ids) do not differ, and what is not a number differs infinitely."""
    return torch.where(a == b, 0.0, (a - b).abs()).nan_to_num(nan=torch.inf, posinf=torch.inf)


def places(T: int, at_most: int, seed: int) -> list[int]:
    """Places in 1 .. T-1: all of them, or the first two, the middle, the last and random ones between."""
    if at_most >= T - 1:
        return list(range(1, T))
    drawn = torch.randperm(T - 1, generator=torch.Generator().manual_seed(seed)) + 1
    return sorted(list(dict.fromkeys([1, T // 2, T - 1, 2, *drawn.tolist()]))[:at_most])


def repeat(logits: Logits, idx: Tensor, tolerance: float) -> Finding:
    """The same text, read twice."""
    found = Deviations(tolerance)
    found.compare(logits(idx), logits(idx))
    return found.finding()


def edited_texts(idx: Tensor, vocab_size: int, seed: int) -> list[tuple[int, Tensor]]:
    """(t, text): the text (1, T) with its tokens from place t on changed.

    At every place a random future; at some a shifted one (every token changes), one constant token, the reversed one.
    """
    T, generator = idx.shape[1], torch.Generator().manual_seed(seed)
    few = places(T, FEW, seed)
    edited = []
    for t in places(T, MANY, seed):
        future = idx[:, t:]
        futures = [torch.randint(vocab_size, future.shape, generator=generator).to(idx)]
        if t in few:
            shift, constant = torch.randint(1, vocab_size, (2,), generator=generator).tolist()
            futures += [(future + shift) % vocab_size, torch.full_like(future, constant), future.flip(1)]
        edited += [(t, torch.cat((idx[:, :t], changed), 1)) for changed in futures]
    return edited


def causality(logits: Logits, idx: Tensor, vocab_size: int, tolerance: float, seed: int = 0) -> Finding:
    """Edit a text (1, T) from place t on, for many t: no logit before t may change."""
    found, reach = Deviations(tolerance), 0.0
    edited = edited_texts(idx, vocab_size, seed)
    rows = max(1, LOGITS_AT_ONCE // logits(idx).numel() - 1)
    for start in range(0, len(edited), rows):
        part = edited[start : start + rows]
        # The text itself goes along in every pass: what the texts of a batch do to each other is another check.
        whole, *changed = logits(torch.cat([idx, *(text for _, text in part)])).split(1)
        for (t, _), row in zip(part, changed, strict=True):
            found.compare(row[:, :t], whole[:, :t])
            reach = max(reach, difference(row[:, t:], whole[:, t:]).max().item())
    return found.finding("" if reach > 0 else "edits change no logit at all: with these weights this proves nothing")


def prefix(logits: Logits, idx: Tensor, tolerance: float, seed: int = 0) -> Finding:
    """The first tokens alone against the same tokens inside the whole text."""
    found, whole = Deviations(tolerance), logits(idx)
    for t in places(idx.shape[1], SOME, seed):
        found.compare(logits(idx[:, :t]), whole[:, :t])
    return found.finding()


def batch(logits: Logits, idx: Tensor, tolerance: float) -> Finding:
    """Texts (B, T), B > 1: each alone, and the first beside copies of itself, against all together."""
    found, together = Deviations(tolerance), logits(idx)
    for b in range(idx.shape[0]):
        found.compare(logits(idx[b : b + 1]), together[b : b + 1])
    found.compare(logits(idx[:1].repeat(len(idx), 1))[:1], together[:1])
    return found.finding()


def chunkings(T: int, seed: int) -> list[list[int]]:
    """Ways to cut T tokens: whole, one by one, first or last alone, halves, at random."""
    cuts = torch.randperm(T - 1, generator=torch.Generator().manual_seed(seed))[: max(1, T // 8)].sort().values + 1
    edges = [0, *cuts.tolist(), T]
    at_random = [b - a for a, b in pairwise(edges)]
    return [[T], [1] * T, [1, T - 1], [T - 1, 1], [T // 2, T - T // 2], at_random]


def cache(chunked: ChunkedLogits, logits: Logits, idx: Tensor, tolerance: float, seed: int = 0) -> Finding:
    """The text in chunks through the cache, cut in several ways, against the full pass."""
    found, whole = Deviations(tolerance), logits(idx)
    for sizes in chunkings(idx.shape[1], seed):
        found.compare(chunked(idx, sizes), whole)
    return found.finding()
