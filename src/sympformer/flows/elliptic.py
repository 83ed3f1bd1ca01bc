"""Elliptically contoured laws under linear attention: the closed equations of their moments, and samplers.

x ~ E(m, Sigma, g) has density det(Sigma)^(-1/2) g((x - m)' Sigma^-1 (x - m)), mean m, covariance kappa Sigma.
The accelerated linear flow with full visibility moves every x by one linear map: the law stays elliptic with
the same g, and y = P x (the paper's "Preservation of Elliptically Contoured Distributions").
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, fields
from typing import NamedTuple

import torch
from torch import Generator, Tensor

from sympformer.errors import DivergenceError, InputError, unknown_name
from sympformer.flows import checks
from sympformer.flows.damping import LogLinear, Nesterov, Scalar


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
    _check_law("m0", m0, "Sigma0", Sigma0)
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
    def slopes(share: float, slope: Moments) -> Moments:
        return moment_slopes(_moved(moments, share * h, slope), damping.alpha(t + share * h), A, V, kappa)

    k1 = moment_slopes(moments, damping.alpha(t), A, V, kappa)
    k2 = slopes(0.5, k1)
    k3 = slopes(0.5, k2)
    k4 = slopes(1.0, k3)
    mean = Moments(*((a + 2 * b + 2 * c + d) / 6 for a, b, c, d in zip(k1, k2, k3, k4, strict=True)))
    return _moved(moments, h, mean)


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


def _check_law(m_name: str, m: Tensor, Sigma_name: str, Sigma: Tensor) -> None:
    d = len(checks.positive_definite(Sigma_name, Sigma))
    if m.shape != (d,) or m.dtype != Sigma.dtype or m.device != Sigma.device or not m.isfinite().all():
        want = f"finite, of shape ({d},) and of {Sigma_name}'s dtype and device"
        raise InputError(f"{m_name} must be {want}, got {tuple(m.shape)} {m.dtype} {m.device}")


class Family(ABC):
    """All E(m, Sigma, g) of one g: x = m + L R U, L L' = Sigma, U uniform on the sphere, R >= 0 set by g."""

    @abstractmethod
    def kappa(self, d: int) -> float:
        """E[R^2]/d: the covariance of E(m, Sigma, g) in d dimensions is kappa Sigma."""

    @abstractmethod
    def _radius(self, normals: Tensor, generator: Generator | None) -> Tensor:
        """n independent R, (n,). They may use the lengths of the normals (n, d), but not their directions."""

    def sample(self, n: int, m: Tensor, Sigma: Tensor, generator: Generator | None = None) -> Tensor:
        """n independent points (n, d); gradients reach m and Sigma. The generator lives on their device."""
        _check_law("m", m, "Sigma", Sigma)
        if n < 1:
            raise InputError(f"n must be at least 1, got {n}")
        normals = torch.randn(n, len(m), generator=generator, dtype=m.dtype, device=m.device)
        U = normals / torch.linalg.vector_norm(normals, dim=-1, keepdim=True)
        R = self._radius(normals, generator).unsqueeze(-1)  # (n, 1)
        return m + (R * U) @ torch.linalg.cholesky(Sigma).mT


@dataclass(frozen=True)
class Gaussian(Family):
    """g(s) ~ exp(-s/2), kappa = 1."""

    def kappa(self, d: int) -> float:
        return 1.0

    def _radius(self, normals: Tensor, generator: Generator | None) -> Tensor:
        return torch.linalg.vector_norm(normals, dim=-1)


@dataclass(frozen=True)
class StudentT(Family):
    """g(s) ~ (1 + s/v)^(-(v+d)/2) with v > 2, kappa = v/(v-2). R = |Z| / sqrt(2 G/v), G ~ Gamma(v/2, 1)."""

    v: float

    def __post_init__(self) -> None:
        if not 2 < self.v < math.inf:
            raise InputError(f"v must be finite, and above 2 for a finite covariance, got v = {self.v}")

    def kappa(self, d: int) -> float:
        return self.v / (self.v - 2)

    def _radius(self, normals: Tensor, generator: Generator | None) -> Tensor:
        log_G = _log_gamma_draws(self.v / 2, normals[:, 0], generator)
        return torch.linalg.vector_norm(normals, dim=-1) * torch.exp((math.log(self.v / 2) - log_G) / 2)


@dataclass(frozen=True)
class PowerExponential(Family):
    """g(s) ~ exp(-s^beta / 2): Gaussian at beta = 1, Laplace tails at 1/2, a uniform ball towards infinity.

    R = (2 G)^(1/(2 beta)), G ~ Gamma(d/(2 beta), 1)
    kappa = 2^(1/beta) Gamma((d+2)/(2 beta)) / (d Gamma(d/(2 beta)))
    """

    beta: float

    def __post_init__(self) -> None:
        checks.positive("beta", self.beta)

    def kappa(self, d: int) -> float:
        a, b = d / (2 * self.beta), (d + 2) / (2 * self.beta)
        log_kappa = math.log(2) / self.beta + math.lgamma(b) - math.lgamma(a) - math.log(d)
        return torch.tensor(log_kappa, dtype=torch.float64).exp().item()  # inf where math.exp would raise

    def _radius(self, normals: Tensor, generator: Generator | None) -> Tensor:
        log_G = _log_gamma_draws(normals.shape[1] / (2 * self.beta), normals[:, 0], generator)
        return torch.exp((math.log(2) + log_G) / (2 * self.beta))


def _log_gamma_draws(a: float, like: Tensor, generator: Generator | None) -> Tensor:
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


FAMILIES: dict[str, type[Family]] = {
    "gaussian": Gaussian,
    "student_t": StudentT,
    "power_exponential": PowerExponential,
}


def get_family(name: str, **parameters: float) -> Family:
    """The family of that name: get_family("student_t", v=10.0)."""
    if name not in FAMILIES:
        raise unknown_name("family", name, FAMILIES)
    wanted = [field.name for field in fields(FAMILIES[name])]  # type: ignore[arg-type]
    if sorted(parameters) != wanted:
        raise InputError(f"family {name!r} takes the parameters {wanted}, got {sorted(parameters)}")
    return FAMILIES[name](**parameters)
