"""Explicit Euler with a momentum factor of its own."""

from typing import Any

from torch import Tensor

from sympformer.flows.damping import Scalar
from sympformer.flows.integrators.base import Integrator, Oracle, State, Step


class PlainEuler(Integrator):
    """x+ = x + h_x F(x, y)        y+ = a y + h_y G(x, y)

    (the paper's plain explicit Euler). a is `step.factor`, a number in (0, 1), or Nesterov's (k-1)/(k+2) if None.
    With a = 1 - alpha h_y this is presymp_euler. With a fixed a it is not a consistent scheme: as h -> 0 the momentum
    is damped at the rate (1 - a)/h, without limit, so it has no order.
    """

    order = 0

    def step(self, oracle: Oracle, x: Tensor, y: Tensor, step: Step, history: Any) -> State:
        a = nesterov_factor(step.k) if step.factor is None else step.factor
        return *oracle(x).euler_step(x, y, step.h_x, a, step.h_y, step.bound), None


def nesterov_factor(k: int) -> Scalar:
    """(k-1)/(k+2) for step k = 1, 2, ... and 0 for k = 0, where the momentum has not yet begun."""
    return max(k - 1, 0) / (k + 2)
