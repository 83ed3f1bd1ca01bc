"""The families that the paper names: Gaussian, Student-t, logistic, power-exponential, generalised hyperbolic."""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, fields
from functools import cache

import numpy as np
import torch
from torch import Generator, Tensor

from sympformer.errors import InputError, unknown_name
from sympformer.flows import checks
from sympformer.flows.elliptic.radial import Conditions, conditions, log_integral, log_sphere


class Family(ABC):
    """All E(m, Sigma, g) of one g: x = m + L R U, L L' = Sigma, U uniform on the sphere, R >= 0 set by g.

    A family states the shape of g and how R is drawn. Its constants follow by quadrature where it has no closed form.
    """

    @abstractmethod
    def log_shape(self, s: Tensor, d: int) -> Tensor:
        """log g(s) up to a constant, s >= 0."""

    @abstractmethod
    def radii(self, normals: Tensor, generator: Generator | None) -> Tensor:
        """n independent R, (n,). They may use the lengths of the normals (n, d), but not their directions."""

    def log_constant(self, d: int) -> float:
        """log g(s) - log_shape(s): what condition i) asks for."""
        return log_sphere(d) - _log_shape_integral(self, d / 2, d)

    def log_g(self, s: Tensor, d: int) -> Tensor:
        """log g(s) in d dimensions, normalised."""
        return self.log_shape(s, d) + self.log_constant(d)

    def kappa(self, d: int) -> float:
        """1/d integral |y|^2 g(|y|^2) dy = E[R^2]/d: the covariance in d dimensions is kappa Sigma."""
        second = _log_shape_integral(self, d / 2 + 1, d) + self.log_constant(d)
        return math.exp(second - log_sphere(d)) / d

    def conditions(self, d: int) -> Conditions:
        """The paper's conditions i) to iii) on g in d dimensions, by quadrature."""
        return conditions(lambda s: self.log_g(s, d), d)


@cache
def _log_shape_integral(family: Family, power: float, d: int) -> float:
    """log integral s^(power - 1) shape(s) ds; kept, because every density asks for it."""
    return log_integral(lambda s: family.log_shape(s, d), power)


def _draws(like: Tensor, generator: Generator | None) -> np.random.Generator:
    """numpy's generator, begun from torch's: torch has no seeded gamma or inverse Gaussian variables."""
    return np.random.default_rng(int(torch.randint(2**63 - 1, (), generator=generator, device=like.device)))


def _log_gamma(a: float, n: int, draws: np.random.Generator) -> np.ndarray:
    """log G, G ~ Gamma(a, 1). Below 1 G_a = G_{a+1} u^(1/a), in logarithms so that none underflows."""
    if a >= 1:
        return np.log(draws.standard_gamma(a, n))
    return np.log(draws.standard_gamma(a + 1, n)) - draws.standard_exponential(n) / a


def _lengths(normals: Tensor) -> Tensor:
    """|Z| of every row."""
    return torch.linalg.vector_norm(normals, dim=-1)


@dataclass(frozen=True)
class Gaussian(Family):
    """g(s) = (2 pi)^(-d/2) exp(-s/2), kappa = 1."""

    def log_shape(self, s: Tensor, d: int) -> Tensor:
        return -s / 2

    def log_constant(self, d: int) -> float:
        return -d / 2 * math.log(2 * math.pi)

    def kappa(self, d: int) -> float:
        return 1.0

    def radii(self, normals: Tensor, generator: Generator | None) -> Tensor:
        return _lengths(normals)


@dataclass(frozen=True)
class StudentT(Family):
    """g(s) = Gamma((v+d)/2)/Gamma(v/2) (v pi)^(-d/2) (1 + s/v)^(-(v+d)/2) with v > 2, kappa = v/(v-2).

    R = |Z| / sqrt(2 G/v), G ~ Gamma(v/2, 1)
    """

    v: float

    def __post_init__(self) -> None:
        if not 2 < self.v < math.inf:
            raise InputError(f"v must be finite, and above 2 for a finite covariance, got v = {self.v}")

    def log_shape(self, s: Tensor, d: int) -> Tensor:
        return -(self.v + d) / 2 * torch.log1p(s / self.v)

    def log_constant(self, d: int) -> float:
        if self.v > 1e6:  # the difference of two large logarithms would be rounding
            return super().log_constant(d)
        return math.lgamma((self.v + d) / 2) - math.lgamma(self.v / 2) - d / 2 * math.log(self.v * math.pi)

    def kappa(self, d: int) -> float:
        return self.v / (self.v - 2)

    def radii(self, normals: Tensor, generator: Generator | None) -> Tensor:
        log_G = _log_gamma(self.v / 2, len(normals), _draws(normals, generator))
        return _lengths(normals) * torch.from_numpy(np.exp((math.log(self.v / 2) - log_G) / 2)).to(normals)


