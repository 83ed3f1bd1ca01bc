"""Seeded draws that torch's public samplers do not offer: gamma and generalised inverse Gaussian variables."""

import math

import torch
from torch import Generator, Tensor


def log_gamma_draws(a: float, like: Tensor, generator: Generator | None) -> Tensor:
    """Independent log G, G ~ Gamma(a, 1), in the shape (n,) of `like`: torch's public sampler takes no seed.

    Marsaglia and Tsang (2000), exact for a >= 1: c w with c = a - 1/3, w = (1 + z/(3 sqrt(c)))^3 is kept when
    log u < z^2/2 + c (1 - w + log w). Below 1, G_a = G_{a+1} u^(1/a), in logarithms so that none underflows.
    """
    log_G = torch.zeros_like(like)
    if a < 1:
        log_G -= torch.empty_like(like).exponential_(generator=generator) / a  # log u = -Exp(1)
    c = (a + 1 if a < 1 else a) - 1 / 3
    open_ = torch.arange(len(like), device=like.device)
    while len(open_):
        z = torch.randn(len(open_), generator=generator, dtype=like.dtype, device=like.device)
        log_u = -torch.empty_like(z).exponential_(generator=generator)
        w = (1 + z / (3 * math.sqrt(c))) ** 3
        kept = (w > 0) & ~(log_u >= z**2 / 2 + c * (1 - w + torch.log(w)))  # a c beyond the dtype keeps w = 1
        log_G[open_[kept]] += math.log(c) + torch.log(w[kept])
        open_ = open_[~kept]
    return log_G


def log_gig_draws(order: float, omega: float, like: Tensor, generator: Generator | None) -> Tensor:
    """Independent log W in the shape (n,) of `like`, W with the density ~ w^(order - 1) exp(-omega (w + 1/w)/2).

    u = log W has the log-concave density exp(phi), phi(u) = order u - omega cosh u. A log-concave density lies below
    its peak, and below its tangents at the two points where it has fallen to 1/e of the peak: rejection from these
    three pieces is exact, and keeps at least 0.46 of what it draws whatever the parameters (Devroye, 2014).
    """
    peak = math.asinh(order / omega)
    (left, rise), (right, fall) = (_tangent(order, omega, peak, side) for side in (-1, 1))
    areas = torch.tensor([1 / (rise * math.e), right - left, 1 / (fall * math.e)], dtype=torch.float64)
    edges = (areas.cumsum(0) / areas.sum())[:2].to(like.device)
    log_W = torch.zeros_like(like, dtype=torch.float64)
    open_ = torch.arange(len(like), device=like.device)
    while n := len(open_):
        piece = torch.bucketize(_uniform(n, like, generator), edges)
        e, f = (torch.empty(n, dtype=torch.float64, device=like.device).exponential_(generator=generator) for _ in "ef")
        inside = left + (right - left) * torch.exp(-e)  # exp(-Exp(1)) is uniform
        u = torch.where(piece == 1, inside, torch.where(piece == 0, left - e / rise, right + e / fall))
        hat = torch.where(piece == 1, 0.0, -1 - e)
        kept = hat - f < _fallen(order, omega, peak, u - peak)
        log_W[open_[kept]] = u[kept]
        open_ = open_[~kept]
    return log_W.to(like.dtype)


def _uniform(n: int, like: Tensor, generator: Generator | None) -> Tensor:
    return torch.rand(n, generator=generator, dtype=torch.float64, device=like.device)


def _fallen(order: float, omega: float, peak: float, step: Tensor) -> Tensor:
    """phi(peak + step) - phi(peak)."""
    up, down = omega * math.exp(peak) / 2, omega * math.exp(-peak) / 2  # their difference is the order
    return order * step - up * torch.expm1(step) - down * torch.expm1(-step)


def _tangent(order: float, omega: float, peak: float, side: int) -> tuple[float, float]:
    """The point on one side of the peak where phi has fallen by 1, and |phi'| there."""

    def fallen(step: float) -> float:
        return _fallen(order, omega, peak, torch.tensor(side * step, dtype=torch.float64)).item()

    near, far = 0.0, 1.0
    while fallen(far) > -1:
        far *= 2
    for _ in range(60):
        middle = (near + far) / 2
        near, far = (middle, far) if fallen(middle) > -1 else (near, middle)
    point = peak + side * far
    return point, abs(order - omega * math.sinh(point))
