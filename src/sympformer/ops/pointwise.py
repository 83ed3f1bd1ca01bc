"""The elementwise work of an accelerated layer, fused so that the backward pass keeps as little as it can.

A layer with momentum has streams that a classical block has not. Left to autograd, each of their intermediates would be
kept; here only the inputs are, and the backward pass works out the rest again. Each function has its naive twin.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

Scalar = float | Tensor
EPS = 1e-5  # of LayerNorm, as in torch
# LayerNorm of a t with eps is LayerNorm of t with eps / a^2: for plain numbers a above this one the factor is left out.
# Below it t could leave the range of float16.
SMALL = 0.05


def plus(u: Tensor, b: Scalar, v: Tensor) -> Tensor:
    """u + b v, in one kernel."""
    if not isinstance(b, Tensor):
        return torch.add(u, v, alpha=b)
    if not torch.is_grad_enabled() or not u.dtype == b.dtype == v.dtype:
        return u + b * v
    return _Plus.apply(u, b, v)


def norm_of_sum(a: Scalar, u: Tensor, b: Scalar, v: Tensor, gain: Tensor) -> Tensor:
    """LayerNorm(a u + b v) with a gain and no bias; keeps u and v, not their sum."""
    if not torch.is_grad_enabled():
        if isinstance(a, Tensor) or isinstance(b, Tensor) or a < SMALL:
            return norm_of_sum_naive(a, u, b, v, gain)
        return torch.layer_norm(torch.add(u, v, alpha=b / a), u.shape[-1:], gain, None, EPS / (a * a))
    return _NormOfSum.apply(_scalar(a, u), u, _scalar(b, u), v.to(u.dtype), gain.to(u.dtype))


def norm_of_sum_naive(a: Scalar, u: Tensor, b: Scalar, v: Tensor, gain: Tensor) -> Tensor:
    """The slow twin of `norm_of_sum`."""
    return F.layer_norm(a * u + b * v, u.shape[-1:], gain, eps=EPS)


def own_euler_step(
    x: Tensor,
    y: Tensor,
    B: Tensor,
    mean: Tensor,
    log_z: Tensor,
    h_x: Scalar,
    zeta_1: Scalar,
    zeta_2: Scalar,
    gain: Tensor,
) -> tuple[Tensor, Tensor]:
    """One Euler-type step of the softmax flow in form "own", from the kernel's results, with LayerNorm on the momentum.

        x_next = x + h_x B y / z
        y_next = LayerNorm(zeta_1 y + zeta_2 (<y, B y>/(2 z) + z) mean)        z = exp(log_z)

    Args:
        x, y: (B, T, d). B: (d, d). gain: (d,).
        mean: (B, H, T, d/H), sum_j P_ij v_j. log_z: (B, H, T, 1). <y, B y> and z are per head.
    """
    numbers = [value for value in (h_x, zeta_1, zeta_2) if not isinstance(value, Tensor)]
    if len(numbers) == 3 and not torch.is_grad_enabled() and x.dtype == y.dtype == mean.dtype == log_z.dtype:
        return _own_euler_step_of_numbers(x, y, B, mean, log_z, numbers, gain)
    work = torch.promote_types(y.dtype, torch.float32)
    scalars = (_scalar(value, log_z) for value in (h_x, zeta_1, zeta_2))
    with torch.autocast(x.device.type, enabled=False):
        tokens = (t.to(work).transpose(1, 2).contiguous() for t in (mean, log_z))  # (B, T, H, .), free for H = 1
        x_next, y_next = _OwnEulerStep.apply(x.to(work), y.to(work), B.to(work), *tokens, *scalars, gain.to(work))
    return x_next.to(x.dtype), y_next.to(y.dtype)


def own_euler_step_naive(
    x: Tensor,
    y: Tensor,
    B: Tensor,
    mean: Tensor,
    log_z: Tensor,
    h_x: Scalar,
    zeta_1: Scalar,
    zeta_2: Scalar,
    gain: Tensor,
) -> tuple[Tensor, Tensor]:
    """The slow twin of `own_euler_step`."""
    mean, log_z = mean.transpose(1, 2), log_z.transpose(1, 2)  # (B, T, H, .)
    By = F.linear(y, B)
    kinetic = (_heads(y, mean) * _heads(By, mean)).sum(-1, keepdim=True)
    inverse = torch.exp(-log_z)
    velocity = inverse * _heads(By, mean)
    force = (inverse * kinetic / 2 + torch.exp(log_z)) * mean
    y_next = zeta_1 * y + zeta_2 * force.reshape(y.shape)
    return x + h_x * velocity.reshape(x.shape), F.layer_norm(y_next, y.shape[-1:], gain, eps=EPS)


def _own_euler_step_of_numbers(
    x: Tensor, y: Tensor, B: Tensor, mean: Tensor, log_z: Tensor, numbers: list[float], gain: Tensor
) -> tuple[Tensor, Tensor]:
    """`own_euler_step` without gradients, in few kernels: for one token each costs the same, however small it is."""
    h_x, zeta_1, zeta_2 = numbers
    By = F.linear(y, B)
    if mean.shape[1] == 1:
        mean, log_z = mean.squeeze(1), log_z.squeeze(1)  # (B, T, .)
        xs, ys, Bys = x, y, By
    else:
        mean, log_z = mean.transpose(1, 2), log_z.transpose(1, 2)  # (B, T, H, .)
        xs, ys, Bys = (t.view(mean.shape) for t in (x, y, By))
    z = torch.exp(log_z)
    coefficient = torch.addcdiv(z, (ys * Bys).sum(-1, keepdim=True), z, value=0.5)
    x_next = torch.addcdiv(xs, Bys, z, value=h_x)
    if zeta_1 < SMALL:
        total, eps = (zeta_1 * ys).addcmul_(coefficient, mean, value=zeta_2), EPS
    else:
        total, eps = torch.addcmul(ys, coefficient, mean, value=zeta_2 / zeta_1), EPS / (zeta_1 * zeta_1)
    if xs is not x:
        x_next, total = x_next.view(x.shape), total.view(y.shape)
    return x_next, torch.layer_norm(total, y.shape[-1:], gain, None, eps)


def _heads(t: Tensor, mean: Tensor) -> Tensor:
    """(B, T, d) -> (B, T, H, d/H), as a view, with the heads of `mean`."""
    return t.unflatten(-1, mean.shape[2:])


def _scalar(value: Scalar, like: Tensor) -> Tensor:
    """A 0-dimensional tensor in the dtype and on the device of `like`."""
    if isinstance(value, Tensor):
        return value.to(like)
    return torch.full((), value, dtype=like.dtype, device=like.device)


def _norm(total: Tensor, gain: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """LayerNorm over the last axis without bias: (out, mean, rstd)."""
    return torch.native_layer_norm(total, total.shape[-1:], gain, None, EPS)


def _norm_backward(
    g: Tensor, total: Tensor, mean: Tensor, rstd: Tensor, gain: Tensor, gain_learns: bool
) -> tuple[Tensor, Tensor | None]:
    """(d total, d gain)."""
    d_total, d_gain, _ = torch.ops.aten.native_layer_norm_backward(
        g.contiguous(), total, total.shape[-1:], mean, rstd, gain, None, [True, gain_learns, False]
    )
    return d_total, d_gain if gain_learns else None


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
        out, mean, rstd = _norm((a * u).addcmul_(b, v), gain)
        ctx.save_for_backward(a, u, b, v, gain, mean, rstd)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        a, u, b, v, gain, mean, rstd = ctx.saved_tensors
        needs = ctx.needs_input_grad
        d_total, d_gain = _norm_backward(g, (a * u).addcmul_(b, v), mean, rstd, gain, needs[4])
        return (
            _dot(d_total, u) if needs[0] else None,
            a * d_total if needs[1] else None,
            _dot(d_total, v) if needs[2] else None,
            d_total.mul_(b) if needs[3] else None,  # the last use of d_total
            d_gain,
        )


class _OwnEulerStep(torch.autograd.Function):
    """(x, y, B, mean, log_z, h_x, zeta_1, zeta_2, gain) -> (x_next, y_next); keeps y, mean and log_z only.

    mean (B, T, H, c) and log_z (B, T, H, 1) come token by token, so that heads are views of x and y. A factor that
    belongs to a head is put into the same kernel as the sum it scales: on short rows every pass counts.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor, B: Tensor, mean: Tensor, log_z: Tensor, *rest: Tensor) -> Any:
        h_x, zeta_1, zeta_2, gain = rest
        By = F.linear(y, B).view(mean.shape)
        inverse, _, coefficient = _OwnEulerStep.coefficients(y.view(mean.shape), By, log_z)
        x_next = torch.addcmul(x.view(mean.shape), h_x * inverse, By).view(x.shape)
        y_next, centre, rstd = _norm(_OwnEulerStep.total(y, mean, zeta_1, zeta_2 * coefficient), gain)
        ctx.save_for_backward(y, B, mean, log_z, *rest, centre, rstd)
        return x_next, y_next

    @staticmethod
    def coefficients(y: Tensor, By: Tensor, log_z: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """1/z, <y, B y> and z (rho/2 + 1), each (B, T, H, 1)."""
        kinetic = (y * By).sum(-1, keepdim=True)
        inverse = torch.exp(-log_z)
        return inverse, kinetic, torch.addcmul(torch.exp(log_z), inverse, kinetic, value=0.5)

    @staticmethod
    def total(y: Tensor, mean: Tensor, zeta_1: Tensor, scaled: Tensor) -> Tensor:
        """The momentum before LayerNorm, (B, T, d)."""
        return (zeta_1 * y).view(mean.shape).addcmul_(scaled, mean).view(y.shape)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gx: Tensor, g: Tensor) -> tuple[Tensor | None, ...]:
        y, B, mean, log_z, h_x, zeta_1, zeta_2, gain, centre, rstd = ctx.saved_tensors
        heads = mean.shape
        By, ys, gxs = F.linear(y, B).view(heads), y.view(heads), gx.reshape(heads)
        inverse, kinetic, coefficient = _OwnEulerStep.coefficients(ys, By, log_z)
        scaled = zeta_2 * coefficient
        total = _OwnEulerStep.total(y, mean, zeta_1, scaled)
        gy, d_gain = _norm_backward(g, total, centre, rstd, gain, ctx.needs_input_grad[8])
        gys = gy.view(heads)
        along_velocity = (gxs * By).sum(-1, keepdim=True)  # (B, T, H, 1)
        along_mean = (gys * mean).sum(-1, keepdim=True)
        half = zeta_2 / 2 * along_mean
        d_kinetic = half * inverse
        d_inverse = torch.addcmul(half * kinetic, h_x, along_velocity)
        d_By = (h_x * inverse * gxs).addcmul_(d_kinetic, ys).view(y.shape)
        d_y = (d_By @ B).addcmul_(zeta_1, gy).view(heads).addcmul_(d_kinetic, By)
        return (
            gx,
            d_y.view(y.shape),
            d_By.flatten(0, -2).mT @ y.flatten(0, -2),
            scaled * gys,
            torch.addcmul(2 * half * torch.exp(log_z), d_inverse, inverse, value=-1),
            _dot(along_velocity, inverse),
            _dot(gy, y),
            _dot(along_mean, coefficient),
            d_gain,
        )


def _dot(g: Tensor, u: Tensor) -> Tensor:
    """sum of g u, without making the product."""
    return torch.dot(g.reshape(-1), u.reshape(-1))