@dataclass(frozen=True)
class Logistic(Family):
    """g(s) ~ exp(-s) / (1 + exp(-s))^2, constants by quadrature; kappa = log 2 in two dimensions.

    R^2 ~ Gamma(d/2, 1), kept with probability (1 + exp(-R^2))^-2, which is at least 1/4.
    """

    def log_shape(self, s: Tensor, d: int) -> Tensor:
        return -s - 2 * torch.log1p(torch.exp(-s))

    def radii(self, normals: Tensor, generator: Generator | None) -> Tensor:
        (n, d), draws = normals.shape, _draws(normals, generator)
        kept = np.empty(0)
        while len(kept) < n:
            R2 = np.exp(_log_gamma(d / 2, 4 * n, draws))
            kept = np.append(kept, R2[draws.random(4 * n) < (1 + np.exp(-R2)) ** -2])
        return torch.from_numpy(np.sqrt(kept[:n])).to(normals)


@dataclass(frozen=True)
class PowerExponential(Family):
    """g(s) ~ exp(-s^beta / 2): Gaussian at beta = 1, Laplace tails at 1/2, a uniform ball towards infinity.

    R = (2 G)^(1/(2 beta)), G ~ Gamma(d/(2 beta), 1)
    kappa = 2^(1/beta) Gamma((d+2)/(2 beta)) / (d Gamma(d/(2 beta)))
    """

    beta: float

    def __post_init__(self) -> None:
        checks.positive("beta", self.beta)

    def log_shape(self, s: Tensor, d: int) -> Tensor:
        return -(s**self.beta) / 2

    def log_constant(self, d: int) -> float:
        a = d / (2 * self.beta)  # the integral of condition i) is 2^a Gamma(a) / beta
        return log_sphere(d) + math.log(self.beta / 2**a) - math.lgamma(a)

    def kappa(self, d: int) -> float:
        a, b = d / (2 * self.beta), (d + 2) / (2 * self.beta)
        log_kappa = math.log(2) / self.beta + math.lgamma(b) - math.lgamma(a) - math.log(d)
        return torch.tensor(log_kappa, dtype=torch.float64).exp().item()  # inf where math.exp would raise

    def radii(self, normals: Tensor, generator: Generator | None) -> Tensor:
        n, d = normals.shape
        log_G = _log_gamma(d / (2 * self.beta), n, _draws(normals, generator))
        return torch.from_numpy(np.exp((math.log(2) + log_G) / (2 * self.beta))).to(normals)


