"""What the tests of elliptic laws share: matrices, seeds, families, moments of a sample."""

import pytest
import torch
from torch import Tensor

from sympformer.flows import Constant, Nesterov
from sympformer.flows.elliptic import (
    Elliptic,
    Family,
    Gaussian,
    GeneralisedHyperbolic,
    Logistic,
    PowerExponential,
    StudentT,
)


def matrix(*rows: tuple[float, ...]) -> Tensor:
    return torch.tensor(rows, dtype=torch.float64)


A = matrix((1.0, 0.2), (0.2, 0.7))
V = matrix((-1.0, 0.3), (0.3, 0.5))  # one direction contracts, one spreads
V_DOWN = matrix((-1.0, 0.3), (0.3, -0.8))  # negative definite: the potential is bounded below
M0 = torch.tensor([0.5, -0.3], dtype=torch.float64)
SIGMA0 = matrix((1.0, 0.4), (0.4, 0.6))
TIME_ERROR = 1e-9  # of Runge-Kutta with h = 0.005 up to t = 2
DAMPINGS = [pytest.param(Nesterov(), id="nesterov"), pytest.param(Constant(1.0), id="constant")]

FAMILY_CASES = [
    pytest.param(Gaussian(), id="gaussian"),
    pytest.param(StudentT(10.0), id="student_t"),
    pytest.param(Logistic(), id="logistic"),
    pytest.param(PowerExponential(0.5), id="power_exponential"),
    pytest.param(GeneralisedHyperbolic(-0.5, 1.0, 2.0), id="generalised_hyperbolic"),
]


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def draw(family: Family, n: int, m: Tensor, Sigma: Tensor, seed: int) -> Tensor:
    """n points of E(m, Sigma, g)."""
    return Elliptic(m, Sigma, family).sample(n, seeded(seed))


def random_symmetric(d: int, seed: int) -> Tensor:
    M = torch.randn(d, d, generator=seeded(seed), dtype=torch.float64)
    return M + M.mT


def random_positive(d: int, seed: int) -> Tensor:
    M = torch.randn(d, d, generator=seeded(seed), dtype=torch.float64)
    return M @ M.mT / d + 0.5 * torch.eye(d, dtype=torch.float64)


def sample_moments(x: Tensor) -> tuple[Tensor, Tensor]:
    """Mean (..., d) and covariance (..., d, d) with divisor N."""
    mean = x.mean(-2)
    centered = x - mean.unsqueeze(-2)
    return mean, centered.mT @ centered / x.shape[-2]


def energies(m: Tensor, Sigma: Tensor, P: Tensor, A: Tensor, V: Tensor, kappa: float) -> tuple[Tensor, Tensor]:
    """(kinetic, potential) of the law: 1/2 tr(P M A M P) and -1/2 tr(V M) with M = kappa Sigma + m m'."""
    M = kappa * Sigma + m.unsqueeze(-1) * m.unsqueeze(-2)
    MP = M @ P
    return (MP * (A @ MP)).sum((-2, -1)) / 2, -(V * M).sum((-2, -1)) / 2
