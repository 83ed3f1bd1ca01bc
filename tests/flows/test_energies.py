"""Energies of a density and their flows: first variations, KL against closed forms, the paper's PDEs."""

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.func import grad

from sympformer import flows
from sympformer.errors import InputError
from sympformer.flows.elliptic import Moments, moment_slopes
from tests.flows.cases import FUNCTIONALS, D, positive, pull, quartic, randn, relative_error, symmetric

EACH = pytest.mark.parametrize("name", FUNCTIONALS)


@EACH
def test_values_depend_on_the_measure_only(name: str) -> None:
    """Every particle twice, in another order, is the same measure."""
    functional, x = FUNCTIONALS[name](), randn(6, D)
    again = torch.cat((x.flip(0), x))
    torch.testing.assert_close(functional.value(again), functional.value(x))
    torch.testing.assert_close(functional.first_variation(x, again), functional.first_variation(x, x))


def grows_like_one_over_n(errors: list[float], size: float) -> None:
    assert errors[1] < 0.01 * size
    assert errors[0] / errors[1] == pytest.approx(4, abs=0.3)


@EACH
def test_first_variation_is_the_slope_of_the_functional(name: str) -> None:
    """F((1 - eps) rho + eps delta_z) - F(rho) = eps (dF/drho(z) - integral dF/drho d rho), at a rate of eps."""
    functional, x, z = FUNCTIONALS[name](), randn(5, D), randn(1, D, seed=3)
    variation = functional.first_variation(torch.cat((z, x)), x)
    wanted, errors = (variation[0] - variation[1:].mean()).item(), []
    for copies in (20, 80):
        rho = torch.cat((x.repeat(copies, 1), z))
        slope = (functional.value(rho) - functional.value(x)).item() * len(rho)
        errors.append(abs(slope - wanted))
    if name == "potential":  # linear in rho: nothing is left over
        assert max(errors) < 1e-10
    else:
        grows_like_one_over_n(errors, variation.abs().max().item())


@EACH
@pytest.mark.parametrize("batch", [(), (2, 3)])
def test_gradient_of_the_first_variation_is_n_times_the_particle_gradient(name: str, batch: tuple[int, ...]) -> None:
    functional, x = FUNCTIONALS[name](), randn(*batch, 6, D).requires_grad_()
    value = functional.value(x)
    assert value.shape == batch
    (slope,) = torch.autograd.grad(6 * value.sum(), x)
    assert relative_error(functional.first_variation_gradient(x), slope) < 1e-12


def test_sums_and_plain_functions() -> None:
    x, y, z = randn(6, D), randn(6, D, seed=5), randn(4, D, seed=3)
    parts, whole = [FUNCTIONALS[name]() for name in ("potential", "interaction", "kl")], FUNCTIONALS["sum"]()
    torch.testing.assert_close(whole.value(x), sum(part.value(x) for part in parts))
    torch.testing.assert_close(whole.first_variation(z, x), sum(part.first_variation(z, x) for part in parts))
    plain, wrapped = flows.Wasserstein(quartic), flows.Wasserstein(flows.Potential(quartic))
    assert torch.equal(plain.force(x, y), wrapped.force(x, y))
    torch.testing.assert_close(plain.potential(x), quartic(x).sum())
    torch.testing.assert_close((flows.Interaction(pull) + quartic).value(x), pull(x, x).mean() / 2 + quartic(x).mean())


def test_softmax_energy_is_an_interaction() -> None:
    """F = -1/2 integral integral exp(y'A x), dF/drho = -integral exp(y'A x) rho(y) dy, its gradient as printed."""
    A, x, z = symmetric(), randn(7, D), randn(4, D, seed=3)
    functional = flows.Interaction(lambda u, v: -torch.exp(u @ A @ v.mT))
    softmax = flows.SoftmaxAttention(A, torch.eye(D, dtype=torch.float64))
    assert relative_error(7 * functional.value(x), softmax.potential(x)) < 1e-12
    assert relative_error(functional.first_variation(z, x), -torch.exp(z @ A @ x.mT).mean(-1)) < 1e-12
    at_rest = softmax.force(x, torch.zeros_like(x))
    assert relative_error(functional.first_variation_gradient(x), -at_rest) < 1e-12


# --- KL against closed forms for Gaussians

MEAN = torch.tensor([0.3, -0.2], dtype=torch.float64)
S = torch.tensor([[1.0, 0.4], [0.4, 0.6]], dtype=torch.float64)  # of rho
TARGET = torch.tensor([[0.8, -0.1], [-0.1, 1.2]], dtype=torch.float64)  # of pi, of mean zero


