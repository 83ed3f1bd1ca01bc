"""Elliptic laws under linear attention: the closed equations of their moments, and particles beside them."""

import math
from functools import partial

import pytest
import torch
from torch import Tensor

from sympformer.errors import DivergenceError
from sympformer.flows import ACCELERATED, Constant, LinearAttention, LogLinear, Nesterov, SoftmaxAttention, simulate
from sympformer.flows.elliptic import (
    Elliptic,
    Family,
    Gaussian,
    MomentPath,
    Moments,
    PowerExponential,
    centered_slopes,
    moment_slopes,
    solve_moments,
)
from tests.flows.cases import positive, symmetric
from tests.flows.test_elliptic import EACH, M0, SIGMA0, draw, matrix

A = matrix((1.0, 0.2), (0.2, 0.7))
V = matrix((-1.0, 0.3), (0.3, 0.5))  # one direction contracts, one spreads
V_DOWN = matrix((-1.0, 0.3), (0.3, -0.8))  # negative definite: the potential is bounded below
TIME_ERROR = 1e-9  # of Runge-Kutta with h = 0.005 up to t = 2
close = partial(torch.testing.assert_close, rtol=1e-12, atol=1e-12)


def energies(path: MomentPath, V: Tensor, kappa: float) -> tuple[Tensor, Tensor]:
    """(kinetic, potential) of the law: 1/2 tr(P M A M P) and -1/2 tr(V M) with M = kappa Sigma + m m'."""
    M = kappa * path.Sigma + path.m.unsqueeze(-1) * path.m.unsqueeze(-2)
    MP = M @ path.P
    return (MP * (A @ MP)).sum((-2, -1)) / 2, -(V * M).sum((-2, -1)) / 2


@pytest.mark.parametrize("d", [1, 2, 5])
def test_centered_slopes_are_the_general_ones_at_mean_zero(d: int) -> None:
    Sigma, P, A, V = positive(d), symmetric(d, 2), positive(d, 3), symmetric(d, 4)
    general = moment_slopes(Moments(torch.zeros(d, dtype=torch.float64), Sigma, P), 0.7, A, V, 1.3)
    dSigma, dP = centered_slopes(Sigma, P, 0.7, A, V, 1.3)
    assert general.m.abs().max() == 0
    close(general.Sigma, dSigma)
    close(general.P, dP)


def test_what_a_solution_keeps() -> None:
    """Symmetry, a positive Sigma, a mean of zero; and kappa Sigma obeys the same equations with kappa = 1."""
    path = solve_moments(M0, SIGMA0, A, V, 1.25, steps=100, h=0.02)
    assert torch.equal(path.Sigma, path.Sigma.mT)
    assert torch.equal(path.P, path.P.mT)
    assert torch.linalg.eigvalsh(path.Sigma).min() > 0
    assert path.P[0].abs().max() == 0
    assert path.t.shape == (101,)
    close(path.t[-1], torch.tensor(3.0, dtype=torch.float64))
    plain = solve_moments(M0, 1.25 * SIGMA0, A, V, steps=100, h=0.02)
    close(1.25 * path.Sigma, plain.Sigma)
    close(path.m, plain.m)
    assert solve_moments(torch.zeros_like(M0), SIGMA0, A, V, steps=20, h=0.05).m.abs().max() == 0


def test_order_four() -> None:
    def end(steps: int) -> Tensor:
        path = solve_moments(M0, SIGMA0, A, V, steps=steps, h=2.0 / steps)
        return torch.cat((path.m[-1], path.Sigma[-1].flatten(), path.P[-1].flatten()))

    reference = end(640)
    errors = [(end(steps) - reference).norm().item() for steps in (20, 80)]
    assert math.log2(errors[0] / errors[1]) / 2 == pytest.approx(4, abs=0.2)


def test_gradients_reach_every_tensor() -> None:
    def end(m: Tensor, L: Tensor, a: Tensor, v: Tensor, h: Tensor, kappa: Tensor, r: Tensor) -> Tensor:
        path = solve_moments(m, L @ L.mT, a @ a.mT, v + v.mT, kappa, steps=3, h=h, damping=Nesterov(r))
        return torch.cat((path.m[-1], path.Sigma[-1].flatten(), path.P[-1].flatten()))

    scalars = [torch.tensor(value, dtype=torch.float64) for value in (0.1, 1.25, 3.0)]
    inputs = [M0, torch.linalg.cholesky(SIGMA0), torch.linalg.cholesky(A), V / 2, *scalars]
    assert torch.autograd.gradcheck(end, [value.clone().requires_grad_() for value in inputs])


