"""Choices that were tuned on one CPU, timed beside their alternatives, so that the next CPU can tell.

They are constants and not chosen anew on each machine: results must not depend on a measurement that a busy minute
can spoil. docs/machines.md holds what was measured where.
"""

import torch
from torch import nn
from torch.nn import functional as F

from sympformer.ops import flash, loss
from sympformer.studies.bench.bench import Row, bare, model_step
from sympformer.studies.bench.timing import Work, interleaved, ratio

SLACK = 1.05  # a choice that costs no more than this by an alternative is right enough


def bench_choices(rounds: int) -> list[Row]:
    """Time of what the package does by the time of what it could do instead."""
    rows = []
    for works in (heads(), losses(), threads()):
        ours, *others = works
        seconds = interleaved(works, rounds, label=ours)
        rows += [Row("choices", f"{ours} / {other}", ratio(seconds, ours, other), SLACK) for other in others]
    return rows


def heads() -> dict[str, Work]:
    """Small heads filled up with zeros, or as they are: attention of 6 texts, 8 heads of 8, forward and backward."""
    parts = [torch.randn(6, 8, 512, 8, requires_grad=True) for _ in range(3)]

    def attention(width: int) -> Work:
        def run() -> None:
            q, k, v = (flash.widened(part, width) for part in parts)
            F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=8**-0.5)[..., :8].sum().backward()

        return run

    return {f"heads of 8 filled up to {flash.CPU.least}": attention(flash.CPU.least), "as they are": attention(8)}


def losses() -> dict[str, Work]:
    """The loss of 1,536 tokens over a large vocabulary, some rows of logits at a time."""
    hidden, weight = (torch.randn(n, 64, requires_grad=True) for n in (1536, 50304))
    targets = torch.randint(50304, (1536,))

    def cross_entropy(rows: int) -> Work:
        options = nn.LinearCrossEntropyOptions(batch_chunk_size=rows)
        return lambda: F.linear_cross_entropy(hidden, weight, targets, options=options).backward()

    ours = loss.CPU_ROWS
    return {
        f"loss, {ours} rows at a time": cross_entropy(ours),
        f"{ours // 2} rows": cross_entropy(ours // 2),
        f"{ours * 2} rows": cross_entropy(ours * 2),
    }


def threads() -> dict[str, Work]:
    """A training step of a small model (4 layers, width 64, 128 tokens, batch 8) with all threads, or with one."""
    count = torch.get_num_threads()
    step = model_step(bare("softmax-exp-euler", n_layer=4, n_head=4, d_model=64, block_size=128, vocab_size=2048), 8)

    def alone() -> None:
        torch.set_num_threads(1)
        try:
            step()
        finally:
            torch.set_num_threads(count)

    return {f"small step, {count} threads": step, "one thread": alone} if count > 1 else {"small step": step}
