"""Order, exactness, structure and cost of every integrator."""

import math
from collections.abc import Sequence
from functools import cache

import pytest
import torch
from scipy.special import j1
from torch import Tensor

from sympformer import flows
from tests.flows.cases import INTEGRATORS, SYSTEMS, D, positive, randn, relative_error, symmetric

CONSISTENT = [name for name, (order, _) in INTEGRATORS.items() if order is not None]
ORDER_DAMPINGS = {"constant": flows.Constant(0.7, t0=1.0), "decaying": flows.Nesterov(2.0)}
SPAN = 1.0  # length of the paths on which orders are measured


def test_the_tables_agree() -> None:
    assert set(INTEGRATORS) == set(flows.INTEGRATORS)
    for name, (order, calls) in INTEGRATORS.items():
        assert flows.INTEGRATORS[name].evaluations == calls
        if order is not None:
            assert flows.INTEGRATORS[name].order == order


@pytest.mark.parametrize("system", SYSTEMS)
@pytest.mark.parametrize("name", INTEGRATORS)
def test_oracle_calls_a_step(name: str, system: str) -> None:
    """Counted by the system itself, on every system."""
    calls = INTEGRATORS[name][1]
    flow = SYSTEMS[system]()
    path = flows.simulate(flow, randn(4, D) / 4, steps=5, h=0.01, integrator=name)
    assert path.oracle_calls.tolist() == [calls * k for k in range(6)]


