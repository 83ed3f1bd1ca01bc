"""Causal linear attention in linear time: chunked for training, recurrent for generation, naive for the truth.

    out_i = sum_{j in vis(i)} <q_i, k_j> v_j = S_i' q_i        S_i = sum_{j in vis(i)} k_j v_j'        (dk, dv)

Nothing is normalised here: a mean over the visible tokens divides by n_i = |vis(i)| afterwards.

The linear oracle of the flow reads one state twice: with S_i = sum_j x_j y_j', its velocity needs S_i' q_i (q = A x)
and its force S_i y_i. The `symplectic` functions return both.

Half precisions are computed in float32 and returned as they came: a state sums over all tokens, which overflows
float16 and rounds away in bfloat16 (and CPUs without bfloat16 units multiply such small matrices 15 times slower).

Chunked, tokens come in N chunks of C. With S_n the state of all chunks before chunk n, a row of chunk n reads

    out = q S + W v        S = sum over earlier chunks of k'v        W = tril(q k')        W is C x C

and backwards, with dW = tril(dout v') and R the sum over later chunks of q'dout,

    dq = dout S' + dW k        dk = v R' + dW' q        dv = k R + W' dout

so a gradient is made of the same two sums. Autograd would find these formulas too, but with an extra pass over memory
for every + and with twice the number of kernels.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from sympformer.errors import InputError
from sympformer.ops import door

GROUP = 16  # chunks whose states are summed by one product with a triangle of ones


def linear_attention(
    q: Tensor, k: Tensor, v: Tensor, *, causal: bool = True, chunk: int | None = None, seen: Tensor | None = None
) -> Tensor:
    """out_i = sum_{j in vis(i)} <q_i, k_j> v_j (B, H, T, dv), in O(T dk dv + T chunk (dk + dv)).

    Args:
        q: (B, H, T, dk).
        k: (B, H, T, dk).
        v: (B, H, T, dv).
        causal: vis(i) = 1..i, otherwise all tokens.
        chunk: tokens multiplied at once; None picks by width. It changes the rounding and the speed, nothing else.
        seen: boolean (B or 1, 1, T, T), which of these pairs count; such a mask has no sums to share, so this is the
            naive way. (Tokens that nobody sees need none: their keys are zero.)
    """
    door.note_pass()
    if seen is not None or not door.fast():
        return linear_attention_naive(q, k, v, causal=causal, seen=seen)
    with _no_autocast(q):
        dtype, q, k, v = _ready(q, k, v)
        if not causal:
            return (q @ (k.mT @ v)).to(dtype)
        return _join(ChunkedAttention.apply(*_split_all(chunk, q, k, v)), q).to(dtype)


def symplectic_scan(
    q: Tensor, x: Tensor, y: Tensor, *, causal: bool = True, chunk: int | None = None, seen: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Both reads of the one state S_i = sum_{j in vis(i)} x_j y_j', (B, H, T, dy) and (B, H, T, dx):

        position_out_i = S_i' q_i = sum_j <q_i, x_j> y_j        momentum_out_i = S_i y_i = sum_j <y_i, y_j> x_j

    q (B, H, T, dx) is usually A x, x (B, H, T, dx) positions, y (B, H, T, dy) momenta; the rest as in
    `linear_attention`.
    """
    door.note_pass()
    if seen is not None or not door.fast():
        return symplectic_scan_naive(q, x, y, causal=causal, seen=seen)
    with _no_autocast(q):
        dtype, q, x, y = _ready(q, x, y)
        if not causal:
            S = x.mT @ y  # (B, H, dx, dy)
            return (q @ S).to(dtype), (y @ S.mT).to(dtype)
        position_out, momentum_out = ChunkedSymplectic.apply(*_split_all(chunk, q, x, y))
        return _join(position_out, q).to(dtype), _join(momentum_out, q).to(dtype)


