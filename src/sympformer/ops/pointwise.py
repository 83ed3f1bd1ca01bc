"""The sums of a layer, fused so that the backward pass keeps as little as it can.

A layer with momentum has streams that a classical block has not. Left to autograd, each of their intermediates would be
kept; here only the inputs are, and the backward pass works out the rest again. With the door shut both are the formula.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from sympformer.ops.door import fast

Scalar = float | Tensor
EPS = 1e-5  # of LayerNorm, as in torch
# LayerNorm of a t with eps is LayerNorm of t with eps / a^2: for plain numbers a above this one the factor is left out.
# Below it t could leave the range of float16.
SMALL = 0.05


def plus(u: Tensor, b: Scalar, v: Tensor) -> Tensor:
    """u + b v, in one kernel."""
    if not fast():
        return u + b * v
    if not isinstance(b, Tensor):
        return torch.add(u, v, alpha=b)
    if not torch.is_grad_enabled() or not u.dtype == b.dtype == v.dtype:
        return u + b * v
    return _Plus.apply(u, b, v)


def norm_of_sum(a: Scalar, u: Tensor, b: Scalar, v: Tensor, gain: Tensor) -> Tensor:
    """LayerNorm(a u + b v) with a gain and no bias; keeps u and v, not their sum."""
    if not fast():
        return norm_of_sum_naive(a, u, b, v, gain)
    if not torch.is_grad_enabled():
        if isinstance(a, Tensor) or isinstance(b, Tensor) or a < SMALL:
            return norm_of_sum_naive(a, u, b, v, gain)
        return torch.layer_norm(torch.add(u, v, alpha=b / a), u.shape[-1:], gain, None, EPS / (a * a))
    return _NormOfSum.apply(_scalar(a, u), u, _scalar(b, u), v.to(u.dtype), gain.to(u.dtype))


def norm_of_sum_naive(a: Scalar, u: Tensor, b: Scalar, v: Tensor, gain: Tensor) -> Tensor:
    """The slow twin of `norm_of_sum`."""
    return F.layer_norm(a * u + b * v, u.shape[-1:], gain, eps=EPS)


def _scalar(value: Scalar, like: Tensor) -> Tensor:
    """A 0-dimensional tensor in the dtype and on the device of `like`."""
    if isinstance(value, Tensor):
        return value.to(like)
    return torch.full((), value, dtype=like.dtype, device=like.device)


class _Plus(torch.autograd.Function):
    """(u, b, v) -> u + b v with a 0-dimensional b; neither b v nor its gradient is made before it is summed."""

    @staticmethod
    def forward(ctx: Any, u: Tensor, b: Tensor, v: Tensor) -> Tensor:
        ctx.save_for_backward(b, v)
        return torch.addcmul(u, b, v)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        b, v = ctx.saved_tensors
        needs = ctx.needs_input_grad
        return g, _dot(g, v) if needs[1] else None, b * g if needs[2] else None


class _NormOfSum(torch.autograd.Function):
    """(a, u, b, v, gain) -> LayerNorm(a u + b v)."""

    @staticmethod
    def forward(ctx: Any, a: Tensor, u: Tensor, b: Tensor, v: Tensor, gain: Tensor) -> Tensor:
        out, mean, rstd = torch.native_layer_norm((a * u).addcmul_(b, v), u.shape[-1:], gain, None, EPS)
        ctx.save_for_backward(a, u, b, v, gain, mean, rstd)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        a, u, b, v, gain, mean, rstd = ctx.saved_tensors
        needs = ctx.needs_input_grad
        total = (a * u).addcmul_(b, v)
        d_total, d_gain, _ = torch.ops.aten.native_layer_norm_backward(
            g.contiguous(), total, total.shape[-1:], mean, rstd, gain, None, [True, needs[4], False]
        )
        return (
            _dot(d_total, u) if needs[0] else None,
            a * d_total if needs[1] else None,
            _dot(d_total, v) if needs[2] else None,
            d_total.mul_(b) if needs[3] else None,  # the last use of d_total
            d_gain if needs[4] else None,
        )


def _dot(g: Tensor, u: Tensor) -> Tensor:
    """sum of g u, without making the product."""
    return torch.dot(g.reshape(-1), u.reshape(-1))
