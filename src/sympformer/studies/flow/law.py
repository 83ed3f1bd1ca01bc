"""Tokens that start from an elliptic law, beside the equations of the law's moments. No drawing here.

Under linear attention with full visibility every token moves by one linear map, so the law keeps its shape, and its
mean and covariance obey closed equations: exactly for the tokens' own moments, up to sampling error for the law's.
"""

from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Generator, Tensor

from sympformer.errors import InputError, unknown_name
from sympformer.flows import LinearAttention, LogLinear, Path, System, simulate
from sympformer.flows.elliptic import Elliptic, Family, MomentPath, get_family, solve_moments
from sympformer.studies.flow.systems import rotation

StartName = Literal["gaussian", "student-t", "logistic", "power-exponential", "generalised-hyperbolic"]

# option -> the start it belongs to, the family's name for it, its value unless given
PARAMETERS: dict[str, tuple[str, str, float]] = {
    "nu": ("student-t", "v", 5.0),
    "beta": ("power-exponential", "beta", 0.5),
    "lam": ("generalised-hyperbolic", "lam", -0.5),
    "chi": ("generalised-hyperbolic", "chi", 1.0),
    "psi": ("generalised-hyperbolic", "psi", 1.0),
}
SPREAD = (0.2, 1.0)  # the smallest and the largest variance at the start
LONGEST, STEP = 40.0, 0.05  # of the clock, as far as the energy has not fallen
FALLEN = 0.02  # the share of the energy at which the picture ends


@dataclass(frozen=True)
class Comparison:
    """Tokens (S states) and two solutions of the moment equations at the same times.

    expected: from the law's mean and covariance. own: from those of the tokens at the start.
    """

    law: Elliptic
    path: Path
    expected: MomentPath
    own: MomentPath

    @property
    def kappa(self) -> float:
        """The covariance is kappa Sigma."""
        return self.law.family.kappa(self.law.dim)

    def gap(self, moments: MomentPath) -> float:
        """The largest distance between the tokens' mean and covariance and these, relative to those at the start."""
        mean, covariance = sample_moments(self.path.x)
        wanted = self.kappa * moments.Sigma
        off = (mean - moments.m).norm(dim=-1) / moments.m[0].norm()
        return max(off.max().item(), ((covariance - wanted).norm(dim=(-2, -1)) / wanted[0].norm()).max().item())

    def notes(self) -> list[str]:
        """What the picture shows, in sentences."""
        return [
            f"Start: {len(self.path.x[0])} tokens from {self.law.family}, kappa = {self.kappa:.4g}.",
            "The tokens' mean and covariance obey the moment equations up to"
            f" {self.gap(self.own):.1e} of their start when the equations start from them,"
            f" and lie within {self.gap(self.expected):.2g} of the law's (sampling error).",
        ]


def make_family(start: str, **given: float | None) -> Family:
    """The family of that name. given: nu, beta, lam, chi, psi, or None; each belongs to one family."""
    if start not in get_args(StartName):
        raise unknown_name("start", start, get_args(StartName))
    values: dict[str, float] = {}
    for option, (owner, name, default) in PARAMETERS.items():
        value = given.get(option)
        if owner == start:
            values[name] = default if value is None else value
        elif value is not None:
            raise InputError(f"{option} is an option of the start {owner}; {start} has none such")
    return get_family(start.replace("-", "_"), **values)


def start_law(family: Family, dim: int, generator: Generator) -> Elliptic:
    """A law off the centre, its covariance with variances from 0.2 to 1 in seeded directions."""
    Q = rotation(dim, generator)
    direction = torch.randn(dim, generator=generator, dtype=torch.float64)
    covariance = Q @ torch.diag(torch.linspace(*SPREAD, dim, dtype=torch.float64)) @ Q.mT
    Sigma = (covariance + covariance.mT) / (2 * family.kappa(dim))
    return Elliptic(direction / direction.norm(), Sigma, family)


def check_start(system: System, particles: int, dim: int) -> None:
    """The closed equations hold for linear attention with full visibility, and need a covariance to start from."""
    if not isinstance(system, LinearAttention) or system.causal:
        raise InputError("a start law is followed under linear attention with full visibility only; leave start out")
    if particles <= dim:
        raise InputError(f"a start law needs more particles than dimensions, got {particles} in {dim}")


def sample_moments(x: Tensor) -> tuple[Tensor, Tensor]:
    """Mean (..., d) and covariance (..., d, d) of tokens (..., N, d), with the divisor N."""
    mean = x.mean(-2)
    centred = x - mean.unsqueeze(-2)
    return mean, centred.mT @ centred / x.shape[-2]


def compare(system: LinearAttention, law: Elliptic, x0: Tensor, damping: LogLinear) -> Comparison:
    """Follow the tokens and both moment equations with Runge-Kutta until the law's energy has fallen."""
    kappa, rate = law.family.kappa(law.dim), float(damping.alpha(damping.t0))
    h = min(STEP, 1 / rate) if rate > 0 else STEP  # strong damping wants smaller steps

    def follow(m: Tensor, Sigma: Tensor, steps: int) -> MomentPath:
        return solve_moments(m, Sigma, system.A, system.V, kappa, steps=steps, h=h, damping=damping)

    expected = follow(law.m, law.Sigma, round(LONGEST / STEP))
    second = kappa * expected.Sigma + expected.m.unsqueeze(-1) * expected.m.unsqueeze(-2)
    energy = -(system.V * second).sum((-2, -1))
    fallen = (energy <= FALLEN * energy[0]).nonzero()
    steps = max(int(fallen[0]), 4) if len(fallen) else len(energy) - 1
    mean, covariance = sample_moments(x0)
    path = simulate(system, x0, steps=steps, h=h, integrator="rk4", damping=damping, progress=False)
    expected = MomentPath(*(part[: steps + 1] for part in expected))
    return Comparison(law, path, expected, follow(mean, covariance / kappa, steps))
