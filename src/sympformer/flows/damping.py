"""Damping schedules alpha(t) and the exact factors that the exponential integrators need.

    alpha(t) = r/t + m             eta(t) = integral_{t0}^t alpha = r log(t/t0) + m (t - t0)
    sigma(t, h) = exp(-(eta(t+h) - eta(t)))
    w(t, h) = integral_t^{t+h} exp(-(eta(t+h) - eta(s))) ds

r = 0 is constant damping, (r = 3, m = 0) is Nesterov's. Coefficients may be tensors; gradients reach them.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

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
        if not self.singular:
            return _constant_weight(self.m, t, h)
        inputs = [t, *(torch.as_tensor(value, dtype=t.dtype, device=t.device) for value in (h, self.r, self.m))]
        if torch.is_grad_enabled() and any(value.requires_grad for value in inputs):
            return _LogLinearWeight.apply(*inputs)
        return log_linear_weight(*inputs)

    def _between(self, t: Tensor, h: Scalar) -> Tensor:
        """eta(t + h) - eta(t), accurate for small h."""
        linear = self.m * h
        return self.r * torch.log1p(h / t) + linear if self.singular else torch.zeros_like(t) + linear

    def _time(self, t: Scalar) -> Tensor:
        return t if isinstance(t, Tensor) else torch.as_tensor(t, dtype=torch.float64)


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


def log_linear_weight(t: Tensor, h: Tensor, r: Tensor, m: Tensor) -> Tensor:
    """w = integral_0^h (1 - u/T)^r exp(-m u) du with T = t + h, by Gauss-Legendre quadrature."""
    return _quadrature(t, h, r, m)[0].sum(-1)


def _quadrature(t: Tensor, h: Tensor, r: Tensor, m: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Terms whose sum is w, and the nodes q and u they belong to, each (..., NODES).

    With u = T (1 - exp(-q)) the integrand becomes T exp(-(r+1) q - m u(q)), entire in q, so that a t close to zero
    (an end-point singularity in u) costs nothing. In u the exponent is convex with slope at least m + r/T, in q it
    grows at least like (r+1) q: both give a rigorous point beyond which nothing is left to add.
    """
    end, above = t + h, r + 1
    length = torch.log1p(h / t)  # q at the end of the step: log(T/t)
    share = CUT / (m * end + r)  # the cut in u, as a part of T
    far = share >= 0.999  # it lies beyond (or at) the pole: only the cut in q counts
    cut_q = torch.where(far, length, -torch.log1p(-torch.where(far, 0.5, share)))
    upper = torch.minimum(torch.minimum(length, cut_q), CUT / above)
    nodes, weights = _gauss_legendre(t.dtype, t.device)
    q = upper.unsqueeze(-1) * nodes
    u = -torch.expm1(-q) * end.unsqueeze(-1)
    terms = torch.exp(-(above.unsqueeze(-1) * q + m.unsqueeze(-1) * u)) * weights
    return terms * (upper * end).unsqueeze(-1), q, u


class _LogLinearWeight(torch.autograd.Function):
    """`log_linear_weight` with its gradient written out: autograd would replay some eighty tiny operations a layer.

    dw/dh = 1 - alpha(T) w       dw/dt = dw/dh - sigma       (w solves that equation from w = 0 on)
    dw/dr = integral log(1 - u/T) f du = -integral q f du       dw/dm = -integral u f du
    """

    @staticmethod
    def forward(ctx: Any, t: Tensor, h: Tensor, r: Tensor, m: Tensor) -> Tensor:
        terms, q, u = _quadrature(t, h, r, m)
        weight, damping = terms.sum(-1), LogLinear(r, m)
        along_h = 1 - damping.alpha(t + h) * weight
        along_t = along_h - damping.sigma(t, h)
        ctx.save_for_backward(along_t, along_h, -(terms * q).sum(-1), -(terms * u).sum(-1))
        ctx.shapes = [value.shape for value in (t, h, r, m)]
        return weight

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        slopes = zip(ctx.saved_tensors, ctx.shapes, ctx.needs_input_grad, strict=True)
        return tuple((g * slope).sum_to_size(shape) if needed else None for slope, shape, needed in slopes)


@lru_cache(maxsize=16)
@torch.inference_mode(False)  # they are kept, and may be needed for gradients later
def _gauss_legendre(dtype: torch.dtype, device: torch.device) -> tuple[Tensor, Tensor]:
    """Nodes and weights on [0, 1]: eigenvalues of the Jacobi matrix (Golub and Welsch)."""
    k = torch.arange(1, NODES, dtype=torch.float64)
    off = k / torch.sqrt(4 * k * k - 1)
    nodes, vectors = torch.linalg.eigh(torch.diag(off, 1) + torch.diag(off, -1))
    return ((nodes + 1) / 2).to(dtype).to(device), (vectors[0] ** 2).to(dtype).to(device)
