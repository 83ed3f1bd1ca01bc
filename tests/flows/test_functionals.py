"""Energies of a density: first variations against the functionals themselves, KL against closed forms."""

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from sympformer import flows
from sympformer.errors import InputError
from tests.flows.cases import FUNCTIONALS, D, pull, quartic, randn, relative_error, symmetric

ALL = pytest.mark.parametrize("name", FUNCTIONALS)


@ALL
def test_values_depend_on_the_measure_only(name: str) -> None:
    """Every particle twice, in another order, is the same measure."""
    functional, x = FUNCTIONALS[name](), randn(6, D)
    again = torch.cat((x.flip(0), x))
    torch.testing.assert_close(functional.value(again), functional.value(x))
    torch.testing.assert_close(functional.first_variation(x, again), functional.first_variation(x, x))


@ALL
def test_first_variation_is_the_slope_of_the_functional(name: str) -> None:
    """F((1 - eps) rho + eps delta_z) - F(rho) = eps (dF/drho(z) - integral dF/drho d rho), at a rate of eps."""
    functional, x, z = FUNCTIONALS[name](), randn(5, D), randn(1, D, seed=3)
    variation = functional.first_variation(torch.cat((z, x)), x)
    wanted = (variation[0] - variation[1:].mean()).item()
    errors = []
    for copies in (20, 40, 80):
        rho = x.repeat(copies, 1)
        eps = 1 / (len(rho) + 1)
        slope = (functional.value(torch.cat((rho, z))) - functional.value(x)).item() / eps
        errors.append(abs(slope - wanted))
    if name == "potential":  # linear in rho: nothing is left over
        assert max(errors) < 1e-10
    else:
        assert errors[2] < 0.01 * variation.abs().max()
        assert errors[0] / errors[2] == pytest.approx(4, abs=0.3)


@ALL
@pytest.mark.parametrize("batch", [(), (2, 3)])
def test_gradient_of_the_first_variation_is_n_times_the_particle_gradient(name: str, batch: tuple[int, ...]) -> None:
    functional, x = FUNCTIONALS[name](), randn(*batch, 6, D).requires_grad_()
    value = functional.value(x)
    assert value.shape == batch
    (slope,) = torch.autograd.grad(6 * value.sum(), x)
    assert relative_error(functional.first_variation_gradient(x), slope) < 1e-12


@ALL
@pytest.mark.parametrize("kind", ["wasserstein", "stein"])
def test_force_is_minus_the_gradient_of_the_hamiltonian(name: str, kind: str) -> None:
    functional, kernel = FUNCTIONALS[name](), flows.gaussian_kernel(0.8)
    system = flows.Wasserstein(functional) if kind == "wasserstein" else flows.Stein(functional, kernel)
    x, y = randn(6, D).requires_grad_(), randn(6, D, seed=5).requires_grad_()
    dx, dy = torch.autograd.grad(system.hamiltonian(x, y), (x, y))
    assert relative_error(system.force(x, y), -dx) < 1e-12
    assert relative_error(system.velocity(x, y), dy) < 1e-12
    # the gradient flow of section 2: x' = -(metric applied to) grad dF/drho
    slope = functional.first_variation_gradient(x)
    wanted = -slope if kind == "wasserstein" else -kernel(x, x) @ slope / 6
    assert relative_error(system.gradient_flow(x), wanted) < 1e-12


def test_sums_add() -> None:
    x, z = randn(6, D), randn(4, D, seed=3)
    parts = [FUNCTIONALS[name]() for name in ("potential", "interaction", "kl")]
    whole = FUNCTIONALS["sum"]()
    torch.testing.assert_close(whole.value(x), sum(part.value(x) for part in parts))
    torch.testing.assert_close(whole.first_variation(z, x), sum(part.first_variation(z, x) for part in parts))


def test_a_plain_function_is_a_potential() -> None:
    x, y = randn(6, D), randn(6, D, seed=5)
    plain, wrapped = flows.Wasserstein(quartic), flows.Wasserstein(flows.Potential(quartic))
    assert torch.equal(plain.force(x, y), wrapped.force(x, y))
    torch.testing.assert_close(plain.energy(x), quartic(x).sum())
    torch.testing.assert_close((flows.Interaction(pull) + quartic).value(x), pull(x, x).mean() / 2 + quartic(x).mean())


def test_softmax_energy_is_an_interaction() -> None:
    """F = -1/2 integral integral exp(y'A x), dF/drho = -integral exp(y'A x) rho(y) dy, its gradient as printed."""
    A, x, z = symmetric(), randn(7, D), randn(4, D, seed=3)
    functional = flows.Interaction(lambda u, v: -torch.exp(u @ A @ v.mT))
    softmax = flows.SoftmaxAttention(A, torch.eye(D, dtype=torch.float64))
    assert relative_error(7 * functional.value(x), softmax.energy(x)) < 1e-12
    M = torch.exp(z @ A @ x.mT)
    assert relative_error(functional.first_variation(z, x), -M.mean(-1)) < 1e-12
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


@pytest.mark.parametrize(
    ("bandwidth", "limit"),
    [
        pytest.param(lambda n: 0.5, exact_kl(0.5), id="fixed bandwidth, to the smoothed closed form"),
        pytest.param(lambda n: n ** (-1 / 6), exact_kl(), id="falling bandwidth, to KL"),
    ],
)
def test_kernel_estimate_tends_to_the_closed_form(bandwidth: Callable[[int], float], limit: float) -> None:
    counts = (25, 100, 400)
    errors = [rms(flows.KL(log_target, bandwidth(n)).value(cloud(n, seeds=40)) - limit) for n in counts]
    assert errors[2] < 0.05
    assert errors[1] < 0.6 * errors[0]
    assert errors[2] < 0.6 * errors[1]


def test_kernel_estimate_of_the_gradient_tends_to_the_closed_form() -> None:
    """grad dKL/drho = grad log rho - grad log pi = pi's precision x - S^-1 (x - MEAN), in mean square over rho."""
    errors = []
    for n in (25, 100, 400):
        x = cloud(n, seeds=8)
        wanted = x @ TARGET.inverse() - (x - MEAN) @ S.inverse()
        got = flows.KL(log_target, n ** (-1 / 6)).first_variation_gradient(x)
        errors.append(rms(got - wanted) / rms(wanted))
    assert errors[2] < 0.55
    assert errors[1] < 0.85 * errors[0]
    assert errors[2] < 0.85 * errors[1]


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


def test_interactions_need_not_be_symmetric() -> None:
    x = randn(6, D)
    symmetrised = flows.Interaction(lambda u, v: (pull(u, v) + pull(v, u).mT) / 2)
    plain = FUNCTIONALS["interaction"]()
    assert relative_error(plain.first_variation_gradient(x), symmetrised.first_variation_gradient(x)) < 1e-12
    torch.testing.assert_close(plain.value(x), symmetrised.value(x))
