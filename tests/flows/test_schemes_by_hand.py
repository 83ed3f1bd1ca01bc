"""The schemes as the paper writes them, afresh: plain numbers, double loops, quadrature instead of closed forms.

Nothing of the package is used on the right-hand sides.
Steps are unequal, h_x is not h_y, the damping is r/t + m, and there is a force.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
from scipy.integrate import quad
from torch import Tensor

from sympformer import flows
from tests.flows.cases import D, positive, randn, relative_error, symmetric
from tests.flows.test_integrators import uneven
from tests.flows.test_systems import linear_double_loop, softmax_double_loop

R, M, T0 = 1.3, 0.4, 0.8
FACTOR = 0.85
STEPS = [(0.11, 0.17), (0.23, 0.09), (0.07, 0.19)]  # (h_x, h_y) of three steps
A, B, V = symmetric(), positive(), symmetric(seed=9)


def alpha(t: float) -> float:
    return R / t + M


def drop(t: float, end: float) -> float:
    """eta(end) - eta(t)."""
    return quad(alpha, t, end, epsabs=0, epsrel=1e-13)[0]


def sigma(t: float, h: float) -> float:
    return math.exp(-drop(t, t + h))


def weight(t: float, h: float) -> float:
    """The momentum that a force of 1 has built up by t + h: the variation of constants."""
    return quad(lambda s: math.exp(-drop(s, t + h)), t, t + h, epsabs=0, epsrel=1e-12)[0]


Fields = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]  # (x, y) -> (F, G)
KINDS: dict[str, tuple[Callable[[], flows.System], Fields]] = {
    "softmax": (
        lambda: flows.SoftmaxAttention(A, B, form="paper"),
        lambda x, y: softmax_double_loop(x, y, A, B, causal=False, form="paper")[:2],
    ),
    "linear": (
        lambda: flows.LinearAttention(B, V),
        lambda x, y: linear_double_loop(x, y, B, V, causal=False)[:2],
    ),
}


@dataclass
class ByHand:
    """One state, and the steps of the paper on it. `before`: what a two-step method keeps.

    Of the table of prefactors: plain_euler, presymp_euler and exp_euler are y+ = zeta_1 y + h_Y zeta_2 G.
    """

    fields: Fields
    x: Tensor
    y: Tensor
    t: float = T0
    before: tuple[Tensor, Tensor, float, float] | None = None

    def plain_euler(self, h_x: float, h_y: float) -> None:
        F, G = self.fields(self.x, self.y)
        self.x, self.y = self.x + h_x * F, FACTOR * self.y + h_y * G

    def presymp_euler(self, h_x: float, h_y: float) -> None:
        F, G = self.fields(self.x, self.y)
        self.x, self.y = self.x + h_x * F, (1 - alpha(self.t) * h_y) * self.y + h_y * G

    def symplectic_euler(self, h_x: float, h_y: float) -> None:
        self.y = sigma(self.t, h_y) * (self.y + h_y * self.fields(self.x, self.y)[1])
        self.x = self.x + h_x * self.fields(self.x, self.y)[0]

    def exp_euler(self, h_x: float, h_y: float) -> None:
        F, G = self.fields(self.x, self.y)
        self.x, self.y = self.x + h_x * F, sigma(self.t, h_y) * self.y + weight(self.t, h_y) * G

    def ab2(self, h_x: float, h_y: float) -> None:
        F, G = self.fields(self.x, self.y)
        f_y = G - alpha(self.t) * self.y
        F_0, f_0, b_x, b_y = self.before or (F, f_y, h_x, h_y)
        self.x = self.x + h_x * ((2 * b_x + h_x) / (2 * b_x) * F - h_x / (2 * b_x) * F_0)
        self.y = self.y + h_y * ((2 * b_y + h_y) / (2 * b_y) * f_y - h_y / (2 * b_y) * f_0)
        self.before = F, f_y, h_x, h_y

    def etd_ab2(self, h_x: float, h_y: float) -> None:
        """AB-2 on P = e^eta y, P' = e^eta G, over a step in which eta grows by drop(t, t + h_y)."""
        F, G = self.fields(self.x, self.y)
        F_0, G_0, b_x, b_y = self.before or (F, G, h_x, h_y)
        P = self.y + h_y * ((2 * b_y + h_y) / (2 * b_y) * G - h_y / (2 * b_y) * G_0)  # eta counted from now
        self.x = self.x + h_x * ((2 * b_x + h_x) / (2 * b_x) * F - h_x / (2 * b_x) * F_0)
        self.y = P * sigma(self.t, h_y)
        self.before = F, G * sigma(self.t, h_y), h_x, h_y


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", flows.ACCELERATED)
def test_three_unequal_damped_steps(name: str, kind: str) -> None:
    build, fields = KINDS[kind]
    system, method, damping = build(), flows.get_integrator(name), flows.LogLinear(R, M, T0)
    x, y, history = randn(5, D) / 2, randn(5, D, seed=5) / 2, method.init()
    hand, t = ByHand(fields, x, y), torch.tensor(T0, dtype=torch.float64)
    for k, (h_x, h_y) in enumerate(STEPS):
        x, y, history = method.step(system.at, x, y, flows.Step(k, t, h_x, h_y, damping, FACTOR), history)
        getattr(hand, name)(h_x, h_y)
        assert relative_error(x, hand.x) < 1e-11, f"step {k}"
        assert relative_error(y, hand.y) < 1e-11, f"step {k}"
        t, hand.t = t + h_x, hand.t + h_x


