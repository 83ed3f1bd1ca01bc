"""The samplers against their laws: moments, radii (Kolmogorov-Smirnov), directions, seeds."""

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor

from sympformer.flows.elliptic import (
    Elliptic,
    Family,
    Gaussian,
    GeneralisedHyperbolic,
    Logistic,
    PowerExponential,
    StudentT,
)
from tests.flows.elliptic.cases import FAMILY_CASES, M0, SIGMA0, draw, random_positive

HYPERBOLIC = [
    GeneralisedHyperbolic(-0.5, 1.0, 2.0),  # normal inverse Gaussian
    GeneralisedHyperbolic(1.0, 0.01, 1.0),  # nearly Laplace
    GeneralisedHyperbolic(-3.0, 2.0, 1e-6),  # nearly Student-t with 6 degrees of freedom
    GeneralisedHyperbolic(30.0, 100.0, 2.0),
]


@pytest.mark.parametrize(
    "family",
    [
        Gaussian(),
        StudentT(6.5),
        Logistic(),
        PowerExponential(0.5),
        PowerExponential(1.0),
        PowerExponential(3.0),
        *HYPERBOLIC[:2],
        HYPERBOLIC[3],
    ],
    ids=repr,
)
@pytest.mark.parametrize("d", [1, 2, 4])
def test_samples_have_mean_m_and_covariance_kappa_sigma(family: Family, d: int) -> None:
    n, m, Sigma = 40_000, torch.arange(1.0, d + 1, dtype=torch.float64), random_positive(d, 5)
    law = Elliptic(m, Sigma, family)
    x = draw(family, n, m, Sigma, 6)
    assert x.shape == (n, d)
    products = (x - m).unsqueeze(-1) * (x - m).unsqueeze(-2)
    for sample, expected in ((x, law.mean), (products, law.covariance)):
        assert ((sample.mean(0) - expected).abs() < 5 * sample.std(0) / math.sqrt(n)).all()


def power_exponential_cdf(r: Tensor, beta: float, d: int) -> Tensor:
    """R^(2 beta)/2 ~ Gamma(d/(2 beta), 1)."""
    return torch.special.gammainc(torch.full_like(r, d / (2 * beta)), r ** (2 * beta) / 2)


def student_cdf(r: Tensor, v: float, d: int) -> Tensor:
    """R^2/d ~ F(d, v)."""
    return torch.from_numpy(stats.f.cdf((r**2 / d).numpy(), d, v))


RADIAL_LAWS: list[tuple[Family, Callable[[Tensor, float, int], Tensor], float]] = [
    (Gaussian(), power_exponential_cdf, 1.0),
    (PowerExponential(0.3), power_exponential_cdf, 0.3),
    (PowerExponential(1.0), power_exponential_cdf, 1.0),
    (PowerExponential(4.0), power_exponential_cdf, 4.0),  # Gamma shape below 1 in every d tested
    (PowerExponential(60.0), power_exponential_cdf, 60.0),  # near the uniform ball
    (StudentT(2.5), student_cdf, 2.5),
    (StudentT(10.0), student_cdf, 10.0),
]


@pytest.mark.parametrize(("family", "cdf", "parameter"), RADIAL_LAWS, ids=[repr(law[0]) for law in RADIAL_LAWS])
@pytest.mark.parametrize("d", [1, 3, 5])
def test_radii_follow_their_exact_law_and_directions_are_uniform(
    family: Family, cdf: Callable[[Tensor, float, int], Tensor], parameter: float, d: int
) -> None:
    n, I = 10_000, torch.eye(d, dtype=torch.float64)
    x = draw(family, n, torch.zeros(d, dtype=torch.float64), I, 7)
    radius = x.norm(dim=-1)
    assert stats.kstest(cdf(radius, parameter, d).numpy(), "uniform").pvalue > 1e-3
    U = x / radius.unsqueeze(-1)
    assert U.mean(0).abs().max() < 5 / math.sqrt(n)
    assert (U.mT @ U / n - I / d).abs().max() < 5 / math.sqrt(n)
    assert abs(torch.corrcoef(torch.stack((radius, U[:, 0])))[0, 1]) < 5 / math.sqrt(n)


def radial_cdf(family: Family, d: int, r: Tensor) -> Tensor:
    """P(R <= r), summed from the density: R has the density ~ r^(d-1) g(r^2) on a fine grid of log r."""
    u = torch.linspace(-20, 20, 4001, dtype=torch.float64)
    density = torch.exp(d * u + family.log_g((2 * u).exp(), d))
    mass = torch.cumulative_trapezoid(density, u) * 2 * math.pi ** (d / 2) / math.gamma(d / 2)
    assert mass[-1].item() == pytest.approx(1, abs=1e-6)
    return torch.from_numpy(np.interp(r.log().numpy(), u[1:].numpy(), mass.numpy()))


@pytest.mark.parametrize("family", [StudentT(5.0), Logistic(), PowerExponential(0.5), *HYPERBOLIC], ids=repr)
@pytest.mark.parametrize("d", [1, 2, 7])
def test_distances_of_a_sample_follow_the_density(family: Family, d: int) -> None:
    """Kolmogorov-Smirnov between the Mahalanobis distances and the law's own density; another family fails."""
    m, Sigma = torch.ones(d, dtype=torch.float64), random_positive(d, 5)
    distance = Elliptic(m, Sigma, family).distance(draw(family, 20_000, m, Sigma, 11))
    assert stats.kstest(radial_cdf(family, d, distance).numpy(), "uniform").pvalue > 1e-3
    assert stats.kstest(radial_cdf(StudentT(3.0), d, distance).numpy(), "uniform").pvalue < 1e-6


@pytest.mark.parametrize("family", FAMILY_CASES)
def test_seeds_are_kept_apart_from_the_global_one(family: Family) -> None:
    before = torch.get_rng_state()
    first, again, other = (draw(family, 50, M0, SIGMA0, seed) for seed in (1, 1, 2))
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert Elliptic(M0.float(), SIGMA0.float(), family).sample(5).dtype == torch.float32


@pytest.mark.parametrize("family", FAMILY_CASES)
def test_gradients_reach_the_law_that_is_sampled(family: Family) -> None:
    def points(m: Tensor, L: Tensor) -> Tensor:
        return draw(family, 5, m, L @ L.mT, 3)

    assert torch.autograd.gradcheck(points, [M0.clone().requires_grad_(), SIGMA0.clone().requires_grad_()])


@pytest.mark.parametrize("family", [StudentT(1e45), PowerExponential(1e4)], ids=repr)
def test_extreme_parameters_are_sampled_in_float32(family: Family) -> None:
    x = draw(family, 10_000, torch.zeros(3), torch.eye(3), 10)
    assert x.square().mean() == pytest.approx(family.kappa(3), rel=0.05)
