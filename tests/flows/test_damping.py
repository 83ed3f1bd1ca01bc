"""alpha, eta, sigma and the exponential weight against independent quadrature, limits and gradients."""

import math
from itertools import pairwise

import pytest
import torch
from scipy.integrate import quad

from sympformer import flows
from sympformer.flows.damping import _gauss_legendre, log_linear_weight
from tests.flows.cases import DAMPINGS, SYSTEMS, D, randn, relative_error

SCHEDULES = {
    "none": flows.Constant(0.0, t0=1.0),
    "constant": flows.Constant(0.7, t0=1.0),
    "strong": flows.Constant(40.0, t0=1.0),
    "nesterov": flows.Nesterov(3.0),
    "weak nesterov": flows.Nesterov(0.5),
    "log-linear": flows.LogLinear(3.0, 1e-4),
    "strong log-linear": flows.LogLinear(10.7, 25.0),
}
TIMES = (1e-4, 0.1, 1.0, 7.0, 1000.0)
STEPS = (1e-6, 1e-3, 0.1, 1.0, 10.0)


def weight_by_quadrature(r: float, m: float, t: float, h: float) -> float:
    """Adaptive quadrature of integral_t^{t+h} (s/(t+h))^r exp(-m (t+h-s)) ds on a geometric mesh towards both ends."""
    end = t + h
    mesh = sorted({0.0, h, *(h * 2.0**-k for k in range(1, 22)), *(h - h * 2.0**-k for k in range(1, 22))})
    pieces = (
        quad(lambda u: ((end - u) / end) ** r * math.exp(-m * u), a, b, epsabs=0, epsrel=1e-13)[0]
        for a, b in pairwise(mesh)
        if m * a < 700
    )
    return math.fsum(pieces)


@pytest.mark.parametrize("h", STEPS)
@pytest.mark.parametrize("t", TIMES)
@pytest.mark.parametrize("name", SCHEDULES)
def test_sigma_and_weight_equal_quadrature(name: str, t: float, h: float) -> None:
    damping = SCHEDULES[name]
    accumulated = quad(lambda s: damping.alpha(s).item(), t, t + h, epsabs=0, epsrel=1e-12, limit=500)[0]
    assert damping.sigma(t, h).item() == pytest.approx(math.exp(-accumulated), rel=1e-10, abs=1e-300)
    assert (damping.eta(t + h) - damping.eta(t)).item() == pytest.approx(accumulated, rel=1e-10, abs=1e-10)
    reference = weight_by_quadrature(float(damping.r), float(damping.m), t, h)
    assert damping.weight(t, h).item() == pytest.approx(reference, rel=1e-10)


def test_closed_forms_of_the_weight() -> None:
    t, h = 1.7, 0.9
    assert flows.Constant(0.6).weight(t, h).item() == pytest.approx((1 - math.exp(-0.6 * h)) / 0.6, rel=1e-14)
    # integral of (s/T)^r: (T - t (t/T)^r) / (r + 1), not the h/(r+1) that holds from time zero only
    T = t + h
    assert flows.Nesterov(3.0).weight(t, h).item() == pytest.approx((T - t * (t / T) ** 3) / 4, rel=1e-13)
    assert flows.Nesterov(3.0, t0=1e-9).weight(1e-9, h).item() == pytest.approx(h / 4, rel=1e-8)


