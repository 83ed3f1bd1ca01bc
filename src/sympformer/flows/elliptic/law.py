"""The elliptically contoured law E(m, Sigma, g), and what linear attention does to it: closed equations of its moments.

The accelerated linear flow with full visibility moves every x by one linear map: the law stays elliptic with
the same g, and y = P x (the paper's "Preservation of Elliptically Contoured Distributions").
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Generator, Tensor

from sympformer.errors import DivergenceError, InputError
from sympformer.flows import checks
from sympformer.flows.damping import LogLinear, Nesterov, Scalar
from sympformer.flows.elliptic.families import Family
from sympformer.flows.integrators import runge_kutta


@dataclass(frozen=True, eq=False)
class Elliptic:
    """E(m, Sigma, g), the law with the density

        rho(x) = det(Sigma)^(-1/2) g((x - m)' Sigma^-1 (x - m)),

    mean m and covariance kappa Sigma. m: (d,). Sigma: (d, d) symmetric positive definite. Gradients reach both.
    """

    m: Tensor
    Sigma: Tensor
    family: Family

    def __post_init__(self) -> None:
        check_law("m", self.m, "Sigma", self.Sigma)

    @property
    def dim(self) -> int:
        """d."""
        return len(self.m)

    @property
    def covariance(self) -> Tensor:
        """E[(x - m)(x - m)'] = kappa Sigma."""
        return self.family.kappa(self.dim) * self.Sigma

    def distance(self, x: Tensor) -> Tensor:
        """The Mahalanobis distance |L^-1 (x - m)|, L L' = Sigma: (..., d) -> (...)."""
        return self._whitened(x).norm(dim=-1)

    def log_density(self, x: Tensor) -> Tensor:
        """log rho at points (..., d) -> (...)."""
        s = self._whitened(x).square().sum(-1)
        return self.family.log_g(s, self.dim) - torch.linalg.cholesky(self.Sigma).diagonal().log().sum()

    def density(self, x: Tensor) -> Tensor:
        """rho at points (..., d) -> (...)."""
        return self.log_density(x).exp()

    def push_forward(self, M: Tensor, b: Tensor | None = None) -> "Elliptic":
        """The law of M x + b: E(M m + b, M Sigma M', g). M: (d, d) invertible, else the image has no density."""
        checks.same_size(Sigma=self.Sigma, M=checks.matrix("M", M))
        values = torch.linalg.svdvals(M.detach())
        if values[-1] <= self.dim * torch.finfo(M.dtype).eps * values[0]:
            raise InputError(f"M must be invertible, its smallest singular value is {values[-1]:.2g}")
        Sigma = M @ self.Sigma @ M.mT
        m = M @ self.m if b is None else M @ self.m + b
        return Elliptic(m, (Sigma + Sigma.mT) / 2, self.family)

    def sample(self, n: int, generator: Generator | None = None) -> Tensor:
        """n independent points (n, d). The generator lives on m's device."""
        if n < 1:
            raise InputError(f"n must be at least 1, got {n}")
        m = self.m
        normals = torch.randn(n, self.dim, generator=generator, dtype=m.dtype, device=m.device)
        U = normals / torch.linalg.vector_norm(normals, dim=-1, keepdim=True)
        R = self.family.radii(normals, generator).unsqueeze(-1)  # (n, 1)
        return m + (R * U) @ torch.linalg.cholesky(self.Sigma).mT

    def _whitened(self, x: Tensor) -> Tensor:
        """L^-1 (x - m), (..., d)."""
        if x.shape[-1:] != self.m.shape:
            raise InputError(f"x must have shape (..., {self.dim}), got {tuple(x.shape)}")
        L = torch.linalg.cholesky(self.Sigma)
        return torch.linalg.solve_triangular(L, (x - self.m).unsqueeze(-1), upper=False).squeeze(-1)


def check_law(m_name: str, m: Tensor, Sigma_name: str, Sigma: Tensor) -> None:
    """m and Sigma make a law: Sigma positive definite, m finite and of its size."""
    d = len(checks.positive_definite(Sigma_name, Sigma))
    if m.shape != (d,) or m.dtype != Sigma.dtype or m.device != Sigma.device or not m.isfinite().all():
        want = f"finite, of shape ({d},) and of {Sigma_name}'s dtype and device"
        raise InputError(f"{m_name} must be {want}, got {tuple(m.shape)} {m.dtype} {m.device}")


class Moments(NamedTuple):
    """The law E(m, Sigma, g) of the positions and the P of the momenta y = P x, or the slopes of these."""

    m: Tensor  # (..., d)
    Sigma: Tensor  # (..., d, d), symmetric positive definite
    P: Tensor  # (..., d, d), symmetric


class MomentPath(NamedTuple):
    """A solution at S = steps + 1 times. The covariance is kappa Sigma, not Sigma."""

    t: Tensor  # (S,)
    m: Tensor  # (S, d)
    Sigma: Tensor  # (S, d, d)
    P: Tensor  # (S, d, d)


def moment_slopes(moments: Moments, alpha: Scalar, A: Tensor, V: Tensor, kappa: Scalar) -> Moments:
    """The closed equations, for symmetric Sigma and P; they stay symmetric to the last bit.

    C = P (kappa Sigma + m m') A        m' = C m        Sigma' = Sigma C' + C Sigma
    P' = -alpha P - (C' P + P C) + V
    """
    m, Sigma, P = moments
    C = P @ (kappa * Sigma + m.unsqueeze(-1) * m.unsqueeze(-2)) @ A
    dm = (C @ m.unsqueeze(-1)).squeeze(-1)
    return Moments(dm, _plus_transpose(C @ Sigma), -alpha * P - _plus_transpose(P @ C) + V)


def centered_slopes(
    Sigma: Tensor, P: Tensor, alpha: Scalar, A: Tensor, V: Tensor, kappa: Scalar
) -> tuple[Tensor, Tensor]:
    """(Sigma', P') for a law of mean zero, which keeps its mean.

    Sigma' = kappa (Sigma A Sigma P + P Sigma A Sigma)
    P'     = -alpha P - kappa (A Sigma P^2 + P^2 Sigma A) + V
    """
    dSigma = kappa * _plus_transpose(P @ Sigma @ A @ Sigma)
    return dSigma, -alpha * P - kappa * _plus_transpose(P @ P @ Sigma @ A) + V


def solve_moments(
    m0: Tensor,
    Sigma0: Tensor,
    A: Tensor,
    V: Tensor,
    kappa: Scalar = 1.0,
    *,
    steps: int,
    h: Scalar,
    damping: LogLinear | None = None,
    P0: Tensor | None = None,
) -> MomentPath:
    """Follow the closed equations for `steps` classical Runge-Kutta steps of size h.

    m0: (d,). Sigma0, A: (d, d) symmetric positive definite. V, P0: (d, d) symmetric; P0 is zero by default.
    kappa: `family.kappa(d)` of the start's family; 1 is the Gaussian's.
    damping: default Nesterov's 3/t from t0 = 1, as in `simulate`.
    Raises DivergenceError when the moments leave the finite numbers or Sigma its cone.
    """
    check_law("m0", m0, "Sigma0", Sigma0)
    P0 = torch.zeros_like(Sigma0) if P0 is None else checks.symmetric("P0", P0)
    checks.same_size(Sigma0=Sigma0, A=checks.positive_definite("A", A), V=checks.symmetric("V", V), P0=P0)
    checks.positive("kappa", kappa)
    size = torch.as_tensor(h, dtype=torch.float64)
    checks.positive("h", h)
    if steps < 1 or size.ndim > 0:
        raise InputError(f"steps must be at least 1 and h one number, got steps = {steps} and h = {h}")
    damping = Nesterov() if damping is None else damping

    t, moments = torch.as_tensor(damping.t0, dtype=torch.float64), Moments(m0, Sigma0, P0)
    saved = [(t, *moments)]
    for k in range(1, steps + 1):
        moments, t = _rk4(moments, t.to(m0), size.to(m0), damping, A, V, kappa), t + size
        if not _sound(moments):
            raise DivergenceError(
                f"the moments left the finite numbers or Sigma its cone at step {k} (t = {t:.4g}): use a step"
                f" smaller than h = {size:.4g}, more damping, or a V with smaller positive eigenvalues"
            )
        saved.append((t, *moments))
    return MomentPath(*(torch.stack(parts) for parts in zip(*saved, strict=True)))


def _rk4(moments: Moments, t: Tensor, h: Tensor, damping: LogLinear, A: Tensor, V: Tensor, kappa: Scalar) -> Moments:
    def slopes(share: float, along: Moments | None) -> Moments:
        there = moments if along is None else _moved(moments, share * h, along)
        return moment_slopes(there, damping.alpha(t + share * h), A, V, kappa)

    return _moved(moments, h, Moments(*runge_kutta(slopes)))


def _moved(moments: Moments, h: Tensor, slope: Moments) -> Moments:
    return Moments(*(value + h * rate for value, rate in zip(moments, slope, strict=True)))


def _plus_transpose(M: Tensor) -> Tensor:
    return M + M.mT


def _sound(moments: Moments) -> bool:
    """All finite, and Sigma = G Sigma0 G' positive definite up to rounding, as along the exact flow."""
    Sigma = moments.Sigma.detach()
    slack = math.sqrt(torch.finfo(Sigma.dtype).eps) * Sigma.abs().max()
    finite = all(bool(torch.isfinite(part).all()) for part in moments)
    return finite and bool(torch.linalg.eigvalsh(Sigma)[0] >= -slack)
