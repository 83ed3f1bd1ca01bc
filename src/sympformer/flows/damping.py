"""Damping schedules alpha(t) and the exact factors that the exponential integrators need.

    alpha(t) = r/t + m             eta(t) = integral_{t0}^t alpha = r log(t/t0) + m (t - t0)
    sigma(t, h) = exp(-(eta(t+h) - eta(t)))
    w(t, h) = integral_t^{t+h} exp(-(eta(t+h) - eta(s))) ds

r = 0 is constant damping, (r = 3, m = 0) is Nesterov's. Coefficients, times and steps may be numbers or tensors, one
entry a layer say; gradients reach them all.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from sympformer.errors import InputError
from sympformer.flows import checks

Scalar = float | Tensor

CUT = 45.0  # exp(-CUT) is below the rounding of float64 relative to the integrals it is cut from
NODES = 64
# Gauss-Legendre nodes and weights on [0, 1], made where no compiler looks on
GAUSS = torch.tensor((np.polynomial.legendre.leggauss(NODES) + np.array([[1.0], [0.0]])) / 2, device="cpu")


@dataclass(frozen=True, eq=False)
class LogLinear:
    """alpha(t) = r/t + m for t >= t0. With r > 0 the clock must start above zero."""

    r: Scalar = 3.0
    m: Scalar = 0.0
    t0: float = 1.0

    def __post_init__(self) -> None:
        # A tensor is a learner's affair (softplus keeps it positive); reading its value here would stall a GPU.
        for name, value in (("r", self.r), ("m", self.m)):
            if not isinstance(value, Tensor):
                checks.not_negative(name, value)
        if self.singular and self.t0 <= 0:
            raise InputError(f"t0 must be positive when r > 0 because alpha(t) = r/t + m, got t0 = {self.t0}")

    @property
    def singular(self) -> bool:
        """Whether alpha has a pole at t = 0 (a tensor r may be learned away from zero, so it always counts)."""
        return isinstance(self.r, Tensor) or self.r > 0

    def alpha(self, t: Scalar) -> Tensor:
        """The damping rate r/t + m."""
        t = _time(t)
        return self.r / t + self.m if self.singular else torch.zeros_like(t) + self.m

    def eta(self, t: Scalar) -> Tensor:
        """The accumulated damping, zero at t0."""
        return self._between(torch.as_tensor(self.t0, dtype=torch.float64), _time(t) - self.t0)

    def sigma(self, t: Scalar, h: Scalar) -> Tensor:
        """exp(-(eta(t+h) - eta(t))) = (t/(t+h))^r exp(-m h): what a free momentum keeps over the step."""
        return torch.exp(-self._between(_time(t), h))

    def weight(self, t: Scalar, h: Scalar) -> Tensor:
        """w(t, h): what a constant force adds to the momentum over the step, damping included."""
        t = _time(t)
        if not self.singular:
            return _constant_weight(self.m, t, h)
        return _log_linear_weight(t, *(torch.as_tensor(v, dtype=t.dtype, device=t.device) for v in (h, self.r, self.m)))

    def _between(self, t: Tensor, h: Scalar) -> Tensor:
        """eta(t + h) - eta(t), accurate for small h."""
        linear = self.m * h
        return self.r * torch.log1p(h / t) + linear if self.singular else torch.zeros_like(t) + linear


def Constant(m: Scalar, t0: float = 0.0) -> LogLinear:
    """alpha(t) = m."""
    return LogLinear(r=0.0, m=m, t0=t0)


def Nesterov(r: Scalar = 3.0, t0: float = 1.0) -> LogLinear:
    """alpha(t) = r/t."""
    return LogLinear(r=r, m=0.0, t0=t0)


def _time(t: Scalar) -> Tensor:
    return t if isinstance(t, Tensor) else torch.as_tensor(t, dtype=torch.float64)


def _constant_weight(m: Scalar, t: Tensor, h: Scalar) -> Tensor:
    """(1 - exp(-m h))/m, and h where m h is too small to tell."""
    mh = torch.zeros_like(t) + m * h
    tiny = mh.abs() < 1e-12
    safe = torch.where(tiny, torch.ones_like(mh), mh)
    return h * torch.where(tiny, 1 - mh / 2, -torch.expm1(-safe) / safe)


def _log_linear_weight(t: Tensor, h: Tensor, r: Tensor, m: Tensor) -> Tensor:
    """w = integral_0^h (1 - u/T)^r exp(-m u) du with T = t + h, by Gauss-Legendre quadrature.

    With u = T (1 - exp(-q)) the integrand becomes T exp(-(r+1) q - m u(q)), entire in q, so that a t close to zero
    (an end-point singularity in u) costs nothing. In u the exponent is convex with slope at least m + r/T, in q it
    grows at least like (r+1) q: both give a rigorous point beyond which nothing is left to add, or to differentiate.
    """
    end, above = t + h, r + 1
    with torch.no_grad():
        share = CUT / (m * end + r)  # the cut in u, as a part of T; at the pole and beyond only the cut in q counts
        cut = torch.minimum(torch.where(share < 0.999, -torch.log1p(-share), torch.inf), CUT / above)
    upper = torch.minimum(torch.log1p(h / t), cut)  # q at the end of the step is log(T/t)
    nodes, weights = GAUSS.to(dtype=t.dtype, device=t.device)
    q = upper.unsqueeze(-1) * nodes  # (..., NODES)
    u = -torch.expm1(-q) * end.unsqueeze(-1)
    f = torch.exp(-(above.unsqueeze(-1) * q + m.unsqueeze(-1) * u))
    return upper * end * (f @ weights)