@pytest.mark.parametrize("name", DAMPINGS)
def test_eta_is_the_integral_of_alpha_from_the_start(name: str) -> None:
    damping = DAMPINGS[name]()
    t = torch.linspace(damping.t0 + 0.1, 5, 7, dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(damping.eta(t).sum(), t)
    assert damping.eta(damping.t0).item() == 0
    assert relative_error(slope, damping.alpha(t)) < 1e-13


def test_learnable_coefficients_pass_gradients() -> None:
    r, m = (torch.tensor(v, dtype=torch.float64, requires_grad=True) for v in (2.3, 0.4))
    t, h = (torch.tensor(v, dtype=torch.float64, requires_grad=True) for v in (1.2, 0.7))

    def factors(*values: torch.Tensor) -> tuple[torch.Tensor, ...]:
        damping = flows.LogLinear(values[0], values[1])
        return damping.alpha(values[2]), damping.sigma(*values[2:]), damping.weight(*values[2:])

    assert torch.autograd.gradcheck(factors, (r, m, t, h))
    assert torch.autograd.gradcheck(lambda m, h: flows.Constant(m).weight(0.0, h), (m, h))


@pytest.mark.parametrize("h", STEPS)
@pytest.mark.parametrize("t", TIMES)
@pytest.mark.parametrize(("r", "m"), [(3.0, 1e-4), (0.5, 0.0), (10.7, 25.0)])
def test_gradient_of_the_weight_is_the_quadratures(r: float, m: float, t: float, h: float) -> None:
    """The gradient written out, against autograd through the quadrature; (t, h) as vectors, r and m shared by both."""
    values = ([t, 2 * t], [h, h / 3], r, m)
    inputs = [torch.tensor(value, dtype=torch.float64, requires_grad=True) for value in values]
    weight = flows.LogLinear(inputs[2], inputs[3]).weight(inputs[0], inputs[1])
    naive = log_linear_weight(*inputs)
    assert torch.equal(weight, naive)
    g = torch.tensor([1.0, -0.7], dtype=torch.float64)
    for got, want in zip(torch.autograd.grad(weight, inputs, g), torch.autograd.grad(naive, inputs, g), strict=True):
        torch.testing.assert_close(got, want, rtol=1e-8, atol=1e-12)


def test_what_is_kept_in_inference_mode_serves_gradients_later() -> None:
    """A model may generate first and train afterwards: the quadrature's nodes are made once for both."""
    _gauss_legendre.cache_clear()
    with torch.inference_mode():
        flows.LogLinear(3.0, 0.2).weight(1.0, 0.5)
    inputs = [torch.tensor(value, dtype=torch.float64, requires_grad=True) for value in (1.0, 0.5, 3.0, 0.2)]
    assert torch.autograd.gradcheck(log_linear_weight, inputs)


def test_vectors_of_coefficients() -> None:
    r, t, h = (torch.tensor(v, dtype=torch.float64) for v in ([1.0, 3.0], [0.5, 2.0], [0.1, 4.0]))
    together = flows.LogLinear(r, 0.2).weight(t, h)
    apart = [flows.LogLinear(float(r[i]), 0.2).weight(float(t[i]), float(h[i])) for i in range(2)]
    assert relative_error(together, torch.stack(apart)) < 1e-14


def test_float32_is_accurate_to_its_rounding() -> None:
    for t, h in ((1e-3, 1e-3), (1.0, 10.0), (100.0, 1e-4)):
        small = flows.LogLinear(torch.tensor(3.0), torch.tensor(0.3)).weight(torch.tensor(t), torch.tensor(h))
        assert small.dtype == torch.float32
        assert small.item() == pytest.approx(flows.LogLinear(3.0, 0.3).weight(t, h).item(), rel=1e-5)


@pytest.mark.parametrize("damping", DAMPINGS)
@pytest.mark.parametrize("name", SYSTEMS)
def test_undamped_form_is_the_damped_flow(name: str, damping: str) -> None:
    """H~ = e^eta H(x, e^-eta P) generates (x', P'), and P = e^eta y turns them into the damped equations."""
    system, schedule, t = SYSTEMS[name](), DAMPINGS[damping](), 1.8
    undamped = flows.Undamped(system, schedule)
    x, y = randn(5, D).requires_grad_(), randn(5, D, seed=5)
    scale = torch.exp(schedule.eta(t))
    P = (scale * y).requires_grad_()
    dx, dP = torch.autograd.grad(undamped.hamiltonian(t, x, P), (x, P))
    assert relative_error(undamped.velocity(t, x, P), dP) < 1e-12
    assert relative_error(undamped.force(t, x, P), -dx) < 1e-12
    # y = e^-eta P:  y' = e^-eta P' - alpha y
    damped = system.force(x, y) - schedule.alpha(t) * y
    assert relative_error(undamped.force(t, x, P) / scale - schedule.alpha(t) * y, damped) < 1e-12
    assert relative_error(undamped.velocity(t, x, P), system.velocity(x, y)) < 1e-12


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: flows.Nesterov(3.0, t0=0.0), "t0 must be positive when r > 0"),
        (lambda: flows.LogLinear(-1.0), "r must not be negative"),
        (lambda: flows.Constant(-0.1), "m must not be negative"),
        (lambda: flows.Constant(math.inf), "must be finite"),
    ],
)
def test_bad_schedules_are_refused(call: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()  # type: ignore[operator]