@dataclass(frozen=True)
class GeneralisedHyperbolic(Family):
    """The symmetric law: R = sqrt(W) |Z|, W generalised inverse Gaussian, ~ w^(lam-1) exp(-(chi/w + psi w)/2).

    g(s) ~ K_{lam - d/2}(q) q^(lam - d/2),  q = sqrt(psi (chi + s))
    kappa = E[W] = sqrt(chi/psi) K_{lam+1}(omega) / K_lam(omega),  omega = sqrt(chi psi)
    """

    lam: float
    chi: float
    psi: float

    def __post_init__(self) -> None:
        checks.positive("chi", self.chi)
        checks.positive("psi", self.psi)
        if not abs(self.lam) <= 300 or self.omega < 1e-6:  # nearer to 0 scipy's draws leave the numbers at lam = 1
            raise InputError(
                "the generalised hyperbolic law needs lam between -300 and 300 and chi psi of at least 1e-12, got"
                f" lam = {self.lam}, chi = {self.chi}, psi = {self.psi}"
            )

    @property
    def omega(self) -> float:
        """sqrt(chi psi): what is left of both when W is measured in units of sqrt(chi/psi)."""
        return math.sqrt(self.chi) * math.sqrt(self.psi)

    def log_shape(self, s: Tensor, d: int) -> Tensor:
        order, q = self.lam - d / 2, torch.sqrt(self.psi * (self.chi + s))
        return log_bessel_k(order, q) + order * torch.log(q)

    def log_constant(self, d: int) -> float:
        scale = self.lam / 2 * math.log(self.psi / self.chi) - (self.lam - d / 2) * math.log(self.psi)
        return scale - self._log_k(self.lam) - d / 2 * math.log(2 * math.pi)

    def kappa(self, d: int) -> float:
        return math.sqrt(self.chi / self.psi) * math.exp(self._log_k(self.lam + 1) - self._log_k(self.lam))

    def radii(self, normals: Tensor, generator: Generator | None) -> Tensor:
        from scipy.stats import geninvgauss  # half a second to import, for this family alone

        W = geninvgauss.rvs(self.lam, self.omega, size=len(normals), random_state=_draws(normals, generator))
        return _lengths(normals) * torch.from_numpy(np.sqrt(W * math.sqrt(self.chi / self.psi))).to(normals)

    def _log_k(self, order: float) -> float:
        return log_bessel_k(order, torch.tensor(self.omega, dtype=torch.float64)).item()


def log_bessel_k(order: float, z: Tensor) -> Tensor:
    """log K_order(z) for z > 0, from K_v(z) = integral_0^inf exp(-z cosh t) cosh(v t) dt.

    The integrand is even, entire, and falls double-exponentially: the trapezoidal rule converges faster than any
    power of its step. In float64 to 1e-12 or better for 1e-12 <= z and orders up to 300, where scipy's `kve` overflows
    (order 50 at z = 1e-6, 150 at z = 1). Gradients reach z.
    """
    v, z64 = abs(order), z.double().unsqueeze(-1)
    t, weight = _bessel_nodes(v, z64.detach())
    log_cosh = v * t + torch.log1p(torch.exp(-2 * v * t))  # log 2 cosh(v t)
    return torch.logsumexp(log_cosh - z64 * torch.cosh(t) + torch.log(weight / 2), -1).to(z.dtype)


def _bessel_nodes(v: float, z: Tensor, nodes: int = 160, drop: float = 40.0) -> tuple[Tensor, Tensor]:
    """Nodes and weights (..., nodes) where v t - z cosh t is within `drop` of its peak at p = asinh(v/z).

    exp(-drop) is below the rounding of float64 relative to the peak. With c = sqrt(z^2 + v^2) that function lies below
    the peak by at least c (cosh u - 1) at p + u, and by at least v w^2/(2 + w) at p - w: both ends in closed form.
    """
    peak, c, k = torch.asinh(v / z), torch.hypot(z, torch.full_like(z, v)), drop / max(v, 1e-3)
    upper = peak + 2 * torch.asinh(torch.sqrt(drop / (2 * c)))  # acosh(1 + drop/c), for every c
    lower = (peak - (k + (k * k + 8 * k) ** 0.5) / 2).clamp_min(0)
    share = torch.linspace(0, 1, nodes, dtype=z.dtype, device=z.device)
    weight = ((upper - lower) / (nodes - 1)).expand(*z.shape[:-1], nodes).clone()
    weight[..., 0] /= 2  # at t = 0 the even integrand counts half; elsewhere the first node is negligible
    return lower + (upper - lower) * share, weight


FAMILIES: dict[str, type[Family]] = {
    "gaussian": Gaussian,
    "student_t": StudentT,
    "logistic": Logistic,
    "power_exponential": PowerExponential,
    "generalised_hyperbolic": GeneralisedHyperbolic,
}


def get_family(name: str, **parameters: float) -> Family:
    """The family of that name: get_family("student_t", v=10.0)."""
    if name not in FAMILIES:
        raise unknown_name("family", name, FAMILIES)
    wanted = sorted(field.name for field in fields(FAMILIES[name]))  # type: ignore[arg-type]
    if sorted(parameters) != wanted:
        raise InputError(f"family {name!r} takes the parameters {wanted}, got {sorted(parameters)}")
    return FAMILIES[name](**parameters)
