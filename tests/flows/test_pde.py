"""The particle systems against the paper's PDEs: Phi's equation, and its gradient along the particles.

rho is the empirical measure of x, so every integral is a mean. Phi is an arbitrary smooth function, alpha a number.
"""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.func import grad

from sympformer import flows
from sympformer.flows.elliptic import Moments, moment_slopes
from tests.flows.cases import D, positive, quartic, randn, relative_error, symmetric

A, B, V = symmetric(), positive(), symmetric(seed=9)
WAVE, BOWL = randn(D, seed=31), symmetric(seed=32)
ALPHA, N = 0.7, 6
KERNEL = flows.gaussian_kernel(0.8)
ENERGY = flows.Potential(quartic) + flows.Interaction(lambda u, v: torch.cos(u @ B @ v.mT))


def phi(x: Tensor) -> Tensor:
    """A function that is neither quadratic nor odd: (..., d) -> (...)."""
    return torch.sin(x @ WAVE) + (x * (x @ BOWL)).sum(-1) / 2 + (x**3).sum(-1) / 9


def slope(x: Tensor) -> Tensor:
    """grad Phi at points (n, d)."""
    return grad(lambda u: phi(u).sum())(x)


def norm_B(y: Tensor) -> Tensor:
    """|y|_B^2 of every row."""
    return (y * (y @ B)).sum(-1)


def z(u: Tensor, x: Tensor) -> Tensor:
    """integral exp(z'A u) rho(z) dz at the points u."""
    return torch.exp(u @ A @ x.mT).mean(-1)


# The first variation of 1/2 integral Phi G^-1[Phi] at the points u, as printed in each flow's second equation.
Variation = Callable[[Tensor, Tensor], Tensor]
KINETIC: dict[str, Variation] = {
    "wasserstein": lambda u, x: slope(u).square().sum(-1) / 2,
    "stein": lambda u, x: (slope(u) @ slope(x).mT * KERNEL(u, x)).mean(-1),
    "linear": lambda u, x: (slope(u) @ slope(x).mT * (u @ B @ x.mT)).mean(-1),
    "softmax": lambda u, x: (
        norm_B(slope(u)) / (2 * z(u, x)) - (torch.exp(u @ A @ x.mT) * norm_B(slope(x)) / z(x, x) ** 2).mean(-1) / 2
    ),
}
POTENTIAL: dict[str, Variation] = {
    "wasserstein": ENERGY.first_variation,
    "stein": ENERGY.first_variation,
    "linear": lambda u, x: -(u * (u @ V)).sum(-1) / 2,
    "softmax": lambda u, x: -z(u, x),
}
# The velocity of rho in each flow's first equation, at the points u.
VELOCITY: dict[str, Variation] = {
    "wasserstein": lambda u, x: slope(u),
    "stein": lambda u, x: KERNEL(u, x) @ slope(x) / N,
    "linear": lambda u, x: u @ B @ x.mT @ slope(x) / N,
    "softmax": lambda u, x: slope(u) @ B / z(u, x).unsqueeze(-1),
}
SYSTEMS: dict[str, Callable[[], flows.System]] = {
    "wasserstein": lambda: flows.Wasserstein(ENERGY),
    "stein": lambda: flows.Stein(ENERGY, KERNEL),
    "linear": lambda: flows.LinearAttention(B, V),
    "softmax": lambda: flows.SoftmaxAttention(A, B, form="paper"),
}


