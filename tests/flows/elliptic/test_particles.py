"""Particles under linear attention against the law: the cloud stays a linear image of its start, its moments close."""

from functools import partial

import pytest
import torch
from torch import Tensor

from sympformer.flows import ACCELERATED, LinearAttention, SoftmaxAttention, System, simulate
from sympformer.flows.elliptic import Elliptic, Family, Gaussian, solve_moments
from tests.flows.elliptic.cases import FAMILY_CASES, M0, SIGMA0, TIME_ERROR, A, V, draw, energies, sample_moments


@pytest.mark.parametrize("family", FAMILY_CASES)
@pytest.mark.parametrize("integrator", ["rk4", *ACCELERATED])
def test_particles_stay_a_linear_image_of_their_start(family: Family, integrator: str) -> None:
    x0 = draw(family, 200, M0, SIGMA0 / family.kappa(2), 8)
    path = simulate(LinearAttention(A, V), x0, steps=20, h=0.05, integrator=integrator)
    assert (path.x[-1] - x0).norm() > 0.1 * x0.norm()
    relative, offset = affine_residuals(path.x)
    assert relative.max() < 1e-8
    assert offset.max() < 1e-8


@pytest.mark.parametrize(
    "system", [LinearAttention(A, V, causal=True), SoftmaxAttention(A, A)], ids=["causal", "softmax"]
)
def test_other_attention_is_no_affine_map(system: System) -> None:
    """The control: the fit would notice."""
    x0 = draw(Gaussian(), 200, M0, SIGMA0, 8)
    path = simulate(system, x0, steps=20, h=0.05)
    assert affine_residuals(path.x)[0][-1] > 1e-3


def affine_residuals(x: Tensor) -> tuple[Tensor, Tensor]:
    """Per time: the relative residual and the offset's size in the least-squares fit x_t = x_0 G' + b."""
    design = torch.cat((x[0], torch.ones_like(x[0, :, :1])), -1)  # (N, d + 1)
    fit = torch.linalg.lstsq(design.expand(len(x), -1, -1), x).solution  # (S, d + 1, d)
    return (design @ fit - x).norm(dim=(-2, -1)) / x.norm(dim=(-2, -1)), fit[:, -1].norm(dim=-1)


@pytest.mark.parametrize("family", FAMILY_CASES)
def test_closed_equations_are_exact_for_the_sample_s_own_moments(family: Family) -> None:
    """For N particles the equations hold with the empirical moments: no limit is needed, only the clock errs."""
    N, h, steps = 100, 0.005, 200
    kappa = family.kappa(2)
    x0 = draw(family, N, M0, SIGMA0 / kappa, 9)
    mean, covariance = sample_moments(x0)
    path = simulate(LinearAttention(A, V), x0, steps=steps, h=h, integrator="rk4", save_every=20)
    law = solve_moments(mean, covariance / kappa, A, V, kappa, steps=steps, h=h)
    t, m, Sigma, P = (part[::20] for part in law)
    means, covariances = sample_moments(path.x)
    kinetic, potential = energies(m, Sigma, P, A, V, kappa)
    assert_equal = partial(torch.testing.assert_close, rtol=0.0, atol=TIME_ERROR)
    assert_equal(path.t, t)
    assert_equal(means, m)
    assert_equal(covariances, kappa * Sigma)
    assert_equal(path.y, path.x @ P)
    assert_equal(path.kinetic / N, kinetic)
    assert_equal(path.potential / N, potential)
    # g is kept: no particle changes its distance from the mean, measured by Sigma
    laws = [Elliptic(mean, scale, family) for mean, scale in zip(m, Sigma, strict=True)]
    distance = torch.stack([law.distance(x) for law, x in zip(laws, path.x, strict=True)])
    assert_equal(distance, distance[:1].expand_as(distance))


@pytest.mark.parametrize("family", FAMILY_CASES)
def test_particles_approach_the_law_like_one_over_root_n(family: Family) -> None:
    seeds, steps, h = 24, 10, 0.1  # Runge-Kutta's own error is far below the sample's
    kappa = family.kappa(2)
    Sigma0 = SIGMA0 / kappa
    law = solve_moments(M0, Sigma0, A, V, kappa, steps=steps, h=h)
    counts, errors = (100, 1_000, 10_000), []
    for N in counts:
        x0 = torch.stack([draw(family, N, M0, Sigma0, seed) for seed in range(seeds)])  # (seeds, N, d)
        path = simulate(LinearAttention(A, V), x0, steps=steps, h=h, integrator="rk4", save_every=steps)
        mean, covariance = sample_moments(path.x[-1])
        off = (mean - law.m[-1]).square().sum(-1) + (covariance - kappa * law.Sigma[-1]).square().sum((-2, -1))
        errors.append(off.mean().sqrt().item())
    slope = log_log_slope(counts, errors)
    assert slope == pytest.approx(-0.5, abs=0.15)


def log_log_slope(counts: tuple[int, ...], errors: list[float]) -> float:
    """The least-squares slope of log error against log count."""
    u, v = torch.tensor(counts, dtype=torch.float64).log(), torch.tensor(errors, dtype=torch.float64).log()
    return float(((u - u.mean()) * (v - v.mean())).sum() / (u - u.mean()).square().sum())
