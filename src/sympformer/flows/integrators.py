"""Time integrators and their table. A new one is a class and a line here, or `sympformer.register` from outside.

It is handed an oracle, a function from positions to a `Field`, and a `Step`, all of whose numbers may be tensors that
learn. Most schemes ask the oracle once, at the positions they start from: those are `FrozenIntegrator`s, and the only
ones for a model's layer, which has nothing but such a field to offer (one kernel pass).
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from torch import Tensor

from sympformer.errors import unknown_name
from sympformer.flows.damping import LogLinear, Scalar
from sympformer.flows.system import Field

Oracle = Callable[[Tensor], Field]
State = tuple[Tensor, Tensor, Any]  # x, y, history


class Sum(NamedTuple):
    """a u + b v, not added yet: who takes it adds it in a way of his own (a norm of it need not keep it)."""

    a: Scalar
    u: Tensor
    b: Scalar
    v: Tensor

    def added(self) -> Tensor:
        return self.a * self.u + self.b * self.v


@dataclass(frozen=True)
class Step:
    """One time step: number k = 0, 1, ..., clock t at its start, step sizes, damping.

    `factor` is the momentum factor of the schemes that replace 1 - alpha h by a number of their own (plain_euler);
    None means Nesterov's (k-1)/(k+2).
    """

    k: int
    t: Scalar
    h_x: Scalar
    h_y: Scalar
    damping: LogLinear
    factor: Scalar | None = None


class Integrator(ABC):
    """Abstract base. `order` is the order on the damped system, `evaluations` the kernel evaluations a step."""

    order: ClassVar[int]
    evaluations: ClassVar[int] = 1
    momenta: ClassVar[int] = 1  # different momenta at which it asks one field; 0: none, or zero momentum
    damped: ClassVar[bool] = True  # it uses `step.damping`; otherwise `step.factor`, or neither

    def init(self) -> Any:
        """The history before the first step; None for one-step methods."""
        return None

    @abstractmethod
    def step(self, oracle: Oracle, x: Tensor, y: Tensor, step: Step, history: Any) -> State:
        """(x_next, y_next, history_next)."""


class FrozenIntegrator(Integrator):
    """Abstract base of the schemes with one evaluation, at x."""

    def step(self, oracle: Oracle, x: Tensor, y: Tensor, step: Step, history: Any) -> State:
        x_next, y_next, history = self.advance(oracle(x), x, y, self.factors(step), history)
        return added(x_next), added(y_next), history

    @abstractmethod
    def factors(self, step: Step) -> tuple[Scalar, ...]:
        """What `advance` needs of the step. In a model t, h_x, h_y and the damping are vectors over the layers."""

    @abstractmethod
    def advance(
        self, field: Field, x: Tensor, y: Tensor, factors: tuple[Scalar, ...], history: Any
    ) -> tuple[Tensor | Sum, Tensor | Sum, Any]:
        """(x_next, y_next, history_next) from the field at x. A `Sum` is added by the caller."""


def added(u: Tensor | Sum) -> Tensor:
    """A tensor as it is, a sum added."""
    return u.added() if isinstance(u, Sum) else u


class Euler(FrozenIntegrator):
    """x+ = x + h_x F(x, y)        y+ = zeta_1 y + zeta_2 G(x, y)

    Abstract base: a scheme says what its factors are, (h_x, zeta_1, zeta_2), as in the paper's table of prefactors.
    """

    order = 1

    def advance(self, field: Field, x: Tensor, y: Tensor, factors: tuple[Scalar, ...], history: Any) -> Any:
        h_x, zeta_1, zeta_2 = factors
        velocity, force = field.both(y)
        return Sum(1.0, x, h_x, velocity), Sum(zeta_1, y, zeta_2, force), None


class PlainEuler(Euler):
    """x+ = x + h_x F(x, y)        y+ = a y + h_y G(x, y)

    (the paper's plain explicit Euler). a is `step.factor`, a number in (0, 1), or Nesterov's (k-1)/(k+2) if None.
    With a fixed a it has no order: as h -> 0 the momentum is damped at the rate (1 - a)/h, without limit.
    """

    order = 0
    damped = False

    def factors(self, step: Step) -> tuple[Scalar, ...]:
        return step.h_x, nesterov_factor(step.k) if step.factor is None else step.factor, step.h_y


class PresympEuler(Euler):
    """x+ = x + h_x F(x, y)        y+ = (1 - alpha(t) h_y) y + h_y G(x, y)

    (the paper, "simplified time discretization"). Not to be confused with `symplectic_euler`, the geometric form.
    """

    def factors(self, step: Step) -> tuple[Scalar, ...]:
        return step.h_x, 1 - step.damping.alpha(step.t) * step.h_y, step.h_y


class ExpEuler(Euler):
    """x+ = x + h_x F(x, y)        y+ = sigma(t, h_y) y + w(t, h_y) G(x, y)

    The damping is integrated exactly, the force is frozen over the step (the paper's exponential Euler, with the
    weight w as it follows from the variation of constants).
    """

    def factors(self, step: Step) -> tuple[Scalar, ...]:
        return step.h_x, step.damping.sigma(step.t, step.h_y), step.damping.weight(step.t, step.h_y)


class SymplecticEuler(FrozenIntegrator):
    """y+ = sigma (y + h_y G(x, y))        x+ = x + h_x F(x, y+)

    (the paper's conformally symplectic Euler). On a separable Hamiltonian its Jacobian satisfies
    J' Omega J = sigma Omega. The kernel depends on x only, so the new momentum needs no second evaluation.
    """

    order = 1
    momenta = 2

    def factors(self, step: Step) -> tuple[Scalar, ...]:
        return step.h_x, step.h_y, step.damping.sigma(step.t, step.h_y)

    def advance(self, field: Field, x: Tensor, y: Tensor, factors: tuple[Scalar, ...], history: Any) -> Any:
        h_x, h_y, sigma = factors
        y_next = sigma * (y + h_y * field.force(y))
        return Sum(1.0, x, h_x, field.velocity(y_next)), y_next, None


class Slopes(NamedTuple):
    """The slopes of a step, and its step sizes."""

    x: Tensor
    y: Tensor
    h_x: Scalar
    h_y: Scalar

    def moved(self, x: Tensor, y: Tensor, before: "Slopes | None") -> tuple[Tensor, Tensor]:
        """u + h [(1 + q) f - q f_before] with q = h / (2 h_before), for u = x and y: the integral of the line through
        both slopes. Without a step before it is Euler's."""
        old = self if before is None else before
        q, p = self.h_x / (2 * old.h_x), self.h_y / (2 * old.h_y)
        return x + self.h_x * ((1 + q) * self.x - q * old.x), y + self.h_y * ((1 + p) * self.y - p * old.y)


class AB2(FrozenIntegrator):
    """u+ = u + h [(1 + q) f - q f_before],  q = h / (2 h_before),  on u = (x, y), f = (F, G - alpha y)

    (the paper's AB-2). The first step is Euler's. The weights 3/2 and -1/2 are the special case of equal steps.
    """

    order = 2

    def factors(self, step: Step) -> tuple[Scalar, ...]:
        return step.h_x, step.h_y, step.damping.alpha(step.t)

    def advance(self, field: Field, x: Tensor, y: Tensor, factors: tuple[Scalar, ...], history: Slopes | None) -> State:
        h_x, h_y, alpha = factors
        velocity, force = field.both(y)
        here = Slopes(velocity, force - alpha * y, h_x, h_y)
        return *here.moved(x, y, history), here


class EtdAB2(FrozenIntegrator):
    """AB-2 on (x, P) with P = e^eta y, for which P' = e^eta G holds without damping. In terms of y:

    y+ = sigma (y + h_y [(1 + q) G - q sigma_before G_before]),   q = h_y / (2 h_y_before)

    The damping is exact; sigma_before = e^{-(eta(t) - eta(t_before))} carries the old force to the present. The first
    step is symplectic_euler's momentum with Euler's position.
    """

    order = 2

    def factors(self, step: Step) -> tuple[Scalar, ...]:
        return step.h_x, step.h_y, step.damping.sigma(step.t, step.h_y)

    def advance(self, field: Field, x: Tensor, y: Tensor, factors: tuple[Scalar, ...], history: Slopes | None) -> State:
        h_x, h_y, sigma = factors
        here = Slopes(*field.both(y), h_x, h_y)
        x, y = here.moved(x, y, history)
        return x, sigma * y, here._replace(y=sigma * here.y)


# --- for reference: no steps for a layer


class RK4(Integrator):
    """Classical Runge-Kutta on (F, G - alpha y): four kernel evaluations a step, the clock runs with h_y."""

    order = 4
    evaluations = 4

    def step(self, oracle: Oracle, x: Tensor, y: Tensor, step: Step, history: Any) -> State:
        def slopes(share: float, along: tuple[Tensor, ...] | None) -> tuple[Tensor, ...]:
            x_at, y_at = (x, y) if along is None else (x + share * step.h_x * along[0], y + share * step.h_y * along[1])
            velocity, force = oracle(x_at).both(y_at)
            return velocity, force - step.damping.alpha(step.t + share * step.h_y) * y_at

        dx, dy = runge_kutta(slopes)
        return x + step.h_x * dx, y + step.h_y * dy, None


def runge_kutta(slopes: Callable[[float, Any], tuple[Tensor, ...]]) -> list[Tensor]:
    """(k1 + 2 k2 + 2 k3 + k4)/6; slopes(share, k): the slopes when that share of the step is done along k."""
    k1 = slopes(0.0, None)
    k2 = slopes(0.5, k1)
    k3 = slopes(0.5, k2)
    k4 = slopes(1.0, k3)
    return [(a + 2 * b + 2 * c + d) / 6 for a, b, c, d in zip(k1, k2, k3, k4, strict=True)]


class GradientFlow(Integrator):
    """x+ = x + h_x (first-order field at x)        y+ = y

    Explicit Euler on the gradient flow that the system accelerates: what a classical attention layer does.
    """

    order = 1
    momenta = 0
    damped = False

    def step(self, oracle: Oracle, x: Tensor, y: Tensor, step: Step, history: Any) -> State:
        return x + step.h_x * oracle(x).first_order(), y, None


class Nesterov(Integrator):
    """u = x + (k-1)/(k+2) (x - x_before)        x+ = u - tau grad F(u),  tau = h_x h_y

    (the paper's Nesterov scheme, in Euclidean space, F the potential energy). The momentum is the last move in units of
    velocity, y = (x - x_before)/h_x, so that with t = k h the scheme tends to x'' + 3/t x' + grad F = 0. The factor is
    the damping, and the gradient the force at zero momentum, without the geometry of the system.
    """

    order = 1
    momenta = 0
    damped = False

    def step(self, oracle: Oracle, x: Tensor, y: Tensor, step: Step, history: Any) -> State:
        u = x + nesterov_factor(step.k) * step.h_x * y
        x_next = u + step.h_x * step.h_y * oracle(u).force(y * 0)
        return x_next, (x_next - x) / step.h_x, None


def nesterov_factor(k: int) -> Scalar:
    """(k-1)/(k+2) for step k = 1, 2, ... and 0 for k = 0, where the momentum has not yet begun."""
    return max(k - 1, 0) / (k + 2)


INTEGRATORS: dict[str, type[Integrator]] = {
    "plain_euler": PlainEuler,
    "presymp_euler": PresympEuler,
    "symplectic_euler": SymplecticEuler,
    "exp_euler": ExpEuler,
    "ab2": AB2,
    "etd_ab2": EtdAB2,
    "rk4": RK4,
    "gradient_flow": GradientFlow,
    "nesterov": Nesterov,
}

# those that accelerate with one kernel evaluation a step
ACCELERATED = ("plain_euler", "presymp_euler", "symplectic_euler", "exp_euler", "ab2", "etd_ab2")


def get_integrator(name: str) -> Integrator:
    """The integrator of that name."""
    if name not in INTEGRATORS:
        raise unknown_name("integrator", name, INTEGRATORS)
    return INTEGRATORS[name]()