@pytest.mark.parametrize("kind", SYSTEMS)
def test_particles_solve_the_accelerated_pde(kind: str) -> None:
    """With y_i = grad Phi(x_i): y_i' = (d/dt grad Phi)(x_i) + Hess Phi(x_i) x_i', as in the paper's proofs."""
    system, x = SYSTEMS[kind](), randn(N, D) / 2

    def rate(u: Tensor) -> Tensor:  # d/dt Phi at the points u
        return -ALPHA * phi(u) - KINETIC[kind](u, x) - POTENTIAL[kind](u, x)

    y, velocity = slope(x), VELOCITY[kind](x, x)
    hessian_term = grad(lambda u: (slope(u) * velocity).sum())(x)  # Hess Phi(x_i) x_i'
    moved = grad(lambda u: rate(u).sum())(x) + hessian_term
    assert relative_error(system.velocity(x, y), velocity) < 1e-12
    assert relative_error(system.force(x, y) - ALPHA * y, moved) < 1e-12


@pytest.mark.parametrize("kind", SYSTEMS)
def test_particles_solve_the_first_order_pde(kind: str) -> None:
    """x' is the metric applied to minus grad dF/drho: the accelerated velocity with -dF/drho in the place of Phi."""
    system, x = SYSTEMS[kind](), randn(N, D) / 2
    descent = -grad(lambda u: POTENTIAL[kind](u, x).sum())(x)
    assert relative_error(system.gradient_flow(x), system.velocity(x, descent)) < 1e-12


@pytest.mark.parametrize("kind", SYSTEMS)
def test_kinetic_energy_and_its_first_variation(kind: str) -> None:
    """1/2 integral Phi G^-1[Phi] = 1/2 integral <grad Phi, velocity> d rho; its slope towards a point, by adding it."""
    system, x, point = SYSTEMS[kind](), randn(N, D) / 2, randn(1, D, seed=3) / 2
    metric = (slope(x) * VELOCITY[kind](x, x)).sum(-1).mean() / 2
    assert relative_error(system.kinetic(x, slope(x)) / N, metric) < 1e-12
    variation = KINETIC[kind](torch.cat((point, x)), x)
    wanted, errors = (variation[0] - variation[1:].mean()).item(), []
    for copies in (20, 40, 80):
        rho = torch.cat((x.repeat(copies, 1), point))
        change = system.kinetic(rho, slope(rho)) / len(rho) - metric
        errors.append(abs(change.item() * len(rho) - wanted))
    assert errors[2] < 0.01 * variation.abs().max()
    assert kind == "wasserstein" or errors[0] / errors[2] == pytest.approx(4, abs=0.3)


def test_a_quadratic_phi_stays_quadratic_under_linear_attention() -> None:
    """The ansatz Phi = 1/2 x'P x in the PDE gives 1/2 x'P' x with the P' of the moment equations, at every x."""
    P, x, u = symmetric(seed=33), randn(N, D), randn(20, D, seed=34)
    mean, covariance = x.mean(0), torch.cov(x.mT, correction=0)
    slopes = moment_slopes(Moments(mean, covariance, P), ALPHA, B, V, 1.0)
    C = P @ (x.mT @ x / N) @ B  # the velocity field is C x
    rate = -(ALPHA * u @ P * u).sum(-1) / 2 - ((u @ C.mT) * (u @ P)).sum(-1) + (u @ V * u).sum(-1) / 2
    torch.testing.assert_close((u @ slopes.P * u).sum(-1) / 2, rate, rtol=1e-11, atol=1e-11)
    field = flows.LinearAttention(B, V).velocity(x, x @ P)
    assert relative_error(field, x @ C.mT) < 1e-12
    assert relative_error(slopes.m, field.mean(0)) < 1e-12


def test_the_bilinear_kernel_is_degenerate() -> None:
    """It has rank d: momenta with sum_j y_j x_j' = 0 have no velocity and no kinetic energy, whatever their size."""
    system, x, y = flows.LinearAttention(B, V), randn(N, D), randn(N, D, seed=5)
    y = y - x @ torch.linalg.lstsq(x, y).solution  # orthogonal to the columns of x
    assert y.norm() > 1
    assert system.velocity(x, y).norm() < 1e-12
    assert system.kinetic(x, y).abs() < 1e-12
    gaussian = flows.Stein(quartic, KERNEL)
    assert gaussian.kinetic(x, y) > 0.01