def log_target(x: Tensor) -> Tensor:
    return -(x * (x @ TARGET.inverse())).sum(-1) / 2 - math.log(2 * math.pi) - TARGET.logdet() / 2


def exact_kl(bandwidth: float = 0.0) -> float:
    """KL(N(MEAN, S) | pi); with a bandwidth the limit of the kernel estimate, log rho replaced by log(k * rho)."""
    wide = S + bandwidth**2 * torch.eye(2, dtype=torch.float64)
    entropy = -math.log(2 * math.pi) - wide.logdet() / 2 - torch.trace(wide.inverse() @ S) / 2
    second = S + torch.outer(MEAN, MEAN)
    energy = torch.trace(TARGET.inverse() @ second) / 2 + math.log(2 * math.pi) + TARGET.logdet() / 2
    return (entropy + energy).item()


def cloud(n: int, seeds: int) -> Tensor:
    """(seeds, n, 2)"""
    return MEAN + randn(seeds, n, 2, seed=21) @ torch.linalg.cholesky(S).mT


def rms(errors: Tensor) -> float:
    return errors.square().mean().sqrt().item()


def falls(errors: list[float], last: float, each: float) -> None:
    assert errors[2] < last
    assert errors[1] < each * errors[0]
    assert errors[2] < each * errors[1]


@pytest.mark.parametrize(
    ("bandwidth", "limit"),
    [
        pytest.param(lambda n: 0.5, exact_kl(0.5), id="fixed bandwidth, to the smoothed closed form"),
        pytest.param(lambda n: n ** (-1 / 6), exact_kl(), id="falling bandwidth, to KL"),
    ],
)
def test_kernel_estimate_tends_to_the_closed_form(bandwidth: Callable[[int], float], limit: float) -> None:
    estimates = (flows.KL(log_target, bandwidth(n)).value(cloud(n, seeds=40)) for n in (25, 100, 400))
    falls([rms(estimate - limit) for estimate in estimates], 0.05, 0.6)


def test_kernel_estimate_of_the_gradient_tends_to_the_closed_form() -> None:
    """grad dKL/drho = grad log rho - grad log pi = pi's precision x - S^-1 (x - MEAN), in mean square over rho."""
    errors = []
    for n in (25, 100, 400):
        x = cloud(n, seeds=8)
        wanted = x @ TARGET.inverse() - (x - MEAN) @ S.inverse()
        got = flows.KL(log_target, n ** (-1 / 6)).first_variation_gradient(x)
        errors.append(rms(got - wanted) / rms(wanted))
    falls(errors, 0.55, 0.85)


def test_the_flow_of_kl_finds_its_target() -> None:
    """Particles far away and close together spread over pi: mean, covariance, and no energy left to lose."""
    system = flows.Wasserstein(flows.KL(log_target, 0.4))
    path = flows.simulate(system, 0.1 * randn(64, 2) + 2, steps=250, h=0.1, damping=flows.Constant(1.0), save_every=250)
    x, energy = path.x[-1], path.potential / 64
    assert x.mean(0).abs().max() < 0.02
    assert (torch.cov(x.mT) - TARGET).abs().max() < 0.25
    assert energy[0] > 3
    assert energy[1] < 0.05
    assert system.functional.first_variation_gradient(x).abs().max() < 0.01


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: flows.KL(log_target, 0.0), "bandwidth must be positive"),
        (lambda: flows.Potential(torch.sum).value(randn(4, 3)), "one value per particle"),
        (lambda: flows.Interaction(lambda x, y: x @ y.mT @ y).value(randn(4, 3)), "one value per pair"),
        (lambda: flows.Stein(torch.sum, flows.gaussian_kernel()).at(randn(4, 3)), "one value per particle"),
    ],
)
def test_bad_functionals_are_named(call: Callable[[], object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        call()


# --- the particle systems against the paper's PDEs: Phi's equation, and its gradient along the particles
# rho is the empirical measure of x, so every integral is a mean. Phi is an arbitrary smooth function, alpha a number.

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
    for copies in (20, 80):
        rho = torch.cat((x.repeat(copies, 1), point))
        change = system.kinetic(rho, slope(rho)) / len(rho) - metric
        errors.append(abs(change.item() * len(rho) - wanted))
    if kind == "wasserstein":  # linear in rho
        assert max(errors) < 1e-10
    else:
        grows_like_one_over_n(errors, variation.abs().max().item())


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