def test_etd_ab2_is_ab2_on_the_undamped_system() -> None:
    """The paper's AB-2, literally, on (x, P) under the time-dependent Hamiltonian; then y = e^-eta P."""
    build, fields = KINDS["softmax"]
    damping, h = flows.LogLinear(R, M, T0), uneven(10)
    x, P = randn(5, D) / 2, randn(5, D, seed=5) / 2
    path = flows.simulate(build(), x, P, steps=10, h=h, integrator="etd_ab2", damping=damping)
    t, old, before = T0, (torch.zeros_like(x), torch.zeros_like(x)), math.inf  # an infinite step before: Euler
    for size in h.tolist():
        scale = math.exp(drop(T0, t))
        F, G = fields(x, P / scale)
        now, q = (F, scale * G), size / (2 * before)
        x, P = (u + size * ((1 + q) * f - q * g) for u, f, g in zip((x, P), now, old, strict=True))
        t, old, before = t + size, now, size
    assert relative_error(path.x[-1], x) < 1e-11
    assert relative_error(path.y[-1], P / math.exp(drop(T0, t))) < 1e-11


# --- the classical layer


@pytest.mark.parametrize("kind", ["softmax", "linear"])
def test_a_self_attention_layer_is_an_euler_step_of_the_first_order_flow(kind: str) -> None:
    """X_i + h sum_j kappa(X_i, X_j) V X_j, kappa the softmax of X_j'A X_i or X_j'A X_i itself (here over N)."""
    x, h, N = randn(6, D), 0.3, 6
    scores = torch.tensor([[(x[j] @ A @ x[i]).item() for j in range(N)] for i in range(N)], dtype=torch.float64)
    system: flows.System
    if kind == "softmax":
        values, system = x @ (B @ A).mT, flows.SoftmaxAttention(A, B)  # V = B A
        layer = x + h * torch.softmax(scores, -1) @ values
    else:
        scores = torch.tensor([[(x[j] @ B @ x[i]).item() for j in range(N)] for i in range(N)], dtype=torch.float64)
        system = flows.LinearAttention(B, V)
        layer = x + h / N * scores @ (x @ V.mT)
    step = flows.Step(0, 1.0, h, h, flows.Constant(0.0))
    got, y, _ = flows.get_integrator("gradient_flow").step(system.at, x, torch.zeros_like(x), step, None)
    assert relative_error(got, layer) < 1e-12
    assert y.abs().max() == 0


# --- convergence rates

# 12 convex problems at once, 1/2 lambda x^2 from x = 1, with lambda up to L = 1: what a quadratic is made of
FLAT = torch.logspace(-3.5, 0, 12, dtype=torch.float64)
MODES = torch.eye(12, dtype=torch.float64).unsqueeze(1)  # (problem, 1 particle, d)


def test_nesterovs_scheme_keeps_its_rate_and_gradient_descent_breaks_it() -> None:
    """F(x_k) - F* <= 2 |x_0 - x*|^2/(tau (k+1)^2): with the square, which the text lacks."""
    tau, steps = 0.99, 300
    bound = 2 / (tau * torch.arange(1, steps + 2, dtype=torch.float64).square()).unsqueeze(-1)

    def energies(integrator: str, h: float, size: float = 1.0) -> Tensor:
        system = flows.Quadratic(torch.diag(FLAT))
        return flows.simulate(system, size * MODES, steps=steps, h=h, integrator=integrator).potential

    accelerated = energies("nesterov", math.sqrt(tau))
    assert (accelerated <= bound).all()
    assert (accelerated[50:] > bound[50:] / 8).any()  # and the power of k is the true one
    assert (energies("gradient_flow", tau) > 5 * bound).any()
    assert (energies("nesterov", math.sqrt(tau), size=100.0) > 100 * bound).any()  # |x_0 - x*| is not enough


def test_the_accelerated_flow_keeps_its_rate_and_the_gradient_flow_breaks_it() -> None:
    """From rest at t_0: t^2 (F - F*) + 2 |x + t/2 x' - x*|^2 does not grow, so F - F* <= const/t^2."""
    flow = flows.simulate(flows.Quadratic(torch.diag(FLAT)), MODES, steps=250, h=0.2, integrator="rk4")
    t = flow.t.unsqueeze(-1)
    lyapunov = t**2 * flow.potential + 2 * (flow.x + t[..., None, None] / 2 * flow.y).square().sum((-2, -1))
    assert (lyapunov.diff(dim=0) < 1e-6).all()
    bound = lyapunov[0] / t**2
    assert (flow.potential <= bound).all()
    first_order = flows.simulate(
        flows.Quadratic(torch.diag(FLAT)), MODES, steps=250, h=0.2, integrator="gradient_flow"
    )  # fmt: skip
    assert (first_order.potential > 2 * bound).any()
