"""The paper's equations taken literally: where they hold, and how far off they are where they do not.

Each test stands for a row of docs/theory.md, "Where the paper must be read with care".
"""

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from sympformer import flows
from tests.flows.cases import SYSTEMS, D, positive, randn, relative_error, symmetric
from tests.flows.test_integrators import ORDER_DAMPINGS, SPAN, bessel_solution, order_problem, slope
from tests.models import by_hand
from tests.models.cases import make, tokens

COUNTS = [80, 160, 320]
Stepper = Callable[[Tensor, Tensor, float, float], tuple[Tensor, Tensor]]  # (x, y, t, h) -> (x, y)


def errors_of(step: Stepper, x0: Tensor, y0: Tensor, end: Tensor, counts: list[int] = COUNTS) -> list[float]:
    """Relative errors at the end of SPAN, the clock started at 1."""
    errors = []
    for n in counts:
        x, y, h = x0, y0, SPAN / n
        for k in range(n):
            x, y = step(x, y, 1 + k * h, h)
        errors.append(relative_error(torch.cat((x, y)), end))
    return errors


# --- the matrix equations


def test_softmax_matrix_equations_with_the_potential_over_n() -> None:
    """X' = N diag(M1)^-1 Y B', Y' = (N/2 {R, M} + M/N) X A: the anticommutator as printed, the potential by 1/N."""
    A, B, N = symmetric(), positive(), 6
    X, Y = randn(N, D), randn(N, D, seed=5)
    M = (X @ A @ X.mT).exp()
    sums = M.sum(1)
    R = torch.diag((Y * (Y @ B.mT)).sum(1) / sums**2)
    system = flows.SoftmaxAttention(A, B)
    assert relative_error(N * torch.diag(1 / sums) @ Y @ B.mT, system.velocity(X, Y)) < 1e-12
    assert relative_error((N / 2 * (R @ M + M @ R) + M / N) @ X @ A, system.force(X, Y)) < 1e-12
    kinetic = N / 2 * torch.trace(torch.diag(1 / sums) @ Y @ B.mT @ Y.mT)
    assert relative_error(kinetic - M.sum() / (2 * N), system.hamiltonian(X, Y)) < 1e-12
    # as printed, N/2 ({R, M} + 2 M) X A: the potential part is N^2 times too large
    printed_potential = N / 2 * (2 * M) @ X @ A
    assert relative_error(printed_potential / N**2, system.force(X, 0 * Y)) < 1e-12
    # the time-dependent Hamiltonian, with the same correction
    damping, t = flows.LogLinear(1.3, 0.4), 1.8
    scale = torch.exp(damping.eta(t))
    moving = N / 2 * torch.trace(torch.diag(1 / sums) @ Y @ B.mT @ Y.mT) / scale - scale * M.sum() / (2 * N)
    assert relative_error(moving, flows.Undamped(system, damping).hamiltonian(t, X, Y)) < 1e-12


def test_linear_matrix_equations() -> None:
    A, V, N = positive(), symmetric(), 6
    X, Y = randn(N, D), randn(N, D, seed=5)
    system = flows.LinearAttention(A, V)
    assert relative_error(X @ A @ X.mT @ Y / N, system.velocity(X, Y)) < 1e-12
    assert relative_error(-Y @ Y.mT @ X @ A / N + X @ V, system.force(X, Y)) < 1e-12


# --- the exponential Euler weight


def drop(damping: flows.LogLinear, t: float, h: float) -> float:
    """eta(t + h) - eta(t)."""
    return -math.log(damping.sigma(t, h).item())


# name -> (damping, weight(damping, t, h), order)
WEIGHTS: dict[str, tuple[str, Callable[[flows.LogLinear, float, float], float], int]] = {
    "exact, m": ("constant", lambda d, t, h: d.weight(t, h).item(), 1),
    "exact, 2/t": ("decaying", lambda d, t, h: d.weight(t, h).item(), 1),
    "printed integral, one h too many": ("constant", lambda d, t, h: h * (1 - math.exp(-0.7 * h)) / 0.7, 0),
    "h/(r+1), from time zero": ("decaying", lambda d, t, h: h / 3, 0),
    "h_Y zeta_2, alpha_eff a rate": ("decaying", lambda d, t, h: h * (1 - d.sigma(t, h).item()) * h / drop(d, t, h), 0),
    "h_Y zeta_2, alpha_eff = drop": ("decaying", lambda d, t, h: h * (1 - d.sigma(t, h).item()) / drop(d, t, h), 1),
}


@pytest.mark.parametrize("case", WEIGHTS)
def test_weights_of_exponential_euler(case: str) -> None:
    """The weight that follows from the variation of constants has order one; the printed ones have none."""
    damping_name, weight, order = WEIGHTS[case]
    damping = ORDER_DAMPINGS[damping_name]
    system, x0, y0, end = order_problem("quadratic", damping_name)

    def step(x: Tensor, y: Tensor, t: float, h: float) -> tuple[Tensor, Tensor]:
        velocity, force = system.at(x).both(y)
        return x + h * velocity, damping.sigma(t, h) * y + weight(damping, t, h) * force

    errors = errors_of(step, x0, y0, end)
    assert slope(errors, COUNTS) == pytest.approx(order, abs=0.05)
    assert (errors[-1] > 0.4) == (order == 0)


