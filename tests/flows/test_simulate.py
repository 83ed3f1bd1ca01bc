"""The run itself: what a path holds, callbacks, unequal steps, divergence, bad input."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from sympformer import flows
from sympformer.errors import DivergenceError, InputError
from tests.flows.cases import SYSTEMS, D, positive, randn, relative_error

X0 = randn(5, D) / 3


def quadratic() -> flows.Quadratic:
    return flows.Quadratic(positive())


def test_path_holds_states_times_energies_and_counts() -> None:
    system = SYSTEMS["softmax"]()
    path = flows.simulate(system, X0.expand(2, 5, D), steps=6, h=0.1, integrator="rk4", damping=flows.Nesterov(t0=2.0))
    assert path.x.shape == path.y.shape == (7, 2, 5, D)
    assert torch.equal(path.x[0, 0], X0)
    assert (path.y[0] == 0).all()
    assert torch.allclose(path.t, 2.0 + 0.1 * torch.arange(7, dtype=torch.float64))
    assert path.potential.shape == path.kinetic.shape == (7, 2)
    assert torch.equal(path.potential[3], system.potential(path.x[3]))
    assert torch.equal(path.hamiltonian, path.kinetic + path.potential)
    assert len(path) == 7


def test_save_every_keeps_first_and_last() -> None:
    path = flows.simulate(quadratic(), X0, steps=7, h=0.1, save_every=3)
    assert path.oracle_calls.tolist() == [0, 3, 6, 7]
    full = flows.simulate(quadratic(), X0, steps=7, h=0.1)
    assert torch.equal(path.x, full.x[[0, 3, 6, 7]])


def test_callback_sees_every_step_and_can_stop() -> None:
    seen: list[int] = []

    def stop_at_four(k: int, x: Tensor, y: Tensor) -> bool:
        seen.append(k)
        return k == 4

    path = flows.simulate(quadratic(), X0, steps=9, h=0.1, callback=stop_at_four)
    assert seen == [1, 2, 3, 4]
    assert path.oracle_calls.tolist() == [0, 1, 2, 3, 4]


def test_one_step_size_per_step() -> None:
    path = flows.simulate(quadratic(), X0, steps=3, h=[0.1, 0.2, 0.4], damping=flows.Constant(1.0))
    assert torch.allclose(path.t, torch.tensor([0.0, 0.1, 0.3, 0.7], dtype=torch.float64))


def test_gradients_reach_the_step_size_and_the_start() -> None:
    h, x0 = torch.tensor(0.1, dtype=torch.float64, requires_grad=True), X0.clone().requires_grad_()

    def end(h: Tensor, x0: Tensor) -> Tensor:
        return flows.simulate(quadratic(), x0, steps=4, h=h).x[-1]

    assert torch.autograd.gradcheck(end, (h, x0))


def test_batches_are_independent() -> None:
    system, x0 = SYSTEMS["linear"](), randn(3, 5, D) / 3
    together = flows.simulate(system, x0, steps=5, h=0.1)
    alone = flows.simulate(system, x0[1], steps=5, h=0.1)
    assert relative_error(together.x[:, 1], alone.x) < 1e-14


@pytest.mark.parametrize("kind", ["constant", "strong", "decaying"])
def test_exact_solution_of_the_quadratic_equals_fine_rk4(kind: str) -> None:
    damping = {
        "constant": flows.Constant(0.7),
        "strong": flows.Constant(5.0),  # overdamped and underdamped modes
        "decaying": flows.Nesterov(2.0, t0=0.5),
    }[kind]
    y0 = randn(5, D, seed=5)
    path = flows.simulate(quadratic(), X0, y0, steps=2000, h=0.001, integrator="rk4", damping=damping)
    x, y = quadratic().exact(X0, y0, float(path.t[-1]), damping)
    assert relative_error(path.x[-1], x) < 1e-11
    assert relative_error(path.y[-1], y) < 1e-11


BAD: dict[str, tuple[Callable[[], object], str]] = {
    "h zero": (lambda: flows.simulate(quadratic(), X0, steps=3, h=0.0), "h must be positive"),
    "h negative": (lambda: flows.simulate(quadratic(), X0, steps=3, h=[0.1, -0.1, 0.1]), "h must be positive"),
    "h count": (lambda: flows.simulate(quadratic(), X0, steps=3, h=[0.1, 0.1]), "one per step"),
    "steps": (lambda: flows.simulate(quadratic(), X0, steps=0, h=0.1), "steps must be at least 1"),
    "save_every": (lambda: flows.simulate(quadratic(), X0, steps=3, h=0.1, save_every=0), "save_every"),
    "shape": (lambda: flows.simulate(quadratic(), randn(5, 2), steps=3, h=0.1), "x0 must have shape"),
    "y0": (lambda: flows.simulate(quadratic(), X0, randn(4, D), steps=3, h=0.1), "same shape"),
    "integers": (lambda: flows.simulate(quadratic(), torch.ones(5, 3).int(), steps=3, h=0.1), "floating-point"),
    "name": (lambda: flows.simulate(quadratic(), X0, steps=3, h=0.1, integrator="rk5"), "unknown integrator 'rk5'"),
    "no exact": (lambda: quadratic().exact(X0, X0, 2.0, flows.Nesterov(3.0)), "exact solution known for"),
    "critical": (
        lambda: flows.Quadratic(torch.eye(3).double()).exact(X0, X0, 1.0, flows.Constant(2.0)),
        "change m slightly",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_says_what_is_wrong(case: str) -> None:
    call, message = BAD[case]
    with pytest.raises(ValueError, match=message):
        call()


def test_growth_beyond_the_bound_names_step_and_cause() -> None:
    A = torch.eye(2, dtype=torch.float64)
    system, x0 = flows.LinearAttention(A, 9 * A), torch.ones(3, 2, dtype=torch.float64)
    options: dict[str, Any] = {"steps": 400, "h": 0.5, "integrator": "exp_euler"}
    with pytest.raises(DivergenceError, match=r"exp_euler is unstable: its \w+ grew to .*, beyond 1e\+09, at step"):
        flows.simulate(system, x0, **options)
    with pytest.raises(DivergenceError, match=r"beyond 100, at step"):
        flows.simulate(system, x0, bound=100.0, **options)
    with pytest.raises(DivergenceError, match=r"left the finite numbers at step \d+ .*smaller than h"):
        flows.simulate(system, x0, bound=math.inf, **options)
    with pytest.raises(InputError, match="bound must be positive"):
        flows.simulate(system, x0, bound=0.0, **options)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_scores_beyond_the_exponential(dtype: torch.dtype) -> None:
    """Velocity, rho and the first-order flow stay exact; a force that no number holds names its cause."""
    A = torch.eye(2, dtype=dtype)
    system = flows.SoftmaxAttention(A, A)
    x = torch.tensor([[30.0, 0.0], [0.0, 30.0], [30.0, 1.0]], dtype=dtype)  # scores up to 901
    y = torch.ones_like(x)
    assert system.velocity(x, y).abs().max() < 1e-30
    assert torch.allclose(system.gradient_flow(x)[1], x[1])  # the second token sees hardly any other
    assert system.kinetic(x, y).isfinite()
    for broken in (lambda: system.force(x, y), lambda: system.potential(x)):
        with pytest.raises(DivergenceError, match=r"exp\(x_i' A x_j\) leaves float.* make A or the positions smaller"):
            broken()
    small = x / 30
    weights = (small @ small.mT).exp() / 3
    assert torch.allclose(system.velocity(small, y), y / weights.sum(-1, keepdim=True))
