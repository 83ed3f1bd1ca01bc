"""The closed equations of the moments: the paper's formulas, their solution, its energy, bad input."""

import math

import pytest
import torch
from torch import Tensor

from sympformer.errors import DivergenceError
from sympformer.flows import Constant, LogLinear, Nesterov
from sympformer.flows.elliptic import Moments, PowerExponential, centered_slopes, moment_slopes, solve_moments
from tests.flows.elliptic.cases import (
    DAMPINGS,
    M0,
    SIGMA0,
    V_DOWN,
    A,
    V,
    energies,
    matrix,
    random_positive,
    random_symmetric,
    seeded,
)


def test_slopes_are_the_paper_s_formulas() -> None:
    d, alpha, kappa = 3, 0.7, 1.3
    m = torch.randn(d, generator=seeded(0), dtype=torch.float64)
    Sigma, P = random_positive(d, 1), random_symmetric(d, 2)
    A, V = random_positive(d, 3), random_symmetric(d, 4)
    C = P @ (kappa * Sigma + torch.outer(m, m)) @ A
    slopes = moment_slopes(Moments(m, Sigma, P), alpha, A, V, kappa)
    torch.testing.assert_close(slopes.m, C @ m)
    torch.testing.assert_close(slopes.Sigma, Sigma @ C.mT + C @ Sigma)
    torch.testing.assert_close(slopes.P, -alpha * P - (C.mT @ P + P @ C) + V)


@pytest.mark.parametrize("d", [1, 2, 5])
def test_centered_slopes_are_the_general_ones_at_mean_zero(d: int) -> None:
    Sigma, P, A, V = (
        random_positive(d, 1),
        random_symmetric(d, 2),
        random_positive(d, 3),
        random_symmetric(d, 4),
    )
    general = moment_slopes(Moments(torch.zeros(d, dtype=torch.float64), Sigma, P), 0.7, A, V, 1.3)
    dSigma, dP = centered_slopes(Sigma, P, 0.7, A, V, 1.3)
    assert general.m.abs().max() == 0
    torch.testing.assert_close(general.Sigma, dSigma, rtol=1e-13, atol=1e-13)
    torch.testing.assert_close(general.P, dP, rtol=1e-13, atol=1e-13)


def test_slopes_of_a_batch_are_the_slopes_of_its_members() -> None:
    members = [Moments(M0 * k, SIGMA0 * k, random_symmetric(2, k)) for k in (1, 2, 3)]
    batch = Moments(*(torch.stack(parts) for parts in zip(*members, strict=True)))
    slopes = moment_slopes(batch, 0.7, A, V, 1.3)
    for k, member in enumerate(members):
        for got, expected in zip(slopes, moment_slopes(member, 0.7, A, V, 1.3), strict=True):
            torch.testing.assert_close(got[k], expected)


def test_solution_stays_symmetric_and_positive_definite() -> None:
    path = solve_moments(M0, SIGMA0, A, V, 1.25, steps=100, h=0.02)
    assert torch.equal(path.Sigma, path.Sigma.mT)
    assert torch.equal(path.P, path.P.mT)
    assert torch.linalg.eigvalsh(path.Sigma).min() > 0
    assert path.P[0].abs().max() == 0
    assert path.t.shape == (101,)
    torch.testing.assert_close(path.t[-1], torch.tensor(3.0, dtype=torch.float64))


def test_a_start_at_mean_zero_keeps_it() -> None:
    assert solve_moments(torch.zeros_like(M0), SIGMA0, A, V, steps=20, h=0.05).m.abs().max() == 0


