"""The explicit Euler schemes: one formula, three pairs of prefactors (the paper's table of zeta_1 and zeta_2)."""

from abc import abstractmethod
from typing import Any

from torch import Tensor

from sympformer.flows.damping import Scalar
from sympformer.flows.integrators.base import FrozenIntegrator, State, Step
from sympformer.flows.system import Field


class Euler(FrozenIntegrator):
    """x+ = x + h_x F(x, y)        y+ = zeta_1 y + zeta_2 G(x, y)

    Both updates use the old state. Abstract base: a scheme says what its prefactors are.
    """

    order = 1

    @abstractmethod
    def prefactors(self, step: Step) -> tuple[Scalar, Scalar]:
        """(zeta_1, zeta_2)."""

    def advance(self, field: Field, x: Tensor, y: Tensor, step: Step, history: Any) -> State:
        zeta_1, zeta_2 = self.prefactors(step)
        velocity, force = field.both(y)
        return x + step.h_x * velocity, zeta_1 * y + zeta_2 * force, None


class PlainEuler(Euler):
    """x+ = x + h_x F(x, y)        y+ = a y + h_y G(x, y)

    (the paper's plain explicit Euler). a is `step.factor`, a number in (0, 1), or Nesterov's (k-1)/(k+2) if None.
    With a = 1 - alpha h_y this is presymp_euler. With a fixed a it is not a consistent scheme: as h -> 0 the momentum
    is damped at the rate (1 - a)/h, without limit, so it has no order.
    """

    order = 0
    damped = False

    def prefactors(self, step: Step) -> tuple[Scalar, Scalar]:
        return nesterov_factor(step.k) if step.factor is None else step.factor, step.h_y


class PresympEuler(Euler):
    """x+ = x + h_x F(x, y)        y+ = (1 - alpha(t) h_y) y + h_y G(x, y)

    (the paper, "simplified time discretization"). Not to be confused with `symplectic_euler`, the geometric form.
    """

    def prefactors(self, step: Step) -> tuple[Scalar, Scalar]:
        return 1 - step.damping.alpha(step.t) * step.h_y, step.h_y


class ExpEuler(Euler):
    """x+ = x + h_x F(x, y)        y+ = sigma(t, h_y) y + w(t, h_y) G(x, y)

    The damping is integrated exactly, the force is frozen over the step (the paper's exponential Euler, with the
    weight w as it follows from the variation of constants: no extra factor h, time origin t_k).
    """

    def prefactors(self, step: Step) -> tuple[Scalar, Scalar]:
        return step.damping.sigma(step.t, step.h_y), step.damping.weight(step.t, step.h_y)


def nesterov_factor(k: int) -> Scalar:
    """(k-1)/(k+2) for step k = 1, 2, ... and 0 for k = 0, where the momentum has not yet begun."""
    return max(k - 1, 0) / (k + 2)
