"""The adversarial check of causality: follow the gradient from earlier logits to later tokens."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from sympformer.audit.checks import FEW, Deviations, Finding, places
from sympformer.loading import Logits


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
    found = Deviations(tolerance)
    for t in places(idx.shape[1], FEW, seed):
        slopes = token_slopes(logits, tables, idx, range(t), vocab_size, seed)
        if slopes is None:
            return Finding(None, note="not tried: no gradient reaches the embeddings")
        if not slopes.isfinite().all():
            return Finding(None, note="not tried: the gradient is not finite")
        size = slopes[t:].abs().max().item()
        found.largest = max(found.largest, size)
        if size > tolerance:
            found.found_at(_first_position(logits, tables, idx, t, vocab_size, tolerance, seed))
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
    T = idx.shape[1]
    with torch.enable_grad(), _leaves(tables, T) as leaves:
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


def _first_position(
    logits: Logits, tables: Sequence[nn.Embedding], idx: Tensor, t: int, vocab_size: int, tolerance: float, seed: int
) -> int:
    """The first position before t whose own logits have a slope from t on."""
    for p in range(t - 1):
        slopes = token_slopes(logits, tables, idx, range(p, p + 1), vocab_size, seed)
        if slopes is not None and slopes[t:].abs().max().item() > tolerance:
            return p
    return t - 1


@contextmanager
def _leaves(tables: Sequence[nn.Embedding], T: int) -> Iterator[list[tuple[nn.Embedding, Tensor]]]:
    """Within the block the tables give out leaves, to take gradients by; they are listed as the model asks for them."""
    leaves: list[tuple[nn.Embedding, Tensor]] = []

    def cut(table: nn.Module, args: tuple[Any, ...], output: Tensor) -> Tensor | None:
        assert isinstance(table, nn.Embedding)
        if output.shape[:-1].numel() != T:
            return None  # the table reads something else as well
        leaf = output.detach().requires_grad_()
        leaves.append((table, leaf))
        return leaf

    hooks = [table.register_forward_hook(cut) for table in tables]
    try:
        yield leaves
    finally:
        for hook in hooks:
            hook.remove()
