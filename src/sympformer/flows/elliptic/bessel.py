"""The modified Bessel function of the second kind, of any order: torch has the orders 0 and 1 only."""

import torch
from torch import Tensor

NODES = 160
DROP = 40.0  # exp(-DROP) is below the rounding of float64 relative to the peak


def log_bessel_k(order: float, z: Tensor) -> Tensor:
    """log K_order(z) for z > 0, from K_v(z) = integral_0^inf exp(-z cosh t) cosh(v t) dt.

    The integrand is even, entire, and falls double-exponentially: the trapezoidal rule converges faster than any
    power of its step. In float64 to 1e-12 or better for 1e-12 <= z and orders up to 300. Gradients reach z.
    """
    v, z64 = abs(order), z.double().unsqueeze(-1)
    t, weight = _nodes(v, z64.detach())
    log_cosh = v * t + torch.log1p(torch.exp(-2 * v * t))  # log 2 cosh(v t)
    return torch.logsumexp(log_cosh - z64 * torch.cosh(t) + torch.log(weight / 2), -1).to(z.dtype)


def _nodes(v: float, z: Tensor) -> tuple[Tensor, Tensor]:
    """Nodes and weights (..., NODES) where v t - z cosh t is within DROP of its peak at p = asinh(v/z).

    With c = sqrt(z^2 + v^2) that function lies below the peak by at least c (cosh u - 1) at p + u, and by at least
    v w^2/(2 + w) at p - w, which gives both ends in closed form.
    """
    peak = torch.asinh(v / z)
    c = torch.hypot(z, torch.as_tensor(v, dtype=z.dtype, device=z.device))
    upper = peak + 2 * torch.asinh(torch.sqrt(DROP / (2 * c)))  # acosh(1 + DROP/c), for every c
    k = DROP / max(v, 1e-3)
    lower = (peak - (k + (k * k + 8 * k) ** 0.5) / 2).clamp_min(0)
    share = torch.linspace(0, 1, NODES, dtype=z.dtype, device=z.device)
    weight = ((upper - lower) / (NODES - 1)).expand(*z.shape[:-1], NODES).clone()
    weight[..., 0] /= 2  # at t = 0 the even integrand counts half; elsewhere the first node is negligible
    return lower + (upper - lower) * share, weight
