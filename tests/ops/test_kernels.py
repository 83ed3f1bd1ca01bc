"""What every attention kernel keeps: the values and gradients of its formula, causality, memory, strides, dtypes."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

from sympformer import ops
from sympformer.errors import InputError
from tests.ops.helpers import (
    BATCHES,
    HALF,
    LENGTHS,
    PRECISE,
    TOLERANCE,
    assert_near,
    compare,
    outs_and_grads,
    randoms,
    watch_sizes,
)

Op = Callable[..., Any]
SCALE = 0.3


class Kind(NamedTuple):
    fast: Op
    naive: Op
    widths: tuple[int, int]  # of queries and keys, of values
    outputs: Callable[[list[Tensor]], list[Tensor]]  # of random (value-like, key-like) gradients those of the outputs
    softmax: bool = False

    def in_chunks(self, chunk: int) -> Op:
        return self.fast if self.softmax else partial(self.fast, chunk=chunk)


SOFTMAX = [partial(f, scale=SCALE) for f in (ops.attention_lse, ops.attention_lse_naive)]
KINDS = {
    # on the CPU heads of 8 are widened, with a column of their own for the gradient of lse, and heads of 16 are not
    "softmax 8": Kind(SOFTMAX[0], SOFTMAX[1], (8, 8), lambda g: [g[0], g[1][..., 0]], True),
    "softmax 16": Kind(SOFTMAX[0], SOFTMAX[1], (16, 16), lambda g: [g[0], g[1][..., 0]], True),
    "linear": Kind(ops.linear_attention, ops.linear_attention_naive, (8, 5), lambda g: g[:1]),
    "symplectic": Kind(ops.symplectic_scan, ops.symplectic_scan_naive, (8, 5), lambda g: g),
}
EACH = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)


def case(
    kind: Kind, batch: int, heads: int, tokens: int, dtype: torch.dtype = torch.float64
) -> tuple[list[Tensor], list[Tensor]]:
    """(q, k, v) or (q, x, y), and a random gradient per output."""
    wide, other = ((batch, heads, tokens, d) for d in kind.widths)
    q, k, v, d_other, d_wide = randoms(wide, wide, other, other, wide, dtype=dtype)
    return [q, k, v], kind.outputs([d_other, d_wide])


@pytest.mark.parametrize("dtype", PRECISE)
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize(("batch", "heads"), BATCHES)
@pytest.mark.parametrize("tokens", LENGTHS)
@EACH
def test_fast_is_naive(kind: Kind, tokens: int, batch: int, heads: int, causal: bool, dtype: torch.dtype) -> None:
    fast, naive = (partial(f, causal=causal) for f in kind[:2])
    compare(fast, naive, *case(kind, batch, heads, tokens, dtype), TOLERANCE[dtype])


@pytest.mark.parametrize("dtype", HALF)
@pytest.mark.parametrize("causal", [True, False])
@EACH
def test_half_precisions(kind: Kind, causal: bool, dtype: torch.dtype) -> None:
    """lse is in float32, and sums of 1500 terms keep the precision of their inputs, since they are made in float32."""
    inputs, weights = case(kind, 1, 2, 100 if kind.softmax else 1500, dtype)
    doubles = [[t.double() for t in ts] for ts in (inputs, weights)]
    half = outs_and_grads(partial(kind.fast, causal=causal), inputs, weights)
    assert [t.dtype for t in half] == [dtype, torch.float32 if kind.softmax else dtype, *[dtype] * 3][: len(half)]
    truth = outs_and_grads(partial(kind.naive, causal=causal), *doubles)
    assert_near(half, truth, TOLERANCE[dtype] if kind.softmax else torch.finfo(dtype).eps)


@EACH
def test_strides_do_not_matter(kind: Kind) -> None:
    """Heads split off a (B, T, H dh) projection are transposed views; sums send back expanded gradients, and one key
    for all heads is expanded too."""
    inputs, weights = case(kind, 2, 3, 70)
    views = [t.transpose(1, 2).contiguous().transpose(1, 2) for t in inputs]
    views[2] = views[2].mT.contiguous().mT
    for w in (weights, [torch.ones((), dtype=w.dtype).expand(w.shape) for w in weights]):
        fast, naive = (outs_and_grads(f, t, w) for f, t in zip(kind[:2], (views, inputs), strict=True))
        assert_near(fast, naive, 1e-9)
    shared = [inputs[0], inputs[1][:, :1], inputs[2][:1]]
    expanded = [lambda q, k, v, f=f: f(q, k.expand(q.shape), v.expand(2, -1, -1, -1)) for f in kind[:2]]
    compare(expanded[0], expanded[1], shared, weights, 1e-9)


@EACH
def test_gradcheck_and_no_second_derivative_in_silence(kind: Kind) -> None:
    narrow, fast = kind._replace(widths=(3, 3 if kind.softmax else 2)), kind.in_chunks(3)
    inputs = [t.requires_grad_() for t in case(narrow, 1, 2, 7)[0]]
    assert torch.autograd.gradcheck(fast, inputs)
    outs = fast(*inputs)
    total = torch.stack([out.square().sum() for out in ([outs] if isinstance(outs, Tensor) else outs)]).sum()
    (dq,) = torch.autograd.grad(total, inputs[:1], create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        dq.sum().backward()


@pytest.mark.parametrize("used", [0, 1])
@pytest.mark.parametrize("name", ["softmax 8", "softmax 16", "symplectic"])
def test_an_unused_output_sends_no_gradient(name: str, used: int) -> None:
    kind = KINDS[name]
    inputs, weights = case(kind, 2, 3, 70)
    leaves = [[t.clone().requires_grad_() for t in inputs] for _ in range(2)]
    fast, naive = (
        torch.autograd.grad(f(*t)[used], t, weights[used], allow_unused=True, materialize_grads=True)
        for f, t in zip(kind[:2], leaves, strict=True)
    )
    assert_near(fast, naive, 1e-9)
    assert fast[2].any() == (name == "symplectic" or used == 0)  # v has none where only lse is used


@pytest.mark.parametrize("causal", [True, False])
@EACH
def test_memory_is_linear(kind: Kind, causal: bool) -> None:
    inputs, weights = case(kind, 2, 2, 512, torch.float32)
    with watch_sizes() as watch:
        outs_and_grads(partial(kind.fast, causal=causal), inputs, weights)
    assert 0 < watch.largest <= 2 * 2 * 512 * 16  # the width of widened heads, and the products of chunks of 16 tokens
    with watch_sizes() as watch:
        outs_and_grads(partial(kind.naive, causal=causal), inputs, weights)
    assert watch.largest == 2 * 2 * 512 * 512  # the watch does see a T x T tensor where there is one


@EACH
def test_causality_is_exact(kind: Kind) -> None:
    """A later token changes no earlier row, and no earlier row has a gradient in it: not by one rounding."""
    (q, k, v), weights = case(kind, 1, 2, 300, torch.float32)
    cut, fast = 137, kind.in_chunks(4)
    early = [w * (torch.arange(300) < cut).view(1, 1, 300, *[1] * (w.ndim - 3)) for w in weights]
    before = outs_and_grads(fast, [q, k, v], early)
    for t in (q, k, v):
        t[:, :, cut:] += 1.0
    after = outs_and_grads(fast, [q, k, v], early)
    for a, b in zip(before, after, strict=True):
        assert torch.equal(a[:, :, :cut], b[:, :, :cut])
    for grad in after[-3:]:
        assert not grad[:, :, cut:].any()


@EACH
def test_autocast_keeps_the_sums_precise(kind: Kind) -> None:
    (q, k, v), weights = case(kind, 1, 2, 100, torch.float32)
    truth = outs_and_grads(kind.naive, [q, k, v], weights)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert_near(outs_and_grads(kind.fast, [q, k, v], weights), truth, 1e-5)
        values = outs_and_grads(kind.naive, [q, k, v], weights)[: len(weights)]
        mixed = kind.fast(q.bfloat16(), k, v.double() if kind.softmax else v)
    assert_near(values, truth[: len(weights)], 1e-5)
    first = mixed if isinstance(mixed, Tensor) else mixed[0]
    assert first.dtype == (torch.bfloat16 if kind.softmax else torch.float32)
    assert_near([first], truth[:1], 2e-2)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
@EACH
def test_torch_compile(kind: Kind) -> None:
    def f(q: Tensor, k: Tensor, v: Tensor) -> list[Tensor]:
        outs = kind.fast(1.5 * q, k, v)
        return [out.sin() for out in ([outs] if isinstance(outs, Tensor) else outs)]

    torch.compiler.reset()
    compare(torch.compile(f), f, *case(kind, 2, 2, 100, torch.float32), 1e-4)


STEPS = [partial(f, None) for f in (ops.linear_attention_step, ops.symplectic_step)]
CACHED = partial(ops.cached_attention_lse, scale=SCALE)


@pytest.mark.parametrize("op", [*SOFTMAX, CACHED, *KINDS["linear"][:2], *KINDS["symplectic"][:2], *STEPS])
@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        ([(2, 5, 4)] * 3, r"\(B, H, T, d"),
        ([(1, 2, 5, 4), (1, 2, 5, 4), (1, 2, 6, 4)], "k and v of one shape|same batch, heads and tokens"),
        ([(1, 2, 5, 4), (1, 3, 5, 4), (1, 3, 5, 4)], "all but length|same batch, heads and tokens"),
        ([(1, 2, 5, 3), (1, 2, 5, 4), (1, 2, 5, 4)], "all but length|same batch, heads and tokens"),
        ([(1, 2, 6, 4), (1, 2, 5, 4), (1, 2, 5, 4)], "as many .* keys|many keys as|same batch, heads and tokens"),
    ],
)
def test_bad_shapes(op: Op, shapes: list[tuple[int, ...]], message: str) -> None:
    with pytest.raises(InputError, match=message):
        op(*randoms(*shapes))
