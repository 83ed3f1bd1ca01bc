"""Elliptic laws E(m, Sigma, g): densities, conditions i) to iii), constants, push-forward, samples."""

import math
from collections.abc import Callable
from dataclasses import asdict

import numpy as np
import pytest
import torch
from scipy import integrate, stats
from scipy.special import kve
from torch import Tensor

from sympformer.errors import InputError
from sympformer.flows.elliptic import (
    FAMILIES,
    Elliptic,
    Family,
    Gaussian,
    GeneralisedHyperbolic,
    Logistic,
    PowerExponential,
    StudentT,
    conditions,
    get_family,
    log_bessel_k,
)
from tests.flows.cases import positive, randn


def matrix(*rows: tuple[float, ...]) -> Tensor:
    return torch.tensor(rows, dtype=torch.float64)


M0 = torch.tensor([0.5, -0.3], dtype=torch.float64)
SIGMA0 = matrix((1.0, 0.4), (0.4, 0.6))
MAP, SHIFT = matrix((1.3, -0.4), (0.7, 0.9)), torch.tensor([0.2, -1.1], dtype=torch.float64)
NAMED: dict[str, Family] = {
    "gaussian": Gaussian(),
    "student_t": StudentT(10.0),
    "logistic": Logistic(),
    "power_exponential": PowerExponential(0.5),
    "generalised_hyperbolic": GeneralisedHyperbolic(-0.5, 1.0, 2.0),  # the normal inverse Gaussian
}
EACH = pytest.mark.parametrize("family", NAMED.values(), ids=NAMED)
MORE = [*NAMED.values(), StudentT(2.01), PowerExponential(4.0), GeneralisedHyperbolic(2.0, 0.3, 5.0)]


def draw(family: Family, n: int, m: Tensor, Sigma: Tensor, seed: int) -> Tensor:
    """n points of E(m, Sigma, g)."""
    return Elliptic(m, Sigma, family).sample(n, torch.Generator().manual_seed(seed))


# --- densities