# --- plain Euler


def test_nesterovs_factor_is_consistent_with_three_over_t() -> None:
    """(k-1)/(k+2) = 1 - 3h/((k+2) h): plain_euler then follows alpha = 3/t, its clock started at zero."""
    system, x0, counts = flows.Quadratic(positive()), randn(5, D), [200, 400, 800]
    errors = []
    for n in counts:
        path = flows.simulate(system, x0, steps=n, h=2.0 / n, integrator="plain_euler", save_every=n)
        errors.append(relative_error(path.x[-1], bessel_solution(x0, 2.0)))
    assert slope(errors, counts) == pytest.approx(1, abs=0.05)


@pytest.mark.parametrize("new_position", [False, True])
@pytest.mark.parametrize("sign", [1, -1])
def test_printed_softmax_euler(sign: int, new_position: bool) -> None:
    """The new position in the last factor is harmless, a minus sign in front of alpha_k is not."""
    system, x0, y0, end = order_problem("softmax", "constant")
    assert isinstance(system, flows.SoftmaxAttention)

    def step(x: Tensor, y: Tensor, t: float, h: float) -> tuple[Tensor, Tensor]:
        M = (x @ system.A @ x.mT).exp() / len(x)
        z = M.sum(1, keepdim=True)
        x_next = x + h * y @ system.B / z
        rho = (y * (y @ system.B)).sum(1, keepdim=True) / z**2
        pulled = (x_next if new_position else x) @ system.A
        force = (rho / 2 + 1) * (M @ pulled) + M @ (rho / 2 * pulled)
        return x_next, sign * (1 - 0.7 * h) * y + h * force

    errors = errors_of(step, x0, y0, end)
    assert slope(errors, COUNTS) == pytest.approx(1 if sign == 1 else 0, abs=0.05)
    assert (errors[-1] > 0.5) == (sign == -1)


def test_printed_linear_euler_lacks_a_step_size() -> None:
    """Without h in front of X V the force is 1/h times too large: the coarsest path is off by 700 %, others blow up."""
    system, x0, y0 = SYSTEMS["linear"](), randn(5, D) / 2, randn(5, D, seed=5) / 2
    assert isinstance(system, flows.LinearAttention)
    fine = flows.simulate(
        system, x0, y0, steps=400, h=SPAN / 400, integrator="rk4", damping=flows.Constant(0.7), save_every=400
    )
    end = torch.cat((fine.x[-1], fine.y[-1]))

    def steps(share: Callable[[float], float]) -> Stepper:
        def step(x: Tensor, y: Tensor, t: float, h: float) -> tuple[Tensor, Tensor]:
            pull = y @ y.mT @ x @ system.A / len(x)
            return x + h * system.velocity(x, y), (1 - 0.7 * h) * y - h * pull + share(h) * x @ system.V

        return step

    assert errors_of(steps(lambda h: h), x0, y0, end, [20])[0] < 0.01
    assert errors_of(steps(lambda h: 1.0), x0, y0, end, [20])[0] > 5
    assert not math.isfinite(errors_of(steps(lambda h: 1.0), x0, y0, end, [160])[0])


# --- two step sizes


@pytest.mark.parametrize("name", [n for n in flows.ACCELERATED if n != "plain_euler"])
def test_the_momentum_equation_is_stepped_as_a_whole(name: str) -> None:
    """h_y = 2 h_x: the limit is x' = F, y' = 2 (G - alpha y), not y' = 2 G - alpha y. The clock goes with h_x."""
    K, x0, y0 = positive(), randn(5, D) / 2, randn(5, D, seed=5) / 2
    system, doubled, method = flows.Quadratic(K), flows.Quadratic(2 * K), flows.get_integrator(name)
    whole, force_only = (torch.cat(doubled.exact(x0, y0, SPAN, flows.Constant(m))) for m in (1.4, 0.7))
    n, history = 400, method.init()
    x, y, t = x0, y0, torch.tensor(0.0, dtype=torch.float64)
    for k in range(n):
        step = flows.Step(k, t, SPAN / n, 2 * SPAN / n, flows.Constant(0.7))
        x, y, history = method.step(system.at, x, y, step, history)
        t = t + step.h_x
    assert relative_error(torch.cat((x, y)), whole) < 4e-3
    assert relative_error(torch.cat((x, y)), force_only) > 0.2


# --- the velocity of the MLP


@pytest.mark.parametrize(("preset", "least"), [("full", 0.01), ("paper", 0.15), ("paper-spd", 0.7)])
def test_three_readings_of_the_mlp_velocity(preset: str, least: float) -> None:
    """Each is what it says, and on the same weights they are different models."""
    logits = {}
    for reading in ("momentum", "attention", "own"):
        model = make("softmax-exp-euler", preset, mlp_velocity=reading, mu=0.001)
        logits[reading] = model(tokens()).logits.detach()
        torch.testing.assert_close(logits[reading], by_hand.logits(model, tokens()), rtol=1e-7, atol=1e-7)
    for a, b in (("momentum", "attention"), ("momentum", "own"), ("attention", "own")):
        assert relative_error(logits[a], logits[b]) > least
