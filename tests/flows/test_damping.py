"""alpha, eta, sigma and the exponential weight against independent quadrature, limits and gradients."""

import math
from collections.abc import Callable
from itertools import pairwise

import pytest
import torch
from scipy.integrate import quad
from torch import Tensor

from sympformer import flows
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


def weight_by_quadrature(
    r: float, m: float, t: float, h: float, factor: Callable[[float], float] = lambda u: 1.0
) -> float:
    """integral_0^h factor(u) (1 - u/(t+h))^r exp(-m u) du, adaptively on a geometric mesh towards both ends."""
    end = t + h
    mesh = sorted({0.0, h, *(h * 2.0**-k for k in range(1, 22)), *(h - h * 2.0**-k for k in range(1, 22))})
    pieces = (
        quad(lambda u: factor(u) * ((end - u) / end) ** r * math.exp(-m * u), a, b, epsabs=0, epsrel=1e-13)[0]
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


def test_learnable_coefficients_pass_gradients() -> None:
    """Also of what was kept in inference mode: a model may generate first, and the quadrature's nodes are made once."""
    with torch.inference_mode():
        flows.LogLinear(3.0, 0.2).weight(1.0, 0.5)
    r, m, t, h = (torch.tensor(v, dtype=torch.float64, requires_grad=True) for v in (2.3, 0.4, 1.2, 0.7))

    def factors(r: Tensor, m: Tensor, *step: Tensor) -> tuple[Tensor, ...]:
        damping = flows.LogLinear(r, m)
        return damping.alpha(step[0]), damping.sigma(*step), damping.weight(*step)

    assert torch.autograd.gradcheck(factors, (r, m, t, h))
    assert torch.autograd.gradcheck(lambda m, h: flows.Constant(m).weight(0.0, h), (m, h))


@pytest.mark.parametrize("h", STEPS)
@pytest.mark.parametrize("t", TIMES)
@pytest.mark.parametrize(("r", "m"), [(3.0, 1e-4), (0.5, 0.0), (10.7, 25.0)])
def test_gradient_of_the_weight(r: float, m: float, t: float, h: float) -> None:
    """dw/dh = 1 - alpha(T) w and dw/dt = dw/dh - sigma with T = t + h; dw/dr and dw/dm against quadrature."""
    inputs = [torch.tensor(value, dtype=torch.float64, requires_grad=True) for value in (t, h, r, m)]
    damping, end = flows.LogLinear(inputs[2], inputs[3]), t + h
    w = damping.weight(inputs[0], inputs[1])
    along_t, along_h, along_r, along_m = (slope.item() for slope in torch.autograd.grad(w, inputs))
    want, sigma = (1 - damping.alpha(end) * w).item(), damping.sigma(t, h).item()
    assert along_h == pytest.approx(want, rel=1e-8, abs=1e-11)
    assert along_t == pytest.approx(want - sigma, rel=1e-8, abs=1e-11)
    by_r = weight_by_quadrature(r, m, t, h, lambda u: math.log1p(-u / end) if u < end else 0.0)
    assert along_r == pytest.approx(by_r, rel=1e-8)
    assert along_m == pytest.approx(weight_by_quadrature(r, m, t, h, lambda u: -u), rel=1e-8)


@pytest.mark.parametrize("r", [None, 0.0, 3.0])
@pytest.mark.parametrize("m", [None, 0.0, 0.4])
def test_vectors_over_layers(r: float | None, m: float | None) -> None:
    """All factors of all layers at once are those of each layer alone, and so are their gradients; None: a vector."""
    values = torch.tensor([[0.5, 2.0, 9.0], [0.1, 4.0, 1e-3], [1.0, 3.0, 0.2], [0.2, 0.7, 30.0]]).double()
    t, h, *learned = values.requires_grad_()

    def factors(t: Tensor, h: Tensor, r_layer: Tensor, m_layer: Tensor) -> Tensor:
        damping = flows.LogLinear(r_layer if r is None else r, m_layer if m is None else m)
        return torch.stack((damping.alpha(t), damping.sigma(t, h), damping.weight(t, h)))

    together = factors(t, h, *learned)
    apart = torch.stack([factors(*layer) for layer in values.unbind(1)], 1)
    torch.testing.assert_close(together, apart, rtol=1e-14, atol=0)
    slopes = (torch.autograd.grad((each * randn(3, 3)).sum(), values)[0] for each in (together, apart))
    torch.testing.assert_close(*slopes, rtol=1e-12, atol=1e-14)


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