def linear_attention_step(state: Tensor | None, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """Continue `linear_attention` by T >= 1 tokens from the state of all earlier ones.

        S <- S + sum_j k_j v_j'        out_i = S_i' q_i

    state (B, H, dk, dv) is what the last call returned, or None before the first token; q, k (B, H, T, dk) and
    v (B, H, T, dv) are of the new tokens. Returns out, and the new state in float32 or float64, whose size never grows.
    """
    return _step(lambda q, k, v: [linear_attention(q, k, v)], lambda S, q, v: [q @ S], state, q, k, v)


def symplectic_step(state: Tensor | None, q: Tensor, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Continue `symplectic_scan`: position_out, momentum_out, and the new state, as `linear_attention_step` does.

    S <- S + sum_j x_j y_j'        position_out_i = S_i' q_i        momentum_out_i = S_i y_i
    """
    return _step(symplectic_scan, lambda S, q, y: [q @ S, y @ S.mT], state, q, x, y)


def _step(
    scan: Callable[..., Any], read: Callable[..., list[Tensor]], state: Tensor | None, q: Tensor, k: Tensor, v: Tensor
) -> Any:
    """What `scan` makes of the new tokens, and what they `read` from the state of the earlier ones; the state after."""
    with _no_autocast(q):
        dtype, q, k, v = _ready(q, k, v, state)
        gain = k.mT @ v
        S = gain if state is None else state + gain
        if q.size(2) == 1:
            door.note_pass()
            outs = read(S, q, v)
        else:
            outs = scan(q, k, v)
            outs = outs if state is None else [out + more for out, more in zip(outs, read(state, q, v), strict=True)]
        return *(out.to(dtype) for out in outs), S


def linear_attention_naive(
    q: Tensor, k: Tensor, v: Tensor, *, causal: bool = True, seen: Tensor | None = None
) -> Tensor:
    """The slow twin of `linear_attention`: the T x T products as they stand."""
    with _no_autocast(q):
        dtype, q, k, v = _ready(q, k, v)
        return (linear_rows(q, k, causal=causal, seen=seen) @ v).to(dtype)


def symplectic_scan_naive(
    q: Tensor, x: Tensor, y: Tensor, *, causal: bool = True, seen: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """The slow twin of `symplectic_scan`: two sums with their T x T products as they stand."""
    position_out = linear_attention_naive(q, x, y, causal=causal, seen=seen)
    return position_out, linear_attention_naive(y, y, x, causal=causal, seen=seen)


def linear_rows(q: Tensor, k: Tensor, *, causal: bool = True, seen: Tensor | None = None) -> Tensor:
    """The matrix <q_i, k_j> (B, H, Tq, Tk) of `linear_attention`, zero where j is not in vis(i), for those who want to
    see it. Queries belong to the last Tq of the Tk tokens."""
    with _no_autocast(q):
        work = torch.promote_types(torch.promote_types(q.dtype, k.dtype), torch.float32)
        products = q.to(work) @ k.to(work).mT
        products = products.tril(k.size(-2) - q.size(-2)) if causal else products
        return products if seen is None else products.masked_fill(~seen, 0)


def _ready(q: Tensor, k: Tensor, v: Tensor, state: Tensor | None = None) -> tuple[torch.dtype, Tensor, Tensor, Tensor]:
    """The dtype of the result, and all three in one dtype, float32 at least; what does not fit is refused in words."""
    shapes = f"{tuple(q.shape)}, {tuple(k.shape)}, {tuple(v.shape)}"
    if q.ndim != 4 or q.shape != k.shape or v.ndim != 4 or v.shape[:3] != k.shape[:3]:
        raise InputError(
            f"linear attention needs (B, H, T, dk), (B, H, T, dk), (B, H, T, dv), got {shapes}: "
            "give all three the same batch, heads and tokens"
        )
    if state is not None and state.shape != (*k.shape[:2], k.size(3), v.size(3)):
        raise InputError(
            f"the state must be {(*k.shape[:2], k.size(3), v.size(3))} for inputs {shapes}, got {tuple(state.shape)}: "
            "hand back the state of the last step, or None to start"
        )
    dtype = torch.promote_types(torch.promote_types(q.dtype, k.dtype), v.dtype)
    work = torch.promote_types(dtype, torch.float32)
    return dtype, q.to(work), k.to(work), v.to(work)


def _no_autocast(t: Tensor) -> AbstractContextManager[object]:
    """Autocast would send the float32 sums back to half precision."""
    return torch.autocast(t.device.type, enabled=False)


def _split_all(chunk: int | None, *tensors: Tensor) -> list[Tensor]:
    """(B, H, T, d) -> (B H, N, C, d)."""
    if chunk is None:
        # Forward + backward of `symplectic_scan`, T = 1024, one CPU thread, ms at chunks of 8, 16, 32, 64, 128:
        #   (6, 1, T, 64): 51 28 21 21 29     (6, 2, T, 32): 22 15 17 20 32     (6, 8, T, 8): 48 50 68 114 193
        chunk = min(max(16, *(t.size(3) for t in tensors)), 64)
    if chunk < 1:
        raise InputError(f"chunk must be at least 1 token, got {chunk}: leave it out to have it chosen")
    return [_split(t.flatten(0, 1), min(chunk, t.size(2))) for t in tensors]


def _split(t: Tensor, size: int) -> Tensor:
    """(L, T, d) -> (L, N, C, d); zeros fill the last chunk, and add nothing to any sum."""
    if missing := -t.size(1) % size:
        t = F.pad(t, (0, 0, 0, missing))  # copies, so not where nothing is missing
    return t.unflatten(1, (-1, size))


def _join(t: Tensor, like: Tensor) -> Tensor:
    """(B H, N, C, d) -> (B, H, T, d)."""
    return t.flatten(1, 2)[:, : like.size(2)].unflatten(0, like.shape[:2])


# From here on all arguments are (L, N, C, d): L sequences (batch and heads), N chunks, C tokens.


def _product(a: Tensor, b: Tensor) -> Tensor:
    """a b for every chunk: (L, N, r, m) x (L, N, m, c) -> (L, N, r, c)."""
    return torch.bmm(a.flatten(0, 1), b.flatten(0, 1)).unflatten(0, a.shape[:2])


def _add_product(total: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """total += a b for every chunk, in place (total is contiguous): the addition costs no pass of its own."""
    total.flatten(0, 1).baddbmm_(a.flatten(0, 1), b.flatten(0, 1))
    return total


def _triangle(a: Tensor, b: Tensor) -> Tensor:
    """tril(a b'): the products <a_i, b_j> with j <= i, (L, N, C, C)."""
    return _product(a, b.mT).tril_()


def _sum_of_others(states: Tensor, later: bool = False) -> Tensor:
    """For every chunk the sum of the states of all earlier (or later) chunks, (L, N, a, b) -> the same.

    `cumsum` over any but the last axis strides through memory and took a quarter of the whole scan. Here groups of
    16 chunks are summed by a product with a triangle of ones, and only the totals of the groups by `cumsum`.
    Totals are shifted, not subtracted again: a later token may not change an earlier row, not even in its rounding.
    """
    chunks = states.size(1)
    group = min(GROUP, chunks)
    flat = _split(states.flatten(2), group)  # (L, M, G, ab)
    ones = torch.ones(group, group, dtype=states.dtype, device=states.device)
    sums = (ones.triu(1) if later else ones.tril(-1)) @ flat  # (L, M, G, ab), inside the group
    if flat.size(1) > 1:
        total = flat.sum(2, keepdim=True)  # (L, M, 1, ab)
        if later:
            sums[:, :-1] += total[:, 1:].flip(1).cumsum(1).flip(1)
        else:
            sums[:, 1:] += total[:, :-1].cumsum(1)
    return sums.flatten(1, 2)[:, :chunks].view(states.shape)


class ChunkedAttention(torch.autograd.Function):
    """out_i = sum_{j <= i} <q_i, k_j> v_j."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        S = _sum_of_others(_product(k.mT, v))  # (L, N, dk, dv)
        W = _triangle(q, k)  # (L, N, C, C)
        ctx.save_for_backward(q, k, v, S, W)
        return _add_product(_product(q, S), W, v)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dout: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        q, k, v, S, W = ctx.saved_tensors
        with _no_autocast(dout):
            R = _sum_of_others(_product(q.mT, dout), later=True)  # (L, N, dk, dv)
            dW = _triangle(dout, v)  # (L, N, C, C)
            dq = _add_product(_product(dout, S.mT), dW, k)
            dk = _add_product(_product(v, R.mT), dW.mT, q)
            dv = _add_product(_product(k, R), W.mT, dout)
        return dq, dk, dv


class ChunkedSymplectic(torch.autograd.Function):
    """position_out_i = sum_{j <= i} <q_i, x_j> y_j and momentum_out_i = sum_{j <= i} <y_i, y_j> x_j.

    Both are reads of one state, S and S', so backwards there is one R as well:
    the first is attention by (q, x, y) with state S, the second by (y, y, x) with state S'.
    """

    @staticmethod
    def forward(ctx: Any, q: Tensor, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        S = _sum_of_others(_product(x.mT, y))  # (L, N, dx, dy)
        W_qx, W_yy = _triangle(q, x), _triangle(y, y)  # (L, N, C, C)
        ctx.save_for_backward(q, x, y, S, W_qx, W_yy)
        return _add_product(_product(q, S), W_qx, y), _add_product(_product(y, S.mT), W_yy, x)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dp: Tensor, dm: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        q, x, y, S, W_qx, W_yy = ctx.saved_tensors
        with _no_autocast(dp):
            R = _sum_of_others(_add_product(_product(q.mT, dp), dm.mT, y), later=True)  # (L, N, dx, dy)
            dW_qx, dW_yy = _triangle(dp, y), _triangle(dm, x)  # (L, N, C, C)
            dq = _add_product(_product(dp, S.mT), dW_qx, x)
            dx = _add_product(_add_product(_product(y, R.mT), dW_qx.mT, q), W_yy.mT, dm)
            dy = _add_product(_add_product(_product(x, R), W_qx.mT, dp), dm, S)
            dy = _add_product(_add_product(dy, dW_yy, y), dW_yy.mT, y)  # y is query and key of the second read
        return dq, dx, dy
