"""The head and its loss in one: the mean cross entropy of hidden @ weight' without the logits.

loss = 1/n sum_{i: target_i != ignore_index} ( log sum_v exp(l_iv) - l_i,target_i )        l = hidden weight'
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sympformer.errors import InputError
from sympformer.ops import door

# Rows of logits at a time. At (3072, 64) x 50,304 on two cores, forward and backward took 0.71 s with 256 rows, 0.81 s
# with 128 or 512, 7.8 s with what torch chooses by itself, 1.9 s with all logits at once.
CPU_ROWS = 256
CPU_LOGITS = 2**22  # a small vocabulary takes more rows: 16 MB of logits at a time


def linear_cross_entropy(hidden: Tensor, weight: Tensor, targets: Tensor, ignore_index: int = -100) -> Tensor:
    """The mean cross entropy over all targets but the ignored ones, from the hidden states, a few rows at a time.

    hidden (..., d); weight (V, d), cast to the dtype that is computed in; targets (...), token numbers 0..V-1 or
    `ignore_index`. The loss is a scalar in float32 (float64 for float64), nan where no target counts. The gradients are
    made in the forward pass, so there is no second derivative and only one backward pass.
    """
    if not door.fast():
        return linear_cross_entropy_naive(hidden, weight, targets, ignore_index)
    _check(hidden, weight, targets)
    dtype = _work_dtype(hidden)
    rows, weight, targets = hidden.reshape(-1, hidden.size(-1)).to(dtype), weight.to(dtype), targets.reshape(-1).long()
    # torch.compile keeps the gradients for a second backward in any case, and warns unless it was asked to.
    chunk = min(len(rows), max(CPU_ROWS, CPU_LOGITS // len(weight))) if rows.device.type == "cpu" else None
    options = nn.LinearCrossEntropyOptions(allow_retain_graph=torch.compiler.is_compiling(), batch_chunk_size=chunk)
    if dtype in (torch.float32, torch.float64):
        return F.linear_cross_entropy(rows, weight, targets, ignore_index=ignore_index, options=options)
    # The mean is taken here, in float32: torch 2.13 sums a bfloat16 mean in bfloat16, and is off by some percent.
    losses = F.linear_cross_entropy(rows, weight, targets, ignore_index=ignore_index, reduction="none", options=options)
    return losses.float().sum() / (targets != ignore_index).sum()


def linear_cross_entropy_naive(hidden: Tensor, weight: Tensor, targets: Tensor, ignore_index: int = -100) -> Tensor:
    """The slow twin of `linear_cross_entropy`: all the logits, (..., V), then the loss."""
    _check(hidden, weight, targets)
    dtype = torch.promote_types(hidden.dtype, torch.float32)
    with torch.autocast(hidden.device.type, enabled=False):
        logits = hidden.to(dtype) @ weight.to(dtype).mT  # (..., V)
        return F.cross_entropy(logits.flatten(0, -2), targets.flatten().long(), ignore_index=ignore_index)


def _work_dtype(hidden: Tensor) -> torch.dtype:
    """Where the matrix product runs fast: on the CPU float32 at least, elsewhere what autocast or the input says."""
    device = hidden.device.type
    if device == "cpu":
        return torch.promote_types(hidden.dtype, torch.float32)
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else hidden.dtype


def _check(hidden: Tensor, weight: Tensor, targets: Tensor) -> None:
    """Refuse what does not fit, in words."""
    shapes = f"hidden {tuple(hidden.shape)}, weight {tuple(weight.shape)}, targets {tuple(targets.shape)}"
    if hidden.ndim < 2 or weight.ndim != 2 or hidden.size(-1) != weight.size(-1):
        raise InputError(f"the loss needs hidden (..., d) and weight (V, d), got {shapes}: give both the same width d")
    if targets.shape != hidden.shape[:-1] or targets.is_floating_point() or targets.dtype == torch.bool:
        wanted = f"torch.long {tuple(hidden.shape[:-1])}"
        raise InputError(f"the loss needs a token number per hidden row, {wanted}, got {shapes} {targets.dtype}")
