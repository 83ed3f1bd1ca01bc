"""The families that the paper names: Gaussian, Student-t, logistic, power-exponential, generalised hyperbolic."""

import math
from dataclasses import dataclass, fields

import torch
from torch import Generator, Tensor

from sympformer.errors import InputError, unknown_name
from sympformer.flows import checks
from sympformer.flows.elliptic.bessel import log_bessel_k
from sympformer.flows.elliptic.draws import log_gamma_draws, log_gig_draws
from sympformer.flows.elliptic.family import Family


def lengths(normals: Tensor) -> Tensor:
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
        return lengths(normals)


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
        log_G = log_gamma_draws(self.v / 2, normals[:, 0], generator)
        return lengths(normals) * torch.exp((math.log(self.v / 2) - log_G) / 2)


@dataclass(frozen=True)
class Logistic(Family):
    """g(s) ~ exp(-s) / (1 + exp(-s))^2, constants by quadrature; kappa = log 2 in two dimensions.

    R^2 ~ Gamma(d/2, 1), kept with probability (1 + exp(-R^2))^-2, which is at least 1/4.
    """

    def log_shape(self, s: Tensor, d: int) -> Tensor:
        return -s - 2 * torch.log1p(torch.exp(-s))

    def radii(self, normals: Tensor, generator: Generator | None) -> Tensor:
        R = torch.empty_like(normals[:, 0])
        open_ = torch.arange(len(R), device=R.device)
        while n := len(open_):
            log_R2 = log_gamma_draws(normals.shape[1] / 2, R[:n], generator)
            log_u = -torch.empty_like(log_R2).exponential_(generator=generator)
            kept = log_u < -2 * torch.log1p(torch.exp(-log_R2.exp()))
            R[open_[kept]] = torch.exp(log_R2[kept] / 2)
            open_ = open_[~kept]
        return R


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
        return math.lgamma(d / 2) - d / 2 * math.log(math.pi) + math.log(self.beta / 2**a) - math.lgamma(a)

    def kappa(self, d: int) -> float:
        a, b = d / (2 * self.beta), (d + 2) / (2 * self.beta)
        log_kappa = math.log(2) / self.beta + math.lgamma(b) - math.lgamma(a) - math.log(d)
        return torch.tensor(log_kappa, dtype=torch.float64).exp().item()  # inf where math.exp would raise

    def radii(self, normals: Tensor, generator: Generator | None) -> Tensor:
        log_G = log_gamma_draws(normals.shape[1] / (2 * self.beta), normals[:, 0], generator)
        return torch.exp((math.log(2) + log_G) / (2 * self.beta))


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
        if not abs(self.lam) <= 300 or self.omega < 1e-12:
            raise InputError(
                "the generalised hyperbolic law needs lam between -300 and 300 and chi psi of at least 1e-24, got"
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
        log_W = log_gig_draws(self.lam, self.omega, normals[:, 0], generator) + math.log(self.chi / self.psi) / 2
        return lengths(normals) * torch.exp(log_W / 2)

    def _log_k(self, order: float) -> float:
        return log_bessel_k(order, torch.tensor(self.omega, dtype=torch.float64)).item()


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