def test_densities_equal_scipys() -> None:
    x, Sigma = randn(50, 2), SIGMA0.numpy()
    gauss = stats.multivariate_normal(M0.numpy(), Sigma).logpdf(x.numpy())
    student = stats.multivariate_t(M0.numpy(), Sigma, df=5.0).logpdf(x.numpy())
    torch.testing.assert_close(Elliptic(M0, SIGMA0, Gaussian()).log_density(x), torch.from_numpy(gauss))
    torch.testing.assert_close(Elliptic(M0, SIGMA0, StudentT(5.0)).log_density(x), torch.from_numpy(student))
    line = 2 * randn(50, 1)
    laplace = stats.gennorm(beta=1.0, scale=2.0).logpdf(line[:, 0].numpy())  # exp(-|x|/2)
    hyperbolic = stats.genhyperbolic(p=-0.5, a=math.sqrt(2), b=0.0).logpdf(line[:, 0].numpy())  # chi = 1, psi = 2
    for name, wanted in (("power_exponential", laplace), ("generalised_hyperbolic", hyperbolic)):
        law = Elliptic(torch.zeros(1).double(), torch.eye(1).double(), NAMED[name])
        torch.testing.assert_close(law.log_density(line), torch.from_numpy(wanted), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("family", MORE, ids=repr)
def test_densities_integrate_to_one_in_the_plane(family: Family) -> None:
    """By scipy's quadrature along a ray of the plane, with no use of our own."""
    law, ray = Elliptic(M0, SIGMA0, family), matrix((math.cos(1.0), math.sin(1.0)))[0]
    root, volume = torch.linalg.cholesky(SIGMA0), math.sqrt(torch.linalg.det(SIGMA0).item())

    def shell(u: float) -> float:
        return 2 * math.pi * math.exp(2 * u) * law.density(M0 + math.exp(u) * root @ ray).item() * volume

    mass = sum(integrate.quad(shell, a, a + 4, epsabs=1e-10)[0] for a in range(-20, 20, 4))
    assert mass == pytest.approx(1, abs=1e-7)


@EACH
def test_densities_and_samples_pass_gradients(family: Family) -> None:
    def values(x: Tensor, m: Tensor, L: Tensor) -> tuple[Tensor, Tensor]:
        law = Elliptic(m, L @ L.mT, family)
        return law.log_density(x), draw(family, 5, law.m, law.Sigma, 3)

    inputs = [2 * randn(3, 2), M0.clone(), SIGMA0.clone()]
    assert torch.autograd.gradcheck(values, [part.requires_grad_() for part in inputs])


@EACH
def test_batches_dtypes_and_seeds(family: Family) -> None:
    law, x, before = Elliptic(M0.float(), SIGMA0.float(), family), randn(6, 2).float(), torch.get_rng_state()
    assert law.log_density(x).dtype == torch.float32
    torch.testing.assert_close(law.density(x.view(2, 3, 2)), law.log_density(x).exp().view(2, 3))
    first, again, other = (draw(family, 50, M0, SIGMA0, seed) for seed in (1, 1, 2))
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert law.sample(5).dtype == torch.float32


# --- conditions and constants


@pytest.mark.parametrize("family", MORE, ids=repr)
@pytest.mark.parametrize("d", [1, 2, 3, 20])
def test_every_family_meets_the_conditions(family: Family, d: int) -> None:
    found = family.conditions(d)
    assert found.mass == pytest.approx(1, abs=1e-11)
    found.require()
    # iii) is kappa, whatever the closed form
    sphere = math.pi ** (d / 2) / math.gamma(d / 2)
    assert sphere * found.variance / d == pytest.approx(family.kappa(d), rel=1e-9)


def student(v: float, d: int, mass: float = 1.0) -> Callable[[Tensor], Tensor]:
    """log g of the paper's Student-t for any v > 0, also where the law has no variance or mean."""
    constant = math.lgamma((v + d) / 2) - math.lgamma(v / 2) - d / 2 * math.log(v * math.pi) + math.log(mass)
    return lambda s: constant - (v + d) / 2 * torch.log1p(s / v)


@pytest.mark.parametrize(
    ("log_g", "broken"),
    [
        pytest.param(student(2.5, 3), "", id="none"),
        pytest.param(student(2.5, 3, mass=0.9), "i", id="not normalised"),
        pytest.param(student(2.0, 3), "iii", id="logarithmically infinite variance"),
        pytest.param(student(1.5, 3), "iii", id="infinite variance"),
        pytest.param(student(1.0, 3), "ii iii", id="Cauchy: no mean"),
        pytest.param(student(0.5, 3, mass=1.1), "i ii iii", id="all three"),
        pytest.param(lambda s: -1.5 * torch.log(s), "i ii iii", id="no mass at zero nor at infinity"),
    ],
)
def test_conditions_can_fail(log_g: Callable[[Tensor], Tensor], broken: str) -> None:
    found = conditions(log_g, 3)
    assert [line.split(")")[0] for line in found.broken()] == broken.split()
    if broken:
        with pytest.raises(InputError, match="breaks the conditions"):
            found.require()


def test_known_kappas() -> None:
    assert Gaussian().kappa(3) == 1
    assert StudentT(10.0).kappa(3) == pytest.approx(10 / 8)
    assert PowerExponential(1.0).kappa(3) == pytest.approx(1)
    assert PowerExponential(0.5).kappa(1) == pytest.approx(8)  # Laplace of scale 2
    assert PowerExponential(1e6).kappa(3) == pytest.approx(1 / 5, rel=1e-4)  # uniform on the unit ball: 1/(d+2)
    # 1/2 eta(d/2)/eta(d/2 - 1) with Dirichlet's eta(s) = sum (-1)^(k-1) k^-s
    assert Logistic().kappa(2) == pytest.approx(math.log(2), rel=1e-12)
    assert Logistic().kappa(4) == pytest.approx(math.pi**2 / 24 / math.log(2), rel=1e-12)
    assert Logistic().log_constant(2) == pytest.approx(math.log(2 / math.pi), rel=1e-12)
    for d in (1, 4):  # the normal inverse Gaussian: E[W] = sqrt(chi/psi)
        assert GeneralisedHyperbolic(-0.5, 1.0, 4.0).kappa(d) == pytest.approx(0.5, rel=1e-12)


@pytest.mark.parametrize(
    "family", [Gaussian(), StudentT(5.0), PowerExponential(0.5), GeneralisedHyperbolic(1.5, 2.0, 0.5)], ids=repr
)
@pytest.mark.parametrize("d", [1, 2, 5])
def test_closed_constants_are_the_quadratures(family: Family, d: int) -> None:
    assert family.kappa(d) == pytest.approx(Family.kappa(family, d), rel=1e-11)
    assert family.log_constant(d) == pytest.approx(Family.log_constant(family, d), abs=1e-11)


@pytest.mark.parametrize("order", [0.0, 0.3, 0.5, 1.0, 2.5, 7.0, -4.5, 50.0])
def test_bessel_function_equals_scipys(order: float) -> None:
    z = torch.logspace(-2, 4, 61, dtype=torch.float64)
    wanted = torch.from_numpy(kve(order, z.numpy())).log() - z
    torch.testing.assert_close(log_bessel_k(order, z), wanted, rtol=1e-12, atol=1e-12)
    assert torch.autograd.gradcheck(lambda u: log_bessel_k(order, u), z[::6].clone().requires_grad_())


def test_bessel_function_far_from_one() -> None:
    """K_v(z) ~ Gamma(v)/2 (2/z)^v near zero, sqrt(pi/(2z)) exp(-z) far away, where scipy leaves the numbers."""
    z, far = torch.tensor([1e-12], dtype=torch.float64), torch.tensor([1e9, 1e200], dtype=torch.float64)
    near = math.lgamma(40.0) - math.log(2) + 40 * (math.log(2) - z.log())
    torch.testing.assert_close(log_bessel_k(40.0, z), near, rtol=1e-12, atol=0)
    torch.testing.assert_close(log_bessel_k(2.0, far), torch.log(math.pi / (2 * far)) / 2 - far, rtol=1e-12, atol=0)


# --- push-forward


@EACH
@pytest.mark.parametrize("M", [MAP, -MAP @ matrix((0.0, 1.0), (1.0, 0.0))], ids=["map", "mirror"])
def test_push_forward_is_the_change_of_variables(family: Family, M: Tensor) -> None:
    """The density of M x + b at M x + b is that of x at x, divided by |det M|; nothing of the formula is used."""
    law, x = Elliptic(M0, SIGMA0, family), 2 * randn(40, 2)
    moved = law.push_forward(M, SHIFT)
    wanted = law.log_density(x) - torch.linalg.det(M).abs().log()
    torch.testing.assert_close(moved.log_density(x @ M.mT + SHIFT), wanted, rtol=1e-11, atol=1e-11)
    assert moved.family is family
    torch.testing.assert_close(moved.m, M @ M0 + SHIFT)
    torch.testing.assert_close(moved.covariance, M @ law.covariance @ M.mT)


# --- samples


def radial_cdf(family: Family, d: int, r: Tensor) -> Tensor:
    """P(R <= r), summed from the density: R has the density ~ r^(d-1) g(r^2) on a fine grid of log r."""
    u = torch.linspace(-20, 20, 40001, dtype=torch.float64)
    density = torch.exp(d * u + family.log_g((2 * u).exp(), d))
    mass = torch.cumulative_trapezoid(density, u) * 2 * math.pi ** (d / 2) / math.gamma(d / 2)
    assert mass[-1].item() == pytest.approx(1, abs=1e-6)
    return torch.from_numpy(np.interp(r.log().numpy(), u[1:].numpy(), mass.numpy()))


@pytest.mark.parametrize("parameter", [0.3, 1.0, 2.5, 4.0, 10.0, 60.0])  # 60: near the uniform ball
@pytest.mark.parametrize("d", [1, 3, 5])
def test_radial_laws_are_known_ones(parameter: float, d: int) -> None:
    """R^(2 beta)/2 ~ Gamma(d/(2 beta), 1) for the power-exponential, R^2/d ~ F(d, v) for Student-t."""
    r = torch.logspace(-1, 2, 50, dtype=torch.float64)
    shape = torch.full_like(r, d / (2 * parameter))
    gamma = torch.special.gammainc(shape, r ** (2 * parameter) / 2)
    torch.testing.assert_close(radial_cdf(PowerExponential(parameter), d, r), gamma, rtol=0, atol=1e-5)
    if parameter > 2:
        wanted = torch.from_numpy(stats.f.cdf((r**2 / d).numpy(), d, parameter))
        torch.testing.assert_close(radial_cdf(StudentT(parameter), d, r), wanted, rtol=0, atol=1e-5)


HEAVY = [StudentT(2.5), PowerExponential(0.3), GeneralisedHyperbolic(-3.0, 2.0, 1e-6)]  # the last nearly Student-t, 6
DRAWN = [
    *(Gaussian(), StudentT(6.5), StudentT(10.0), Logistic(), *HEAVY),
    *(PowerExponential(beta) for beta in (0.5, 1.0, 4.0, 60.0)),
    *(GeneralisedHyperbolic(*p) for p in ((-0.5, 1.0, 2.0), (1.0, 0.01, 1.0), (30.0, 100.0, 2.0))),
]


@pytest.mark.parametrize("family", DRAWN, ids=repr)
@pytest.mark.parametrize("d", [1, 2, 5])
def test_samples_follow_their_law(family: Family, d: int) -> None:
    """Kolmogorov-Smirnov between distances and density, which another family fails; directions; mean, covariance."""
    n, m, Sigma = 20_000, torch.arange(1.0, d + 1, dtype=torch.float64), positive(d)
    law, x = Elliptic(m, Sigma, family), draw(family, n, m, Sigma, 7)
    R, other = law.distance(x), PowerExponential(0.3) if isinstance(family, StudentT) else StudentT(3.0)
    assert stats.kstest(radial_cdf(family, d, R).numpy(), "uniform").pvalue > 1e-3
    assert stats.kstest(radial_cdf(other, d, R).numpy(), "uniform").pvalue < 1e-6
    U = torch.linalg.solve(torch.linalg.cholesky(Sigma), (x - m).mT).mT / R.unsqueeze(-1)
    assert U.mean(0).abs().max() < 5 / math.sqrt(n)
    assert (U.mT @ U / n - torch.eye(d) / d).abs().max() < 5 / math.sqrt(n)
    assert abs(torch.corrcoef(torch.stack((R.log(), U[:, 0])))[0, 1]) < 5 / math.sqrt(n)
    products = (x - m).unsqueeze(-1) * (x - m).unsqueeze(-2)
    for sample, expected in ((x, law.m), (products, law.covariance))[: 1 if family in HEAVY else 2]:
        assert ((sample.mean(0) - expected).abs() < 5 * sample.std(0) / math.sqrt(n)).all()


@pytest.mark.parametrize("family", [StudentT(1e45), PowerExponential(1e4)], ids=repr)
def test_extreme_parameters_are_sampled_in_float32(family: Family) -> None:
    x = draw(family, 10_000, torch.zeros(3), torch.eye(3), 10)
    assert x.square().mean() == pytest.approx(family.kappa(3), rel=0.05)


# --- by name, and what a caller can get wrong


def test_families_by_name() -> None:
    assert {name: get_family(name, **asdict(family)) for name, family in NAMED.items()} == NAMED  # type: ignore[call-overload]
    assert {name: type(family) for name, family in NAMED.items()} == FAMILIES
    assert get_family("generalised_hyperbolic", lam=1.0, psi=3.0, chi=2.0) == GeneralisedHyperbolic(1.0, 2.0, 3.0)


LAW = Elliptic(M0, SIGMA0, Gaussian())


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: StudentT(2.0), "above 2 for a finite covariance, got v = 2"),
        (lambda: StudentT(math.nan), "v must be finite"),
        (lambda: PowerExponential(0.0), "beta must be positive"),
        (lambda: GeneralisedHyperbolic(1.0, 0.0, 1.0), "chi must be positive"),
        (lambda: GeneralisedHyperbolic(1.0, 1.0, math.inf), "psi must be positive and finite"),
        (lambda: GeneralisedHyperbolic(1e4, 1.0, 1.0), "lam between -300 and 300"),
        (lambda: GeneralisedHyperbolic(1.0, 1e-8, 1e-8), "chi psi of at least 1e-12"),
        (lambda: get_family("student"), "did you mean 'student_t'"),
        (lambda: get_family("student_t"), "takes the parameters \\['v'\\], got \\[\\]"),
        (lambda: get_family("gaussian", v=3.0), "takes the parameters \\[\\], got \\['v'\\]"),
        (lambda: LAW.sample(0), "n must be at least 1"),
        (lambda: Elliptic(M0[:1], SIGMA0, Gaussian()), "m must be finite, of shape"),
        (lambda: Elliptic(M0, -SIGMA0, Gaussian()), "Sigma must be positive definite"),
        (lambda: LAW.density(positive(3)), r"x must have shape \(\.\.\., 2\)"),
        (lambda: LAW.push_forward(matrix((1.0, 2.0), (2.0, 4.0))), "must be invertible"),
        (lambda: LAW.push_forward(positive(3)), "Sigma and M must agree"),
        (lambda: conditions(lambda s: -s, 0), "d must be at least 1"),
        (lambda: conditions(lambda s: -2.5 * torch.log1p(s) - torch.log(torch.log(s + 3)), 3), "too slowly to tell"),
        (lambda: conditions(lambda s: s * math.nan, 3), "a number below infinity"),
        (lambda: conditions(lambda s: torch.where(torch.sin(300 * s) > 0, -s, -2 * s), 3), "does not settle"),
    ],
)
def test_bad_laws_are_named(call: Callable[[], object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        call()
