"""Linear attention: chunked and step by step against the T x T sums, in values and gradients."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from sympformer.errors import InputError
from sympformer.ops import (
    linear_attention,
    linear_attention_naive,
    linear_attention_step,
    symplectic_scan,
    symplectic_scan_naive,
    symplectic_step,
)
from tests.ops.helpers import (
    BATCHES,
    HALF,
    LENGTHS,
    PRECISE,
    TOLERANCE,
    assert_near,
    outs_and_grads,
    randoms,
    watch_sizes,
)

Op = Callable[..., Any]
PAIRS: dict[str, tuple[Op, Op]] = {
    "linear": (linear_attention, linear_attention_naive),
    "symplectic": (symplectic_scan, symplectic_scan_naive),
}
STEPS: dict[str, Op] = {"linear": linear_attention_step, "symplectic": symplectic_step}
KINDS = list(PAIRS)


def case(
    kind: str, batch: int, heads: int, tokens: int, dtype: torch.dtype = torch.float64, d: tuple[int, int] = (8, 5)
) -> tuple[list[Tensor], list[Tensor]]:
    """(q, k, v) or (q, x, y) of widths d[0], d[0], d[1], and a random gradient per output."""
    wide, other = (batch, heads, tokens, d[0]), (batch, heads, tokens, d[1])
    q, k, v, d_other, d_wide = randoms(wide, wide, other, other, wide, dtype=dtype)
    return [q, k, v], [d_other, d_wide][: 1 if kind == "linear" else 2]


def compare(kind: str, inputs: list[Tensor], weights: list[Tensor], tolerance: float, **options: Any) -> None:
    fast, naive = PAIRS[kind]
    slow = outs_and_grads(partial(naive, causal=options.get("causal", True)), inputs, weights)
    quick = outs_and_grads(partial(fast, **options), inputs, weights)
    assert [t.dtype for t in quick] == [t.dtype for t in slow]
    assert_near(quick, slow, tolerance)


@pytest.mark.parametrize("dtype", PRECISE)
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize(("batch", "heads"), BATCHES)
@pytest.mark.parametrize("tokens", LENGTHS)
@pytest.mark.parametrize("kind", KINDS)
def test_fast_is_naive(kind: str, tokens: int, batch: int, heads: int, causal: bool, dtype: torch.dtype) -> None:
    compare(kind, *case(kind, batch, heads, tokens, dtype), TOLERANCE[dtype], causal=causal)


def test_naive_is_the_formula() -> None:
    (q, x, y), _ = case("symplectic", 1, 1, 6)
    position_out, momentum_out = symplectic_scan_naive(q, x, y)
    assert torch.equal(position_out, linear_attention_naive(q, x, y))
    for i in range(6):
        S = torch.stack([torch.outer(x[0, 0, j], y[0, 0, j]) for j in range(i + 1)]).sum(0)
        torch.testing.assert_close(position_out[0, 0, i], S.mT @ q[0, 0, i])
        torch.testing.assert_close(momentum_out[0, 0, i], S @ y[0, 0, i])


@pytest.mark.parametrize("chunk", [1, 2, 7, 16, 64, 300, 1000])
@pytest.mark.parametrize("kind", KINDS)
def test_any_chunk(kind: str, chunk: int) -> None:
    """300 tokens in chunks of 1 are 19 groups of 16 chunks, the last one not full."""
    compare(kind, *case(kind, 2, 2, 300), 1e-11, chunk=chunk)


@pytest.mark.parametrize("d", [(1, 1), (3, 40), (70, 2)])
@pytest.mark.parametrize("kind", KINDS)
def test_any_width(kind: str, d: tuple[int, int]) -> None:
    compare(kind, *case(kind, 2, 2, 100, d=d), 1e-11)


@pytest.mark.parametrize("kind", KINDS)
def test_gradcheck(kind: str) -> None:
    inputs = [t.requires_grad_() for t in case(kind, 1, 2, 7, d=(3, 2))[0]]
    assert torch.autograd.gradcheck(partial(PAIRS[kind][0], chunk=3), inputs)


@pytest.mark.parametrize("kind", KINDS)
def test_strides_do_not_matter(kind: str) -> None:
    inputs, weights = case(kind, 2, 3, 70)
    views = [t.transpose(1, 2).contiguous().transpose(1, 2) for t in inputs]
    views[2] = views[2].mT.contiguous().mT
    expanded = [torch.ones((), dtype=w.dtype).expand(w.shape) for w in weights]
    for w in (weights, expanded):
        fast, naive = (outs_and_grads(f, t, w) for f, t in zip(PAIRS[kind], (views, inputs), strict=True))
        assert_near(fast, naive, 1e-11)


@pytest.mark.parametrize("used", [0, 1])
def test_one_unused_output(used: int) -> None:
    inputs, weights = case("symplectic", 2, 2, 70)
    fast, naive = (
        outs_and_grads(lambda *t, f=f: f(*t)[used], inputs, weights[used : used + 1]) for f in PAIRS["symplectic"]
    )
    assert_near(fast, naive, 1e-11)


@pytest.mark.parametrize("dtype", HALF)
@pytest.mark.parametrize("kind", KINDS)
def test_half_precisions(kind: str, dtype: torch.dtype) -> None:
    """Sums of 1500 terms keep the precision of their inputs, since they are made in float32."""
    inputs, weights = case(kind, 1, 2, 1500, dtype)
    doubles = [[t.double() for t in ts] for ts in (inputs, weights)]
    truth = outs_and_grads(PAIRS[kind][1], *doubles)
    half = outs_and_grads(PAIRS[kind][0], inputs, weights)
    assert {t.dtype for t in half} == {dtype}
    assert_near(half, truth, torch.finfo(dtype).eps)
    assert STEPS[kind](None, *inputs)[-1].dtype == torch.float32


@pytest.mark.parametrize("kind", KINDS)
def test_autocast_keeps_the_sums_precise(kind: str) -> None:
    (q, k, v), weights = case(kind, 1, 2, 100, torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        fast = outs_and_grads(PAIRS[kind][0], [q, k, v], weights)
        mixed = PAIRS[kind][0](q.bfloat16(), k, v)
    assert_near(fast, outs_and_grads(PAIRS[kind][1], [q, k, v], weights), 1e-5)
    assert (mixed if kind == "linear" else mixed[0]).dtype == torch.float32


@pytest.mark.parametrize("kind", KINDS)
def test_causality_is_exact(kind: str) -> None:
    """A later token changes no earlier row, and no earlier row has a gradient in it: not by one rounding."""
    (q, k, v), weights = case(kind, 1, 2, 300, torch.float32)
    cut = 137
    early = [torch.cat((w[:, :, :cut], 0 * w[:, :, cut:]), 2) for w in weights]
    fast = partial(PAIRS[kind][0], chunk=4)
    before = outs_and_grads(fast, [q, k, v], early)
    for t in (q, k, v):
        t[:, :, cut:] += 1.0
    after = outs_and_grads(fast, [q, k, v], early)
    for a, b in zip(before, after, strict=True):
        assert torch.equal(a[:, :, :cut], b[:, :, :cut])
    for grad in after[-3:]:
        assert not grad[:, :, cut:].any()


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_memory_is_linear(kind: str, causal: bool) -> None:
    inputs, weights = case(kind, 2, 2, 512, torch.float32)
    with watch_sizes() as watch:
        outs_and_grads(partial(PAIRS[kind][0], causal=causal), inputs, weights)
    assert 0 < watch.largest <= 2 * 2 * 512 * 16  # the products inside chunks of 16 tokens
    with watch_sizes() as watch:
        outs_and_grads(partial(PAIRS[kind][1], causal=causal), inputs, weights)
    assert watch.largest == 2 * 2 * 512 * 512  # the watch does see a T x T tensor where there is one


@pytest.mark.parametrize("kind", KINDS)
def test_work_is_linear(kind: str) -> None:
    def flops(tokens: int) -> int:
        with FlopCounterMode(display=False) as counter:
            outs_and_grads(PAIRS[kind][0], *case(kind, 1, 1, tokens, torch.float32, d=(16, 16)))
        return int(counter.get_total_flops())

    assert flops(4096) == 4 * flops(1024) > 0


@pytest.mark.parametrize("scale", [1e3, 1e-3])
@pytest.mark.parametrize("kind", KINDS)
def test_large_and_small_products(kind: str, scale: float) -> None:
    inputs, weights = case(kind, 2, 2, 200, torch.float32)
    compare(kind, [scale * t for t in inputs], weights, 1e-4)


# ---------------------------------------------------------------------------------------- step by step


CHUNKINGS = [[1] * 70, [70], [1, 69], [69, 1], [7, 1, 1, 40, 2, 19]]


def run_steps(step: Op, inputs: list[Tensor], chunks: list[int]) -> list[Tensor]:
    state, end, parts = None, 0, []
    for size in chunks:
        start, end = end, end + size
        *outs, state = step(state, *(t[:, :, start:end] for t in inputs))
        parts.append(outs)
    assert state is not None
    return [*(torch.cat(ts, 2) for ts in zip(*parts, strict=True)), state]


@pytest.mark.parametrize("dtype", PRECISE)
@pytest.mark.parametrize("chunks", CHUNKINGS, ids=lambda c: f"{len(c)}steps-{c[0]}first")
@pytest.mark.parametrize("kind", KINDS)
def test_steps_are_the_scan(kind: str, chunks: list[int], dtype: torch.dtype) -> None:
    inputs, weights = case(kind, 2, 3, sum(chunks), dtype)

    def by_steps(*t: Tensor) -> list[Tensor]:
        return run_steps(STEPS[kind], list(t), chunks)[:-1]

    steps = outs_and_grads(by_steps, inputs, weights)
    assert_near(steps, outs_and_grads(PAIRS[kind][1], inputs, weights), TOLERANCE[dtype])
    state = run_steps(STEPS[kind], inputs, chunks)[-1]
    assert_near([state], [inputs[1].mT @ inputs[2]], TOLERANCE[dtype])


@pytest.mark.parametrize("kind", KINDS)
def test_steps_leave_the_old_state_alone(kind: str) -> None:
    """Beams branch off one state."""
    inputs, _ = case(kind, 1, 2, 3)
    state = STEPS[kind](None, *inputs)[-1]
    kept = state.clone()
    for tokens in (1, 3):
        STEPS[kind](state, *(t[:, :, :tokens] for t in inputs))
        assert torch.equal(state, kept)


@pytest.mark.parametrize("dtype", HALF)
@pytest.mark.parametrize("kind", KINDS)
def test_half_precision_steps(kind: str, dtype: torch.dtype) -> None:
    inputs, _ = case(kind, 1, 2, 200, dtype)
    *outs, state = run_steps(STEPS[kind], inputs, [100] + [1] * 100)
    assert {t.dtype for t in outs} == {dtype}
    assert state.dtype == torch.float32
    truth = PAIRS[kind][1](*(t.double() for t in inputs))
    assert_near(outs, [truth] if kind == "linear" else truth, torch.finfo(dtype).eps)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
@pytest.mark.parametrize("kind", KINDS)
def test_torch_compile(kind: str) -> None:
    inputs, weights = case(kind, 2, 2, 100, torch.float32)
    torch.compiler.reset()
    compiled = torch.compile(PAIRS[kind][0])
    assert_near(outs_and_grads(compiled, inputs, weights), outs_and_grads(PAIRS[kind][1], inputs, weights), 1e-4)


# ---------------------------------------------------------------------------------------- bad input


@pytest.mark.parametrize("op", [*PAIRS["linear"], *PAIRS["symplectic"], *(partial(s, None) for s in STEPS.values())])
@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        ([(2, 5, 4), (2, 5, 4), (2, 5, 4)], "same batch, heads and tokens"),
        ([(1, 2, 5, 4), (1, 2, 5, 3), (1, 2, 5, 4)], "same batch, heads and tokens"),
        ([(1, 2, 5, 4), (1, 2, 5, 4), (1, 2, 6, 4)], "same batch, heads and tokens"),
        ([(1, 2, 0, 4), (1, 2, 0, 4), (1, 2, 0, 4)], "at least one"),
    ],
)
def test_bad_shapes(op: Op, shapes: list[tuple[int, ...]], message: str) -> None:
    with pytest.raises(InputError, match=message):
        op(*randoms(*shapes))


@pytest.mark.parametrize("kind", KINDS)
def test_other_bad_input(kind: str) -> None:
    inputs, _ = case(kind, 1, 2, 5)
    with pytest.raises(InputError, match="chunk must be at least 1"):
        PAIRS[kind][0](*inputs, chunk=0)
    with pytest.raises(InputError, match="floating point"):
        PAIRS[kind][0](*(t.long() for t in inputs))
    with pytest.raises(InputError, match="state of the last step"):
        STEPS[kind](torch.zeros(1, 2, 5, 8), *inputs)
