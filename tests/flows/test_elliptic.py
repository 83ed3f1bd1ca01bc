"""Elliptic laws: the closed equations against particles, and the samplers against their exact radial laws."""

import math
from collections.abc import Callable
from functools import partial

import pytest
import torch
from scipy import stats
from torch import Tensor

from sympformer.errors import DivergenceError, InputError
from sympformer.flows import (
    ACCELERATED,
    Constant,
    LinearAttention,
    LogLinear,
    Nesterov,
    SoftmaxAttention,
    System,
    simulate,
)
from sympformer.flows.elliptic import (
    FAMILIES,
    Family,
    Gaussian,
    Moments,
    PowerExponential,
    StudentT,
    centered_slopes,
    get_family,
    moment_slopes,
    solve_moments,
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
    pytest.param(PowerExponential(0.5), id="power_exponential"),
]


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


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


# --- the closed equations ---


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


# --- the families ---


@pytest.mark.parametrize(
    "family",
    [Gaussian(), StudentT(6.5), PowerExponential(0.5), PowerExponential(1.0), PowerExponential(3.0)],
    ids=repr,
)
@pytest.mark.parametrize("d", [1, 2, 4])
def test_samples_have_mean_m_and_covariance_kappa_sigma(family: Family, d: int) -> None:
    n, m, Sigma = 40_000, torch.arange(1.0, d + 1, dtype=torch.float64), random_positive(d, 5)
    x = family.sample(n, m, Sigma, seeded(6))
    assert x.shape == (n, d)
    products = (x - m).unsqueeze(-1) * (x - m).unsqueeze(-2)
    for sample, expected in ((x, m), (products, family.kappa(d) * Sigma)):
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
    x = family.sample(n, torch.zeros(d, dtype=torch.float64), I, seeded(7))
    radius = x.norm(dim=-1)
    assert stats.kstest(cdf(radius, parameter, d).numpy(), "uniform").pvalue > 1e-3
    U = x / radius.unsqueeze(-1)
    assert U.mean(0).abs().max() < 5 / math.sqrt(n)
    assert (U.mT @ U / n - I / d).abs().max() < 5 / math.sqrt(n)
    assert abs(torch.corrcoef(torch.stack((radius, U[:, 0])))[0, 1]) < 5 / math.sqrt(n)


def test_known_kappas() -> None:
    assert Gaussian().kappa(3) == 1
    assert StudentT(10.0).kappa(3) == pytest.approx(10 / 8)
    assert PowerExponential(1.0).kappa(3) == pytest.approx(1)
    assert PowerExponential(0.5).kappa(1) == pytest.approx(8)  # Laplace of scale 2
    assert PowerExponential(1e6).kappa(3) == pytest.approx(1 / 5, rel=1e-4)  # uniform on the unit ball: 1/(d+2)


@pytest.mark.parametrize("family", FAMILY_CASES)
def test_seeds_are_kept_apart_from_the_global_one(family: Family) -> None:
    before = torch.get_rng_state()
    first, again, other = (family.sample(50, M0, SIGMA0, seeded(seed)) for seed in (1, 1, 2))
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert family.sample(5, M0.float(), SIGMA0.float()).dtype == torch.float32


@pytest.mark.parametrize("family", FAMILY_CASES)
def test_gradients_reach_the_law_that_is_sampled(family: Family) -> None:
    def draw(m: Tensor, L: Tensor) -> Tensor:
        return family.sample(5, m, L @ L.mT, seeded(3))

    assert torch.autograd.gradcheck(draw, [M0.clone().requires_grad_(), SIGMA0.clone().requires_grad_()])


@pytest.mark.parametrize("family", [StudentT(1e45), PowerExponential(1e4)], ids=repr)
def test_extreme_parameters_are_sampled_in_float32(family: Family) -> None:
    x = family.sample(10_000, torch.zeros(3), torch.eye(3), seeded(10))
    assert x.square().mean() == pytest.approx(family.kappa(3), rel=0.05)


def test_families_by_name() -> None:
    assert get_family("student_t", v=10.0) == StudentT(10.0)
    assert get_family("power_exponential", beta=0.5) == PowerExponential(0.5)
    assert get_family("gaussian") == Gaussian()
    assert set(FAMILIES.values()) == {Gaussian, StudentT, PowerExponential}


# --- particles ---


@pytest.mark.parametrize("family", FAMILY_CASES)
@pytest.mark.parametrize("integrator", ["rk4", *ACCELERATED])
def test_particles_stay_a_linear_image_of_their_start(family: Family, integrator: str) -> None:
    x0 = family.sample(200, M0, SIGMA0 / family.kappa(2), seeded(8))
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
    x0 = Gaussian().sample(200, M0, SIGMA0, seeded(8))
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
    x0 = family.sample(N, M0, SIGMA0 / kappa, seeded(9))
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
    distance = mahalanobis(path.x, m, Sigma)
    assert_equal(distance, distance[:1].expand_as(distance))


def mahalanobis(x: Tensor, m: Tensor, Sigma: Tensor) -> Tensor:
    """|L^-1 (x - m)| with L L' = Sigma, (..., N)."""
    centered = (x - m.unsqueeze(-2)).mT
    return torch.linalg.solve_triangular(torch.linalg.cholesky(Sigma), centered, upper=False).norm(dim=-2)


@pytest.mark.parametrize("family", FAMILY_CASES)
def test_particles_approach_the_law_like_one_over_root_n(family: Family) -> None:
    seeds, steps, h = 24, 10, 0.1  # Runge-Kutta's own error is far below the sample's
    kappa = family.kappa(2)
    Sigma0 = SIGMA0 / kappa
    law = solve_moments(M0, Sigma0, A, V, kappa, steps=steps, h=h)
    counts, errors = (100, 1_000, 10_000), []
    for N in counts:
        x0 = torch.stack([family.sample(N, M0, Sigma0, seeded(seed)) for seed in range(seeds)])  # (seeds, N, d)
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


# --- energy ---


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


# --- what a caller can get wrong ---


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
    ("call", "message"),
    [
        (lambda: StudentT(2.0), "above 2 for a finite covariance, got v = 2"),
        (lambda: StudentT(math.nan), "v must be finite"),
        (lambda: PowerExponential(0.0), "beta must be positive"),
        (lambda: get_family("student"), "did you mean 'student_t'"),
        (lambda: get_family("student_t"), "takes the parameters \\['v'\\], got \\[\\]"),
        (lambda: get_family("gaussian", v=3.0), "takes the parameters \\[\\], got \\['v'\\]"),
        (lambda: Gaussian().sample(0, M0, SIGMA0), "n must be at least 1"),
        (lambda: Gaussian().sample(5, M0[:1], SIGMA0), "m must be finite, of shape"),
        (lambda: Gaussian().sample(5, M0, -SIGMA0), "Sigma must be positive definite"),
    ],
)
def test_bad_families_are_named(call: Callable[[], object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        call()


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