def test_only_the_covariance_counts() -> None:
    """kappa Sigma obeys the same equations with kappa = 1."""
    heavy = solve_moments(M0, SIGMA0, A, V, 1.25, steps=20, h=0.05)
    plain = solve_moments(M0, 1.25 * SIGMA0, A, V, steps=20, h=0.05)
    torch.testing.assert_close(1.25 * heavy.Sigma, plain.Sigma, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(heavy.m, plain.m, rtol=1e-12, atol=1e-12)


def test_order_four() -> None:
    def end(steps: int) -> Tensor:
        path = solve_moments(M0, SIGMA0, A, V, steps=steps, h=2.0 / steps)
        return torch.cat((path.m[-1], path.Sigma[-1].flatten(), path.P[-1].flatten()))

    reference = end(640)
    errors = [(end(steps) - reference).norm().item() for steps in (20, 40, 80)]
    assert math.log2(errors[0] / errors[2]) / 2 == pytest.approx(4, abs=0.2)


def test_gradients_reach_every_tensor() -> None:
    def end(m: Tensor, L: Tensor, a: Tensor, v: Tensor, h: Tensor, kappa: Tensor, r: Tensor) -> Tensor:
        Sigma, A, V = L @ L.mT, a @ a.mT, v + v.mT
        path = solve_moments(m, Sigma, A, V, kappa, steps=3, h=h, damping=Nesterov(r))
        return torch.cat((path.m[-1], path.Sigma[-1].flatten(), path.P[-1].flatten()))

    scalars = [torch.tensor(value, dtype=torch.float64) for value in (0.1, 1.25, 3.0)]
    inputs = [M0, torch.linalg.cholesky(SIGMA0), torch.linalg.cholesky(A), V / 2, *scalars]
    assert torch.autograd.gradcheck(end, [value.clone().requires_grad_() for value in inputs])


def test_float32_stays_float32() -> None:
    path = solve_moments(M0.float(), SIGMA0.float(), A.float(), V.float(), steps=20, h=0.05)
    exact = solve_moments(M0, SIGMA0, A, V, steps=20, h=0.05)
    assert path.m.dtype == path.Sigma.dtype == path.P.dtype == torch.float32
    torch.testing.assert_close(path.Sigma.double(), exact.Sigma, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("damping", DAMPINGS)
def test_damping_lowers_the_energy(damping: LogLinear) -> None:
    path = solve_moments(M0, SIGMA0, A, V_DOWN, 1.25, steps=400, h=0.02, damping=damping)
    kinetic, potential = energies(path.m, path.Sigma, path.P, A, V_DOWN, 1.25)
    assert ((kinetic + potential).diff() < 0).all()
    assert potential[-1] < 0.5 * potential[0]
    assert potential.min() >= 0


def test_energy_is_kept_without_damping() -> None:
    path = solve_moments(M0, SIGMA0, A, V_DOWN, 1.25, steps=200, h=0.01, damping=Constant(0.0))
    kinetic, potential = energies(path.m, path.Sigma, path.P, A, V_DOWN, 1.25)
    total = kinetic + potential
    assert (total - total[0]).abs().max() < 1e-7 * total[0]
    assert kinetic.max() > 0.1 * total[0]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"A": -A}, "A must be positive definite"),
        ({"V": matrix((0.0, 1.0), (0.0, 0.0))}, "V must be symmetric"),
        ({"V": torch.eye(3, dtype=torch.float64)}, "Sigma0 and V must agree"),
        ({"Sigma0": -SIGMA0}, "Sigma0 must be positive definite"),
        ({"P0": matrix((0.0, 1.0), (0.0, 0.0))}, "P0 must be symmetric"),
        ({"m0": M0[:1]}, "m0 must be finite, of shape \\(2,\\)"),
        ({"m0": M0.float()}, "m0 must be .* dtype"),
        ({"m0": M0 * math.nan}, "m0 must be finite"),
        ({"kappa": 0.0}, "kappa must be positive"),
        ({"kappa": PowerExponential(1e-4).kappa(2)}, "kappa must be positive and finite, got inf"),
        ({"h": -0.1}, "h must be positive and finite, got -0.1"),
        ({"h": torch.ones(3)}, "h one number"),
        ({"steps": 0}, "steps must be at least 1"),
    ],
)
def test_bad_inputs_are_named(change: dict[str, object], message: str) -> None:
    arguments: dict[str, object] = {"m0": M0, "Sigma0": SIGMA0, "A": A, "V": V, "steps": 3, "h": 0.1}
    with pytest.raises(ValueError, match=message):
        solve_moments(**(arguments | change))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("V", "h"),
    [
        pytest.param(1e40, 0.5, id="not finite"),
        pytest.param(5.0, 0.02, id="blow-up in finite time, which the steps would jump over"),
        pytest.param(-50.0, 0.5, id="step too large"),
    ],
)
def test_divergence_names_the_step_and_what_to_change(V: float, h: float) -> None:
    message = rf"at step \d+ \(t = .*\): use a step smaller than h = {h}, more damping, or a V"
    with pytest.raises(DivergenceError, match=message):
        solve_moments(M0, SIGMA0, A, V * torch.eye(2, dtype=torch.float64), steps=100, h=h)
