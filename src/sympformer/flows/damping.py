"""Damping schedules alpha(t) and the exact factors that the exponential integrators need.

    alpha(t) = r/t + m             eta(t) = integral_{t0}^t alpha = r log(t/t0) + m (t - t0)
    sigma(t, h) = exp(-(eta(t+h) - eta(t)))
    w(t, h) = integral_t^{t+h} exp(-(eta(t+h) - eta(s))) ds

r = 0 is constant damping, (r = 3, m = 0) is Nesterov's. Coefficients may be tensors; gradients reach them.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

import torch
from torch import Tensor

from sympformer.errors import InputError
from sympformer.flows import checks

Scalar = float | Tensor

# exp(-CUT) is below the rounding of float64 relative to the integrals it is cut from
CUT = 45.0
NODES = 64


class Damping(Protocol):
    """What an integrator asks of a schedule."""

    def alpha(self, t: Scalar) -> Scalar:
        """The damping rate."""

    def sigma(self, t: Scalar, h: Scalar) -> Scalar:
        """What a free momentum keeps over the step."""

    def weight(self, t: Scalar, h: Scalar) -> Scalar:
        """What a constant force adds over the step."""


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
        t = self._time(t)
        return self.r / t + self.m if self.singular else torch.zeros_like(t) + self.m

    def eta(self, t: Scalar) -> Tensor:
        """The accumulated damping, zero at t0."""
        return self._between(torch.as_tensor(self.t0, dtype=torch.float64), self._time(t) - self.t0)

    def sigma(self, t: Scalar, h: Scalar) -> Tensor:
        """exp(-(eta(t+h) - eta(t))) = (t/(t+h))^r exp(-m h): what a free momentum keeps over the step."""
        return torch.exp(-self._between(self._time(t), h))

    def weight(self, t: Scalar, h: Scalar) -> Tensor:
        """w(t, h): what a constant force adds to the momentum over the step, damping included."""
        t = self._time(t)
        return _log_linear_weight(t, t + h, self.r, self.m, h) if self.singular else _constant_weight(self.m, t, h)

    def _between(self, t: Tensor, h: Scalar) -> Tensor:
        """eta(t + h) - eta(t), accurate for small h."""
        linear = self.m * h
        return self.r * torch.log1p(h / t) + linear if self.singular else torch.zeros_like(t) + linear

    def _time(self, t: Scalar) -> Tensor:
        return t if isinstance(t, Tensor) else torch.as_tensor(t, dtype=torch.float64)


@dataclass(frozen=True)
class OneStep:
    """A schedule at one step (t, h), evaluated once and kept as numbers: for a layer that takes the same step again."""

    alpha_t: float
    sigma_th: float
    weight_th: float

    @classmethod
    def of(cls, damping: LogLinear, t: float, h: float) -> "OneStep":
        """The factors of `damping` for the step from t to t + h."""
        return cls(float(damping.alpha(t)), float(damping.sigma(t, h)), float(damping.weight(t, h)))

    def alpha(self, t: Scalar) -> float:
        return self.alpha_t

    def sigma(self, t: Scalar, h: Scalar) -> float:
        return self.sigma_th

    def weight(self, t: Scalar, h: Scalar) -> float:
        return self.weight_th


def Constant(m: Scalar, t0: float = 0.0) -> LogLinear:
    """alpha(t) = m."""
    return LogLinear(r=0.0, m=m, t0=t0)


def Nesterov(r: Scalar = 3.0, t0: float = 1.0) -> LogLinear:
    """alpha(t) = r/t."""
    return LogLinear(r=r, m=0.0, t0=t0)


def _constant_weight(m: Scalar, t: Tensor, h: Scalar) -> Tensor:
    """(1 - exp(-m h))/m, and h where m h is too small to tell."""
    mh = torch.zeros_like(t) + m * h
    tiny = mh.abs() < 1e-12
    safe = torch.where(tiny, torch.ones_like(mh), mh)
    return h * torch.where(tiny, 1 - mh / 2, -torch.expm1(-safe) / safe)


def _log_linear_weight(t: Tensor, end: Tensor, r: Scalar, m: Scalar, h: Scalar) -> Tensor:
    """w = integral_0^h (1 - u/T)^r exp(-m u) du with T = t + h, by Gauss-Legendre quadrature.

    With u = T (1 - exp(-q)) the integrand becomes T exp(-(r+1) q - m u(q)), entire in q, so that a t close to zero
    (an end-point singularity in u) costs nothing. In u the exponent is convex with slope at least m + r/T, in q it
    grows at least like (r+1) q: both give a rigorous point beyond which nothing is left to add.
    """
    length = torch.as_tensor(torch.log1p(h / t))  # q at the end of the step: log(T/t)
    cut_u = CUT / (m + r / end)  # in u
    far = cut_u >= 0.999 * end  # the cut in u lies beyond (or at) the pole: only the cut in q counts
    cut_q = torch.where(far, length, -torch.log1p(-torch.where(far, 0.5 * end, cut_u) / end))
    upper = torch.minimum(length, torch.minimum(cut_q, torch.as_tensor(CUT / (1 + r), dtype=t.dtype)))
    nodes, weights = _gauss_legendre(t.dtype, t.device)
    q = upper.unsqueeze(-1) * nodes  # (..., NODES)
    u = -torch.expm1(-q) * end.unsqueeze(-1)
    exponent = _column(r + 1.0) * q + _column(m) * u
    return upper * end * (torch.exp(-exponent) * weights).sum(-1)


def _column(value: Scalar) -> Scalar:
    return value.unsqueeze(-1) if isinstance(value, Tensor) else value


@lru_cache(maxsize=16)
def _gauss_legendre(dtype: torch.dtype, device: torch.device) -> tuple[Tensor, Tensor]:
    """Nodes and weights on [0, 1]: eigenvalues of the Jacobi matrix (Golub and Welsch)."""
    k = torch.arange(1, NODES, dtype=torch.float64)
    off = k / torch.sqrt(4 * k * k - 1)
    nodes, vectors = torch.linalg.eigh(torch.diag(off, 1) + torch.diag(off, -1))
    return ((nodes + 1) / 2).to(dtype).to(device), (vectors[0] ** 2).to(dtype).to(device)