def test_float32_stays_float32() -> None:
    path = solve_moments(M0.float(), SIGMA0.float(), A.float(), V.float(), steps=20, h=0.05)
    exact = solve_moments(M0, SIGMA0, A, V, steps=20, h=0.05)
    assert path.m.dtype == path.Sigma.dtype == path.P.dtype == torch.float32
    torch.testing.assert_close(path.Sigma.double(), exact.Sigma, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("damping", [Nesterov(), Constant(1.0), Constant(0.0)], ids=["nesterov", "constant", "none"])
def test_damping_lowers_the_energy_and_nothing_else_does(damping: LogLinear) -> None:
    free = damping.m == damping.r == 0
    steps, h = (200, 0.01) if free else (400, 0.02)
    path = solve_moments(M0, SIGMA0, A, V_DOWN, 1.25, steps=steps, h=h, damping=damping)
    kinetic, potential = energies(path, V_DOWN, 1.25)
    total = kinetic + potential
    if free:
        assert (total - total[0]).abs().max() < 1e-7 * total[0]
        assert kinetic.max() > 0.1 * total[0]
    else:
        assert (total.diff() < 0).all()
        assert potential[-1] < 0.5 * potential[0]
        assert potential.min() >= 0


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


# --- particles: the cloud stays a linear image of its start, its moments those of the equations


def affine_residuals(x: Tensor) -> tuple[Tensor, Tensor]:
    """Per time: the relative residual and the offset's size in the least-squares fit x_t = x_0 G' + b."""
    design = torch.cat((x[0], torch.ones_like(x[0, :, :1])), -1)  # (N, d + 1)
    fit = torch.linalg.lstsq(design.expand(len(x), -1, -1), x).solution  # (S, d + 1, d)
    return (design @ fit - x).norm(dim=(-2, -1)) / x.norm(dim=(-2, -1)), fit[:, -1].norm(dim=-1)


@EACH
@pytest.mark.parametrize("integrator", ["rk4", *ACCELERATED])
def test_particles_stay_a_linear_image_of_their_start(family: Family, integrator: str) -> None:
    x0 = draw(family, 200, M0, SIGMA0 / family.kappa(2), 8)
    path = simulate(LinearAttention(A, V), x0, steps=20, h=0.05, integrator=integrator)
    assert (path.x[-1] - x0).norm() > 0.1 * x0.norm()
    for residual in affine_residuals(path.x):
        assert residual.max() < 1e-8


@pytest.mark.parametrize("causal", [True, False])
def test_other_attention_is_no_affine_map(causal: bool) -> None:
    """The control: the fit would notice."""
    system = LinearAttention(A, V, causal=True) if causal else SoftmaxAttention(A, A)
    path = simulate(system, draw(Gaussian(), 200, M0, SIGMA0, 8), steps=20, h=0.05)
    assert affine_residuals(path.x)[0][-1] > 1e-3


@EACH
def test_closed_equations_are_exact_for_the_sample_s_own_moments(family: Family) -> None:
    """For N particles the equations hold with the empirical moments: no limit is needed, only the clock errs."""
    N, h, steps, kappa = 100, 0.005, 200, family.kappa(2)
    x0 = draw(family, N, M0, SIGMA0 / kappa, 9)
    start = Elliptic(x0.mean(0), torch.cov(x0.mT, correction=0) / kappa, family)
    path = simulate(LinearAttention(A, V), x0, steps=steps, h=h, integrator="rk4", save_every=20)
    law = MomentPath(*(part[::20] for part in solve_moments(start.m, start.Sigma, A, V, kappa, steps=steps, h=h)))
    kinetic, potential = energies(law, V, kappa)
    assert_equal = partial(torch.testing.assert_close, rtol=0.0, atol=TIME_ERROR)
    assert_equal(path.t, law.t)
    assert_equal(path.x.mean(-2), law.m)
    assert_equal(torch.stack([torch.cov(x.mT, correction=0) for x in path.x]), kappa * law.Sigma)
    assert_equal(path.y, path.x @ law.P)
    assert_equal(path.kinetic / N, kinetic)
    assert_equal(path.potential / N, potential)
    # g is kept: no particle changes its distance from the mean, measured by Sigma
    laws = [Elliptic(mean, scale, family) for mean, scale in zip(law.m, law.Sigma, strict=True)]
    distance = torch.stack([each.distance(x) for each, x in zip(laws, path.x, strict=True)])
    assert_equal(distance, distance[:1].expand_as(distance))
    # the map that moves the particles pushes the start's law forward to the law at the end
    G = torch.linalg.lstsq(x0, path.x[-1]).solution.mT
    end = start.push_forward(G)
    assert (G - torch.eye(2)).norm() > 0.1
    assert_equal(end.m, law.m[-1])
    assert_equal(end.Sigma, law.Sigma[-1])


@EACH
def test_particles_approach_the_law_like_one_over_root_n(family: Family) -> None:
    seeds, steps, h, kappa = 24, 10, 0.1, family.kappa(2)  # Runge-Kutta's own error is far below the sample's
    law = solve_moments(M0, SIGMA0 / kappa, A, V, kappa, steps=steps, h=h)
    counts, errors = torch.tensor([100.0, 1_000.0, 10_000.0]), []
    for N in counts.int().tolist():
        x0 = torch.stack([draw(family, N, M0, SIGMA0 / kappa, seed) for seed in range(seeds)])  # (seeds, N, d)
        x = simulate(LinearAttention(A, V), x0, steps=steps, h=h, integrator="rk4", save_every=steps).x[-1]
        mean = x.mean(-2, keepdim=True)
        covariance = (x - mean).mT @ (x - mean) / N
        off = (mean[:, 0] - law.m[-1]).square().sum(-1) + (covariance - kappa * law.Sigma[-1]).square().sum((-2, -1))
        errors.append(off.mean().sqrt())
    u, v = counts.log().double(), torch.stack(errors).log()
    slope = ((u - u.mean()) * (v - v.mean())).sum() / (u - u.mean()).square().sum()
    assert slope.item() == pytest.approx(-0.5, abs=0.15)
