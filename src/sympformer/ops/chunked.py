"""The causal sums of linear attention over chunks, with their gradients by hand.

Tokens come in N chunks of C. With S_n the state of all chunks before chunk n, a row of chunk n reads

    out = q S + W v        S = sum over earlier chunks of k'v        W = tril(q k')        W is C x C

and backwards, with dW = tril(dout v') and R the sum over later chunks of q'dout,

    dq = dout S' + dW k        dk = v R' + dW' q        dv = k R + W' dout

so a gradient is made of the same two sums. Autograd would find these formulas too, but with an extra pass over memory
for every + and with twice the number of kernels.

All arguments here are (L, N, C, d): L sequences (batch and heads), N chunks, C tokens.
"""

from contextlib import AbstractContextManager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable


def no_autocast(t: Tensor) -> AbstractContextManager[object]:
    """Autocast would send the float32 sums back to half precision."""
    return torch.autocast(t.device.type, enabled=False)


def product(a: Tensor, b: Tensor) -> Tensor:
    """a b for every chunk: (L, N, r, m) x (L, N, m, c) -> (L, N, r, c)."""
    return torch.bmm(a.flatten(0, 1), b.flatten(0, 1)).unflatten(0, a.shape[:2])


def add_product(total: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """total += a b for every chunk, in place (total is contiguous): the addition costs no pass of its own."""
    total.flatten(0, 1).baddbmm_(a.flatten(0, 1), b.flatten(0, 1))
    return total


def triangle_product(a: Tensor, b: Tensor) -> Tensor:
    """tril(a b'): the products <a_i, b_j> with j <= i, (L, N, C, C)."""
    return product(a, b.mT).tril_()


GROUP = 16  # chunks whose states are summed by one product with a triangle of ones


def sum_of_others(states: Tensor, later: bool = False) -> Tensor:
    """For every chunk the sum of the states of all earlier (or later) chunks, (L, N, a, b) -> the same.

    `cumsum` over any but the last axis strides through memory and took a quarter of the whole scan. Here groups of
    16 chunks are summed by a product with a triangle of ones, and only the totals of the groups by `cumsum`.
    Totals are shifted, not subtracted again: a later token may not change an earlier row, not even in its rounding.
    """
    chunks = states.size(1)
    group = min(GROUP, chunks)
    flat = split(states.flatten(2), group)  # (L, M, G, ab)
    ones = torch.ones(group, group, dtype=states.dtype, device=states.device)
    sums = (ones.triu(1) if later else ones.tril(-1)) @ flat  # (L, M, G, ab), inside the group
    if flat.size(1) > 1:
        total = flat.sum(2, keepdim=True)  # (L, M, 1, ab)
        if later:
            sums[:, :-1] += total[:, 1:].flip(1).cumsum(1).flip(1)
        else:
            sums[:, 1:] += total[:, :-1].cumsum(1)
    return sums.flatten(1, 2)[:, :chunks].view(states.shape)


def split(t: Tensor, size: int) -> Tensor:
    """(L, T, d) -> (L, N, C, d); zeros fill the last chunk, and add nothing to any sum."""
    if missing := -t.size(1) % size:
        t = F.pad(t, (0, 0, 0, missing))  # copies, so not where nothing is missing
    return t.unflatten(1, (-1, size))


class ChunkedAttention(torch.autograd.Function):
    """out_i = sum_{j <= i} <q_i, k_j> v_j."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        S = sum_of_others(product(k.mT, v))  # (L, N, dk, dv)
        W = triangle_product(q, k)  # (L, N, C, C)
        ctx.save_for_backward(q, k, v, S, W)
        return add_product(product(q, S), W, v)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dout: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        q, k, v, S, W = ctx.saved_tensors
        with no_autocast(dout):
            R = sum_of_others(product(q.mT, dout), later=True)  # (L, N, dk, dv)
            dW = triangle_product(dout, v)  # (L, N, C, C)
            dq = add_product(product(dout, S.mT), dW, k)
            dk = add_product(product(v, R.mT), dW.mT, q)
            dv = add_product(product(k, R), W.mT, dout)
        return dq, dk, dv


class ChunkedSymplectic(torch.autograd.Function):
    """position_out_i = sum_{j <= i} <q_i, x_j> y_j and momentum_out_i = sum_{j <= i} <y_i, y_j> x_j.

    Both are reads of one state, S and S', so backwards there is one R as well:
    the first is attention by (q, x, y) with state S, the second by (y, y, x) with state S'.
    """

    @staticmethod
    def forward(ctx: Any, q: Tensor, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        S = sum_of_others(product(x.mT, y))  # (L, N, dx, dy)
        W_qx, W_yy = triangle_product(q, x), triangle_product(y, y)  # (L, N, C, C)
        ctx.save_for_backward(q, x, y, S, W_qx, W_yy)
        position_out = add_product(product(q, S), W_qx, y)
        momentum_out = add_product(product(y, S.mT), W_yy, x)
        return position_out, momentum_out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dp: Tensor, dm: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        q, x, y, S, W_qx, W_yy = ctx.saved_tensors
        with no_autocast(dp):
            R = sum_of_others(add_product(product(q.mT, dp), dm.mT, y), later=True)  # (L, N, dx, dy)
            dW_qx, dW_yy = triangle_product(dp, y), triangle_product(dm, x)  # (L, N, C, C)
            dq = add_product(product(dp, S.mT), dW_qx, x)
            dx = add_product(add_product(product(y, R.mT), dW_qx.mT, q), W_yy.mT, dm)
            dy = add_product(add_product(product(x, R), W_qx.mT, dp), dm, S)
            dy = add_product(add_product(dy, dW_yy, y), dW_yy.mT, y)  # y is query and key of the second read
        return dq, dx, dy
