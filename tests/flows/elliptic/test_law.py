"""The class E(m, Sigma, g): densities, its conditions i) to iii), its constants, its push-forward."""

import math
from collections.abc import Callable

import pytest
import torch
from scipy import integrate, stats
from scipy.special import kve
from torch import Tensor

from sympformer.errors import InputError
from sympformer.flows import LinearAttention, simulate
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
    solve_moments,
)
from tests.flows.elliptic.cases import FAMILY_CASES, M0, SIGMA0, A, V, draw, matrix, random_positive, seeded

MORE = [StudentT(2.01), PowerExponential(4.0), GeneralisedHyperbolic(2.0, 0.3, 5.0)]


def points(n: int, d: int) -> Tensor:
    return 2 * torch.randn(n, d, generator=seeded(4), dtype=torch.float64)


# --- densities


def test_densities_equal_scipys() -> None:
    x, Sigma = points(50, 2), SIGMA0.numpy()
    gauss = stats.multivariate_normal(M0.numpy(), Sigma).logpdf(x.numpy())
    student = stats.multivariate_t(M0.numpy(), Sigma, df=5.0).logpdf(x.numpy())
    torch.testing.assert_close(Elliptic(M0, SIGMA0, Gaussian()).log_density(x), torch.from_numpy(gauss))
    torch.testing.assert_close(Elliptic(M0, SIGMA0, StudentT(5.0)).log_density(x), torch.from_numpy(student))
    line = points(50, 1)
    laplace = stats.gennorm(beta=1.0, scale=2.0).logpdf(line[:, 0].numpy())  # exp(-|x|/2)
    hyperbolic = stats.genhyperbolic(p=-0.5, a=math.sqrt(2), b=0.0).logpdf(line[:, 0].numpy())  # chi = 1, psi = 2
    for family, wanted in ((PowerExponential(0.5), laplace), (GeneralisedHyperbolic(-0.5, 1.0, 2.0), hyperbolic)):
        law = Elliptic(torch.zeros(1).double(), torch.eye(1).double(), family)
        torch.testing.assert_close(law.log_density(line), torch.from_numpy(wanted), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("family", [*(case.values[0] for case in FAMILY_CASES), *MORE], ids=repr)
def test_densities_integrate_to_one_in_the_plane(family: Family) -> None:
    """By scipy's quadrature along a ray of the plane, with no use of our own."""
    law = Elliptic(M0, SIGMA0, family)
    root = torch.linalg.cholesky(SIGMA0)

    def shell(u: float) -> float:
        r = math.exp(u)
        x = M0 + r * root @ torch.tensor([math.cos(1.0), math.sin(1.0)], dtype=torch.float64)
        return 2 * math.pi * r**2 * law.density(x).item() * math.sqrt(torch.linalg.det(SIGMA0).item())

    mass = sum(integrate.quad(shell, a, a + 4, epsabs=1e-10)[0] for a in range(-20, 20, 4))
    assert mass == pytest.approx(1, abs=1e-7)


@pytest.mark.parametrize("family", FAMILY_CASES)
def test_log_densities_pass_gradients(family: Family) -> None:
    def value(x: Tensor, m: Tensor, L: Tensor) -> Tensor:
        return Elliptic(m, L @ L.mT, family).log_density(x)

    inputs = [points(3, 2), M0.clone(), SIGMA0.clone()]
    assert torch.autograd.gradcheck(value, [part.requires_grad_() for part in inputs])


def test_densities_keep_batches_and_dtypes() -> None:
    law, x = Elliptic(M0.float(), SIGMA0.float(), GeneralisedHyperbolic(1.0, 1.0, 1.0)), points(6, 2).float()
    assert law.log_density(x).dtype == torch.float32
    torch.testing.assert_close(law.density(x.view(2, 3, 2)), law.log_density(x).exp().view(2, 3))


# --- conditions


@pytest.mark.parametrize("family", [*(case.values[0] for case in FAMILY_CASES), *MORE], ids=repr)
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


@pytest.mark.parametrize(
    ("log_g", "message"),
    [
        (lambda s: -2.5 * torch.log1p(s) - torch.log(torch.log(s + 3)), "falls too slowly to tell"),
        (lambda s: s * math.nan, "a number below infinity"),
        (lambda s: torch.where(torch.sin(300 * s) > 0, -s, -2 * s), "does not settle"),
    ],
)
def test_what_cannot_be_decided_is_refused(log_g: Callable[[Tensor], Tensor], message: str) -> None:
    with pytest.raises(InputError, match=message):
        conditions(log_g, 3)


# --- constants


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


def test_limits_of_the_families() -> None:
    """Student-t and the generalised hyperbolic law tend to their neighbours, densities and all."""
    s = torch.logspace(-3, 2, 20, dtype=torch.float64)
    torch.testing.assert_close(StudentT(1e12).log_g(s, 3), Gaussian().log_g(s, 3), rtol=1e-8, atol=1e-8)
    hyperbolic = GeneralisedHyperbolic(-3.0, 6.0, 1e-8)  # chi = v, lam = -v/2, psi -> 0
    torch.testing.assert_close(hyperbolic.log_g(s, 3), StudentT(6.0).log_g(s, 3), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("order", [0.0, 0.3, 0.5, 1.0, 2.5, 7.0, -4.5, 50.0])
def test_bessel_function_equals_scipys(order: float) -> None:
    z = torch.logspace(-2, 4, 61, dtype=torch.float64)
    wanted = torch.from_numpy(kve(order, z.numpy())).log() - z
    torch.testing.assert_close(log_bessel_k(order, z), wanted, rtol=1e-12, atol=1e-12)
    assert torch.autograd.gradcheck(lambda u: log_bessel_k(order, u), z[::6].clone().requires_grad_())


def test_bessel_function_far_from_one() -> None:
    """K_v(z) ~ Gamma(v)/2 (2/z)^v near zero, sqrt(pi/(2z)) exp(-z) far away, where scipy leaves the numbers."""
    z = torch.tensor([1e-12], dtype=torch.float64)
    near = math.lgamma(40.0) - math.log(2) + 40 * (math.log(2) - z.log())
    torch.testing.assert_close(log_bessel_k(40.0, z), near, rtol=1e-12, atol=0)
    far = torch.tensor([1e9, 1e200], dtype=torch.float64)
    torch.testing.assert_close(log_bessel_k(2.0, far), torch.log(math.pi / (2 * far)) / 2 - far, rtol=1e-12, atol=0)


# --- push-forward

MAP = matrix((1.3, -0.4), (0.7, 0.9))
SHIFT = torch.tensor([0.2, -1.1], dtype=torch.float64)


@pytest.mark.parametrize("family", FAMILY_CASES)
def test_push_forward_is_the_change_of_variables(family: Family) -> None:
    """The density of M x + b at M x + b is that of x at x, divided by |det M|; nothing of the formula is used."""
    law, x = Elliptic(M0, SIGMA0, family), points(40, 2)
    moved = law.push_forward(MAP, SHIFT)
    wanted = law.log_density(x) - torch.linalg.det(MAP).abs().log()
    torch.testing.assert_close(moved.log_density(x @ MAP.mT + SHIFT), wanted, rtol=1e-11, atol=1e-11)
    assert moved.family is family
    torch.testing.assert_close(moved.mean, MAP @ M0 + SHIFT)
    torch.testing.assert_close(moved.covariance, MAP @ law.covariance @ MAP.mT)


def test_push_forward_of_a_mirror_and_of_a_composition() -> None:
    law, x = Elliptic(M0, SIGMA0, StudentT(5.0)), points(40, 2)
    twice, once = law.push_forward(MAP, SHIFT).push_forward(-MAP), law.push_forward(-MAP @ MAP, -MAP @ SHIFT)
    torch.testing.assert_close(twice.log_density(x), once.log_density(x), rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("family", FAMILY_CASES)
def test_the_flow_is_a_push_forward(family: Family) -> None:
    """The linear map that moves the particles carries the start's law to the law that the moment equations give."""
    x0 = draw(family, 100, M0, SIGMA0 / family.kappa(2), 9)
    start = Elliptic(x0.mean(0), torch.cov(x0.mT, correction=0) / family.kappa(2), family)
    path = simulate(LinearAttention(A, V), x0, steps=200, h=0.005, integrator="rk4", save_every=200)
    moments = solve_moments(start.m, start.Sigma, A, V, family.kappa(2), steps=200, h=0.005)
    G = torch.linalg.lstsq(x0, path.x[-1]).solution.mT
    end = start.push_forward(G)
    assert (G - torch.eye(2)).norm() > 0.1
    torch.testing.assert_close(end.m, moments.m[-1], rtol=0, atol=1e-9)
    torch.testing.assert_close(end.Sigma, moments.Sigma[-1], rtol=0, atol=1e-9)


# --- by name, and what a caller can get wrong


def test_families_by_name() -> None:
    assert get_family("student_t", v=10.0) == StudentT(10.0)
    assert get_family("power_exponential", beta=0.5) == PowerExponential(0.5)
    assert get_family("gaussian") == Gaussian()
    assert get_family("logistic") == Logistic()
    assert get_family("generalised_hyperbolic", lam=1.0, psi=3.0, chi=2.0) == GeneralisedHyperbolic(1.0, 2.0, 3.0)
    assert set(FAMILIES.values()) == {Gaussian, StudentT, Logistic, PowerExponential, GeneralisedHyperbolic}


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
        (lambda: draw(Gaussian(), 0, M0, SIGMA0, 0), "n must be at least 1"),
        (lambda: draw(Gaussian(), 5, M0[:1], SIGMA0, 0), "m must be finite, of shape"),
        (lambda: draw(Gaussian(), 5, M0, -SIGMA0, 0), "Sigma must be positive definite"),
        (lambda: Elliptic(M0, SIGMA0, Gaussian()).density(random_positive(3, 1)), r"x must have shape \(\.\.\., 2\)"),
        (lambda: Elliptic(M0, SIGMA0, Gaussian()).push_forward(matrix((1.0, 2.0), (2.0, 4.0))), "must be invertible"),
        (lambda: Elliptic(M0, SIGMA0, Gaussian()).push_forward(random_positive(3, 1)), "Sigma and M must agree"),
        (lambda: conditions(lambda s: -s, 0), "d must be at least 1"),
    ],
)
def test_bad_laws_are_named(call: Callable[[], object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        call()
