"""What must hold for a causal language model: functions of its logits, each giving the largest deviation.

`logits` maps (B, T) ids to (B, T, V). Positions count from 0. A check compares logits that should be equal; the first
position where they differ by more than `tolerance` is where the leak shows.
"""

from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from sympformer.models.foreign import Logits

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
        self.found_at(*(by_position > self.tolerance).nonzero().flatten().tolist()[:1])

    def found_at(self, *positions: int) -> None:
        """Something leaks at these positions."""
        self.first = min(positions if self.first is None else (self.first, *positions), default=None)

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


def agree(pairs: Iterable[tuple[Tensor, Tensor]], tolerance: float) -> Finding:
    """Pairs of logits (B, T, V) that should be equal."""
    found = Deviations(tolerance)
    for given, expected in pairs:
        found.compare(given, expected)
    return found.finding()


def repeat(logits: Logits, idx: Tensor, tolerance: float) -> Finding:
    """The same text, read twice."""
    return agree([(logits(idx), logits(idx))], tolerance)


def prefix(logits: Logits, idx: Tensor, tolerance: float, seed: int = 0) -> Finding:
    """The first tokens alone against the same tokens inside the whole text."""
    whole = logits(idx)
    return agree(((logits(idx[:, :t]), whole[:, :t]) for t in places(idx.shape[1], SOME, seed)), tolerance)


def batch(logits: Logits, idx: Tensor, tolerance: float) -> Finding:
    """Texts (B, T), B > 1: each alone, and the first beside copies of itself, against all together."""
    alone, copies = torch.cat([logits(text) for text in idx.split(1)]), logits(idx[:1].repeat(len(idx), 1))
    together = logits(idx)
    return agree([(alone, together), (copies[:1], together[:1])], tolerance)


def cache(chunked: ChunkedLogits, logits: Logits, idx: Tensor, tolerance: float, seed: int = 0) -> Finding:
    """The text in chunks through the cache, cut in several ways, against the full pass."""
    whole = logits(idx)
    return agree(((chunked(idx, sizes), whole) for sizes in chunkings(idx.shape[1], seed)), tolerance)


def chunkings(T: int, seed: int) -> list[list[int]]:
    """Ways to cut T tokens: whole, one by one, first or last alone, halves, at random."""
    cuts = torch.randperm(T - 1, generator=torch.Generator().manual_seed(seed))[: max(1, T // 8)].sort().values + 1
    at_random = [b - a for a, b in pairwise([0, *cuts.tolist(), T])]
    return [[T], [1] * T, [1, T - 1], [T - 1, 1], [T // 2, T - T // 2], at_random]


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


# --- following the gradient from earlier logits to later tokens


def adversarial(
    logits: Logits, tables: Sequence[nn.Embedding], idx: Tensor, vocab_size: int, tolerance: float, seed: int = 0
) -> Finding:
    """The gradient of the logits before t by the embeddings of the tokens from t on must vanish, for several t.

    Its size is given as the first-order change of the logits, summed with random weights, when one later token is
    replaced by the worst one. Then all later tokens are replaced by their worst ones, and the real change counts too:
    a leak too small for random edits shows itself to these.
    """
    if not tables:
        return Finding(None, note="not tried: no nn.Embedding reads the tokens")

    def slopes_of(rows: range) -> Tensor | None:
        return token_slopes(logits, tables, idx, rows, vocab_size, seed)

    found = Deviations(tolerance)
    for t in places(idx.shape[1], FEW, seed):
        slopes = slopes_of(range(t))
        if slopes is None:
            return Finding(None, note="not tried: no gradient reaches the embeddings")
        if not slopes.isfinite().all():
            return Finding(None, note="not tried: the gradient is not finite")
        size = slopes[t:].abs().max().item()
        found.largest = max(found.largest, size)
        if size > tolerance:  # the first position whose own logits have a slope from t on
            alone = ((p, slopes_of(range(p, p + 1))) for p in range(t - 1))
            found.found_at(next((p for p, s in alone if s is not None and s[t:].abs().max() > tolerance), t - 1))
        worst = torch.cat((idx[0, :t], slopes[t:].argmax(1))).unsqueeze(0)
        with torch.no_grad():
            whole, changed = logits(torch.cat((idx, worst)))[:, :t].split(1)
        found.compare(changed, whole)
    return found.finding()


def token_slopes(
    logits: Logits, tables: Sequence[nn.Embedding], idx: Tensor, rows: range, vocab_size: int, seed: int
) -> Tensor | None:
    """(T, V): how the randomly weighted sum of the logits in `rows` changes, to first order, when one token of the
    text (1, T) is replaced by another. None if the logits are not differentiable.
    """
    T, leaves = idx.shape[1], list[tuple[nn.Embedding, Tensor]]()

    def cut(table: Any, args: tuple[Any, ...], output: Tensor) -> Tensor | None:
        if output.shape[:-1].numel() != T:
            return None  # the table reads something else as well
        leaves.append((table, output.detach().requires_grad_()))
        return leaves[-1][1]

    with torch.enable_grad(), ExitStack() as hooks:
        for table in tables:
            hooks.enter_context(table.register_forward_hook(cut))
        chosen = logits(idx)[0, rows.start : rows.stop]
        weights = torch.randn(chosen.shape, generator=torch.Generator().manual_seed(seed)).to(chosen)
        if not (leaves and chosen.requires_grad):
            return None
        finite = chosen.isfinite()  # masked ids are at minus infinity
        weighted = (weights[finite] * chosen[finite]).sum()
        gradients = torch.autograd.grad(weighted, [leaf for _, leaf in leaves], allow_unused=True)
    slopes = torch.zeros(T, vocab_size, dtype=chosen.dtype, device=chosen.device)
    for (table, _), gradient in zip(leaves, gradients, strict=True):
        if gradient is not None:
            by_token = gradient.reshape(T, -1) @ table.weight.detach()[:vocab_size].T  # (T, V)
            slopes += by_token - by_token.gather(1, idx[0].unsqueeze(1))
    return slopes