def uneven(steps: int) -> Tensor:
    """Steps that alternate 1 : 1.5, summing to SPAN."""
    sizes = torch.tensor([1.0, 1.5], dtype=torch.float64).repeat(steps // 2)
    return sizes * SPAN / sizes.sum()


def slope(errors: Sequence[float], counts: Sequence[int]) -> float:
    """Least-squares slope of log error against log step size."""
    h = torch.tensor([-math.log(n) for n in counts], dtype=torch.float64)
    e = torch.tensor([math.log(v) for v in errors], dtype=torch.float64)
    return (((h - h.mean()) * (e - e.mean())).sum() / ((h - h.mean()) ** 2).sum()).item()


@cache
def order_problem(kind: str, damping_name: str) -> tuple[flows.System, Tensor, Tensor, Tensor]:
    """(system, x0, y0, the state (x, y) at the end of SPAN): exact for the quadratic, fine RK4 for softmax."""
    x0, y0, damping = randn(5, D) / 2, randn(5, D, seed=5) / 2, ORDER_DAMPINGS[damping_name]
    if kind == "quadratic":
        quadratic = flows.Quadratic(positive())
        return quadratic, x0, y0, torch.cat(quadratic.exact(x0, y0, damping.t0 + SPAN, damping))
    softmax = flows.SoftmaxAttention(symmetric(), positive())
    fine = flows.simulate(softmax, x0, y0, steps=400, h=SPAN / 400, integrator="rk4", damping=damping)
    return softmax, x0, y0, torch.cat((fine.x[-1], fine.y[-1]))


@pytest.mark.parametrize("spacing", ["equal", "unequal"])
@pytest.mark.parametrize("damping", ORDER_DAMPINGS)
@pytest.mark.parametrize("kind", ["quadratic", "softmax"])
@pytest.mark.parametrize("name", CONSISTENT)
def test_order_on_the_damped_system(name: str, kind: str, damping: str, spacing: str) -> None:
    order, _ = INTEGRATORS[name]
    assert order is not None
    schedule = ORDER_DAMPINGS[damping]
    system, x0, y0, end = order_problem(kind, damping)
    counts = [16, 24, 32, 48] if order == 4 else [80, 120, 160, 240]
    errors = []
    for n in counts:
        h = SPAN / n if spacing == "equal" else uneven(n)
        path = flows.simulate(system, x0, y0, steps=n, h=h, integrator=name, damping=schedule)
        errors.append(relative_error(torch.cat((path.x[-1], path.y[-1])), end))
    assert abs(slope(errors, counts) - order) < 0.15


@pytest.mark.parametrize("name", ["ab2", "etd_ab2"])
def test_fixed_weights_lose_an_order_on_unequal_steps(name: str) -> None:
    """3/2 and -1/2, the weights of equal steps, on unequal ones: first order only."""
    schedule = flows.Constant(0.7, t0=1.0)
    system, x0, y0, end = order_problem("quadratic", "constant")
    method = flows.get_integrator(name)
    counts, errors = [80, 120, 160, 240], []
    for n in counts:
        x, y, t, history = x0, y0, torch.tensor(1.0, dtype=torch.float64), None
        for k, h in enumerate(uneven(n)):
            if history is not None:
                history = history._replace(h_x=h, h_y=h)  # pretend that the last step was as long as this one
            x, y, history = method.step(system.at, x, y, flows.Step(k, t, h, h, schedule), history)
            t = t + h
        errors.append(relative_error(torch.cat((x, y)), end))
    assert slope(errors, counts) < 1.3


def test_gradient_flow_has_order_one_on_the_first_order_flow() -> None:
    system, x0 = flows.Quadratic(positive()), randn(5, D)
    end = x0 @ torch.linalg.matrix_exp(-SPAN * positive())
    counts = [80, 120, 160, 240]
    paths = (flows.simulate(system, x0, steps=n, h=SPAN / n, integrator="gradient_flow") for n in counts)
    errors = [relative_error(path.x[-1], end) for path in paths]
    assert abs(slope(errors, counts) - 1) < 0.15


@pytest.mark.parametrize("kind", ["quadratic", "softmax", "linear"])
def test_plain_euler_with_the_damping_factor_is_presymp_euler(kind: str) -> None:
    system, x0, y0 = SYSTEMS[kind](), randn(5, D) / 2, randn(5, D, seed=5) / 2
    damping, h = flows.Constant(0.7, t0=1.0), 0.05
    plain = flows.simulate(system, x0, y0, steps=20, h=h, integrator="plain_euler", damping=damping, factor=1 - 0.7 * h)
    presymp = flows.simulate(system, x0, y0, steps=20, h=h, integrator="presymp_euler", damping=damping)
    assert relative_error(plain.x, presymp.x) < 1e-14
    assert relative_error(plain.y, presymp.y) < 1e-14


def test_plain_euler_with_a_fixed_factor_is_not_consistent() -> None:
    """As h -> 0 the error stays: halving the step does not bring the path nearer to the damped flow."""
    system, x0, y0, end = order_problem("quadratic", "constant")
    errors = []
    for n in (100, 1000):
        path = flows.simulate(system, x0, y0, steps=n, h=SPAN / n, integrator="plain_euler", factor=0.9)
        errors.append(relative_error(torch.cat((path.x[-1], path.y[-1])), end))
    assert errors[1] > 0.5
    assert errors[1] > errors[0] / 2


def test_nesterov_scheme_equals_the_textbook_loop() -> None:
    system, x, tau = flows.Quadratic(positive()), randn(5, D), 0.04
    path = flows.simulate(system, x, steps=12, h=math.sqrt(tau), integrator="nesterov")
    u = x
    for k in range(12):
        x_next = u - tau * u @ positive()
        u = x_next + (1 - 3 / (k + 3)) * (x_next - x)
        x = x_next
        assert relative_error(path.x[k + 1], x) < 1e-12


def bessel_solution(x0: Tensor, t: float) -> Tensor:
    """x'' + 3/t x' + K x = 0 from rest at t = 0: each mode is 2 J_1(w t)/(w t) times its start."""
    w2, Q = torch.linalg.eigh(positive())
    wt = w2.sqrt() * t
    return (x0 @ Q) * torch.from_numpy(2 * j1(wt.numpy())) / wt @ Q.mT


def test_nesterov_scheme_tends_to_its_ode() -> None:
    """x'' + 3/t x' + grad F = 0 from rest: at rate h, with t counted from zero."""
    system, x0 = flows.Quadratic(positive()), randn(5, D)
    errors = []
    for n in (400, 800):
        h = 2.0 / n
        path = flows.simulate(system, x0, steps=n, h=h, integrator="nesterov")
        errors.append(relative_error(path.x[-1], bessel_solution(x0, 2.0)))
    assert errors[1] < 0.01
    assert errors[0] / errors[1] == pytest.approx(2, abs=0.3)


def symplectic_defect(kind: str, h: float, size: float = 1.0, integrator: str = "symplectic_euler") -> float:
    """|J' Omega J - sigma Omega| / |sigma Omega| of one step."""
    system, x, y = SYSTEMS[kind](), size * randn(4, D), size * randn(4, D, seed=5)
    damping, method, n = flows.Constant(0.7, t0=1.0), flows.get_integrator(integrator), x.numel()

    def step(flat: Tensor) -> Tensor:
        u, v = flat[:n].view_as(x), flat[n:].view_as(y)
        u, v, _ = method.step(system.at, u, v, flows.Step(0, 1.0, h, h, damping), None)
        return torch.cat((u.flatten(), v.flatten()))

    J = torch.autograd.functional.jacobian(step, torch.cat((x.flatten(), y.flatten())))
    Omega = torch.kron(torch.tensor([[0.0, 1.0], [-1.0, 0.0]]), torch.eye(n)).to(x)
    return relative_error(J.mT @ Omega @ J, damping.sigma(1.0, h) * Omega)


@pytest.mark.parametrize("name", ["quadratic", "wasserstein"])
def test_only_the_geometric_euler_is_conformally_symplectic(name: str) -> None:
    """On separable systems; the one that the paper calls presymplectic is not, even there."""
    assert symplectic_defect(name, h=0.1) < 1e-10
    assert symplectic_defect(name, h=0.1, integrator="presymp_euler") > 5e-3


@pytest.mark.parametrize("name", ["softmax", "linear"])
def test_geometric_euler_is_not_symplectic_on_attention(name: str) -> None:
    """The attention Hamiltonians are not separable. The defect of a step is of second order in h, far from rounding."""
    coarse, fine = (symplectic_defect(name, h, size=0.5) for h in (0.1, 0.05))
    assert coarse > 1e-4
    assert 1.7 < math.log2(coarse / fine) < 3.2


@pytest.mark.parametrize("name", SYSTEMS)
def test_energy_along_a_fine_path(name: str) -> None:
    """Undamped: the Hamiltonian stays. Damped: it falls, at the rate -alpha <y, velocity>."""
    system, x0, y0 = SYSTEMS[name](), randn(5, D) / 3, randn(5, D, seed=5) / 3
    free = flows.simulate(system, x0, y0, steps=200, h=0.005, integrator="rk4", damping=flows.Constant(0.0))
    drift = (free.hamiltonian - free.hamiltonian[0]).abs().max() / free.hamiltonian[0].abs()
    assert drift < 1e-9
    alpha = 0.7
    damped = flows.simulate(system, x0, y0, steps=200, h=0.005, integrator="rk4", damping=flows.Constant(alpha))
    H = damped.hamiltonian
    assert (H[1:] < H[:-1]).all()
    middle = (H[101] - H[99]) / (damped.t[101] - damped.t[99])
    rate = -alpha * (damped.y[100] * system.velocity(damped.x[100], damped.y[100])).sum()
    assert middle.item() == pytest.approx(rate.item(), rel=1e-3)


@pytest.mark.parametrize("name", [n for n in INTEGRATORS if n not in ("gradient_flow", "nesterov")])
def test_steps_pass_gradients(name: str) -> None:
    """Through two steps, so that the history counts: to x, y, both step sizes, the damping and the factor."""
    method, system = flows.get_integrator(name), SYSTEMS["softmax"]()

    def two_steps(x: Tensor, y: Tensor, *scalars: Tensor) -> tuple[Tensor, Tensor]:
        h_x, h_y, r, m, factor = scalars
        damping, t, history = flows.LogLinear(r, m), torch.tensor(1.0, dtype=torch.float64), method.init()
        for k in (0, 1):
            step = flows.Step(k, t, (k + 1) * h_x, h_y, damping, factor)
            x, y, history = method.step(system.at, x, y, step, history)
            t = t + step.h_x
        return x, y

    scalars = [torch.tensor(v, dtype=torch.float64, requires_grad=True) for v in (0.1, 0.15, 3.0, 0.2, 0.9)]
    x, y = (randn(2, D) / 2).requires_grad_(), (randn(2, D, seed=5) / 2).requires_grad_()
    assert torch.autograd.gradcheck(two_steps, (x, y, *scalars))
