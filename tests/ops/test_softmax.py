"""Attention with its log-normaliser: its rows, merged, cached, under masks. More in test_kernels."""

from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor

from sympformer.errors import InputError
from sympformer.ops import (
    attention,
    attention_lse,
    attention_lse_naive,
    cached_attention_lse,
    hiding,
    merge_attention,
    plain,
)
from tests.ops import helpers
from tests.ops.helpers import HALF, PRECISE, TOLERANCE, assert_near, outs_and_grads, randoms

SCALE = 0.3
HEAD_SIZES = (8, 16)  # on the CPU: widened, with a column of its own for the gradient of lse, and not


def case(
    batch: int, heads: int, tokens: int, dh: int = 8, dtype: torch.dtype = torch.float64
) -> tuple[list[Tensor], list[Tensor]]:
    """(q, k, v) and a random (dout, dlse)."""
    q, k, v, dout = randoms(*[(batch, heads, tokens, dh)] * 4, dtype=dtype)
    (dlse,) = randoms((batch, heads, tokens), dtype=torch.promote_types(dtype, torch.float32), seed=1)
    return [q, k, v], [dout, dlse]


def compare(
    inputs: list[Tensor],
    weights: list[Tensor],
    tolerance: float,
    floor: float = 1e-12,
    scale: float = SCALE,
    causal: bool = True,
) -> None:
    fast, naive = (partial(f, scale=scale, causal=causal) for f in (attention_lse, attention_lse_naive))
    helpers.compare(fast, naive, inputs, weights, tolerance, floor)


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("dh", HEAD_SIZES)
def test_attention_without_lse(dh: int, causal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is torch's own kernel while the door is open, and the formula, and nothing else, when it is shut."""
    inputs, weights = case(2, 3, 65, dh)
    attend = partial(attention, scale=SCALE, causal=causal)
    naive = outs_and_grads(lambda *t: attention_lse_naive(*t, scale=SCALE, causal=causal)[0], inputs, weights[:1])
    assert_near(outs_and_grads(attend, inputs, weights[:1]), naive, 1e-9)
    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", None)
    with plain():
        assert all(map(torch.equal, outs_and_grads(attend, inputs, weights[:1]), naive))
    with pytest.raises(TypeError):
        attend(*inputs)


def test_naive_is_the_formula() -> None:
    (q, k, v), _ = case(1, 1, 5)
    out, lse = attention_lse_naive(q, k, v, scale=SCALE)
    for i in range(5):
        weights = torch.stack([(SCALE * q[0, 0, i] @ k[0, 0, j]).exp() for j in range(i + 1)])
        torch.testing.assert_close(lse[0, 0, i], weights.sum().log())
        torch.testing.assert_close(out[0, 0, i], weights @ v[0, 0, : i + 1] / weights.sum())


@pytest.mark.parametrize(("queries", "keys"), [(1, 50), (7, 50), (50, 7), (65, 64)])
def test_other_number_of_keys(queries: int, keys: int) -> None:
    q, k, v, dout = randoms((2, 3, queries, 8), (2, 3, keys, 8), (2, 3, keys, 8), (2, 3, queries, 8))
    compare([q, k, v], [dout, *randoms((2, 3, queries))], 1e-9, causal=False)


def some_rows(tokens: int) -> Tensor:
    return (torch.arange(tokens) % 3 == 0).unsqueeze(-1)


# name -> (dout, dlse) from random ones: everything a row of the backward pass can meet
ROWS: dict[str, Callable[[Tensor, Tensor], list[Tensor]]] = {
    "both": lambda dout, dlse: [dout, dlse],
    "only out": lambda dout, dlse: [dout, 0 * dlse],
    "only lse": lambda dout, dlse: [0 * dout, dlse],
    "none": lambda dout, dlse: [0 * dout, 0 * dlse],
    "some rows without dout": lambda dout, dlse: [dout * some_rows(dout.size(2)), dlse],
    "some rows without either": lambda dout, dlse: [dout * (m := some_rows(dout.size(2))), dlse * m.squeeze(-1)],
    "tiny dout": lambda dout, dlse: [1e-30 * dout, dlse],
    "tiny dlse": lambda dout, dlse: [dout, 1e-30 * dlse],
    "both tiny": lambda dout, dlse: [1e-12 * dout, 1e-12 * dlse],
    "no dout, tiny dlse": lambda dout, dlse: [0 * dout, 1e-10 * dlse],
    "no dout, huge dlse": lambda dout, dlse: [0 * dout, 1e12 * dlse],
    "one entry of dout": lambda dout, dlse: [torch.cat((0 * dout[..., 1:], dout[..., :1]), -1), dlse],
    "rows of all sizes": lambda dout, dlse: [
        dout * 10.0 ** torch.linspace(-45, 1, dout.size(2), dtype=dout.dtype).unsqueeze(-1),
        dlse * 10.0 ** torch.linspace(2, -8, dout.size(2), dtype=dlse.dtype),
    ],
}


@pytest.mark.parametrize("dtype", PRECISE)
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("dh", HEAD_SIZES)
@pytest.mark.parametrize("rows", ROWS)
def test_every_kind_of_row(rows: str, dh: int, causal: bool, dtype: torch.dtype) -> None:
    inputs, weights = case(2, 3, 65, dh, dtype)
    compare(inputs, ROWS[rows](*weights), TOLERANCE[dtype], causal=causal)


@pytest.mark.parametrize("dh", HEAD_SIZES)
def test_rows_are_exact_one_by_one(dh: int) -> None:
    """Each row of dq, in units of its own size: no row may hide behind larger ones."""
    inputs, (dout, dlse) = case(1, 2, 65, dh, torch.float32)
    weights = [dout * 10.0 ** torch.linspace(-29, 1, 65).unsqueeze(-1), dlse * 10.0 ** torch.linspace(1, -8, 65)]
    dq = outs_and_grads(partial(attention_lse, scale=SCALE), inputs, weights)[2].double()
    doubles = [[t.double() for t in ts] for ts in (inputs, weights)]
    truth = outs_and_grads(partial(attention_lse_naive, scale=SCALE), *doubles)[2]
    assert ((dq - truth).norm(dim=-1) <= 1e-5 * truth.norm(dim=-1)).all()


@pytest.mark.parametrize("dtype", PRECISE)
def test_large_scores(dtype: torch.dtype) -> None:
    (q, k, v), weights = case(2, 2, 65, dtype=dtype)
    scale = 1e3 / (q @ k.mT).abs().max().item()
    assert attention_lse(q, k, v, scale=scale)[1].abs().max() > 500
    compare([q, k, v], weights, 1e-9 if dtype == torch.float64 else 3e-3, scale=scale)  # float32 knows 1e3 to 6e-5


# --- merged and cached


def test_merge_is_stable() -> None:
    out_a, out_b = randoms((1, 1, 3, 4), (1, 1, 3, 4), dtype=torch.float32)
    lse_a = torch.tensor([[[1e4, -1e4, float("-inf")]]])
    out, lse = merge_attention(out_a, lse_a, out_b, torch.zeros(1, 1, 3))
    assert torch.equal(lse, torch.tensor([[[1e4, 0.0, 0.0]]]))
    assert torch.equal(out, torch.cat((out_a[:, :, :1], out_b[:, :, 1:]), 2))


@pytest.mark.parametrize("dtype", PRECISE)
@pytest.mark.parametrize("new", [1, 2, 13, 64, 99, 100])
def test_cached_is_the_last_rows(new: int, dtype: torch.dtype) -> None:
    (q, k, v), (dout, dlse) = case(2, 3, 100, dtype=dtype)
    inputs, weights = [q[:, :, -new:], k, v], [dout[:, :, -new:], dlse[:, :, -new:]]

    def rows(last: Tensor, k: Tensor, v: Tensor) -> list[Tensor]:
        q_all = torch.cat((q[:, :, : 100 - new], last), 2)
        return [t[:, :, -new:] for t in attention_lse_naive(q_all, k, v, scale=SCALE)]

    cached = outs_and_grads(partial(cached_attention_lse, scale=SCALE), inputs, weights)
    assert_near(cached, outs_and_grads(rows, inputs, weights), TOLERANCE[dtype])


def test_what_only_softmax_refuses() -> None:
    q, k = randoms((1, 1, 2, 4), (1, 1, 5, 4))
    with pytest.raises(InputError, match="use cached_attention_lse"):
        attention_lse(q, k, k, scale=1.0)
    for bias in (torch.zeros(1, 5), torch.zeros(1, 2, 1, 5), torch.ones(1, 1, 1, 5).bool()):
        with pytest.raises(InputError, match=r"expanded to \(1, 1, 5, 5\)"):
            attention_lse(k, k, k, scale=SCALE, bias=bias)


# --- hidden keys


@pytest.mark.parametrize("dh", HEAD_SIZES)
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("pairs", [True, False])
@pytest.mark.parametrize("tokens", [1, 7, 200])
def test_hidden_keys(tokens: int, pairs: bool, causal: bool, dh: int) -> None:
    """Fast is naive under a mask of keys or of pairs, also in rows that see nothing at all."""
    inputs, (dout, dlse) = case(3, 2, tokens, dh)
    seen = torch.rand(3, 1, tokens if pairs else 1, tokens, generator=torch.Generator().manual_seed(1)) > 0.4
    seen[0] = False
    some = (seen.tril() if causal and pairs else seen).any(-1)  # (B, 1, T or 1)
    if causal and not pairs:
        some = seen[:, :, 0].cumsum(-1) > 0
    weights = [dout * some.unsqueeze(-1), dlse * some]  # nothing asks for what a row sees that sees nothing
    bias = hiding(seen, torch.float64)
    results = [
        outs_and_grads(partial(attend, scale=SCALE, causal=causal, bias=bias), inputs, weights)
        for attend in (attention_lse, attention_lse_naive)
    ]
    assert all(t.isfinite().all() for t in results[0])
    for result in results:
        result[0], result[1] = result[0] * some.unsqueeze(-1), result[1] * some
        assert not any(grad[0].any() for grad in result[2:])  # the first text is all padding
    assert_near(results[0], results[1], 1e-12)


def test_hidden_keys_are_not_there() -> None:
    """What a mask hides may be anything; the rest is attention over the keys that are left."""
    (q, k, v), _ = case(2, 2, 9)
    seen = torch.arange(9) % 3 != 1
    bias = hiding(seen.view(1, 1, 1, 9), torch.float64)
    k[:, :, ~seen], v[:, :, ~seen] = 100.0, 1e6
    want = attention_lse(q, k[:, :, seen], v[:, :, seen], scale=SCALE, causal=False)
    assert_near(attention_lse(q, k, v, scale=SCALE, causal=False, bias=bias), want, 1e-14)


@pytest.mark.parametrize("dtype", HALF)
def test_hidden_keys_in_half_precisions(dtype: torch.dtype) -> None:
    (q, k, v), _ = case(2, 2, 9, dtype=dtype)
    bias = hiding(torch.arange(9).view(1, 1, 1, 9) != 0, torch.float32)  # the first query sees nothing
    out, lse = attention_lse(q, k, v, scale=SCALE, bias=bias)
    want, want_lse = attention_lse_naive(q, k, v, scale=SCALE, bias=bias)
    assert out.isfinite().all()
    assert_near([out, lse[:, :, 1:]], [want, want_lse[:, :, 1:]], TOLERANCE[dtype])


@pytest.mark.parametrize("queries", [1, 4, 9])
def test_hidden_keys_of_a_cache(queries: int) -> None:
    (q, k, v), _ = case(2, 2, 9)
    bias = hiding(
        torch.tensor([[0, 0, 0, 1, 1, 1, 1, 1, 1], [1, 0, 1, 1, 0, 1, 1, 0, 1]]).bool()[:, None, None], q.dtype
    )
    whole = attention_lse(q, k, v, scale=SCALE, bias=bias)
    part = cached_attention_lse(q[:, :, -queries:], k, v, scale=SCALE, bias=bias)
    real = [t[:, :, 3:][:, :, -queries:] for t in whole]
    assert_near([t[:, :, -len(real[0][0, 0]) :] for t in part], real, 1e-12)
