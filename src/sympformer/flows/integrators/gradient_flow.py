"""The first-order flow, for reference: what a classical attention layer does."""

from typing import Any

from torch import Tensor

from sympformer.flows.integrators.base import Integrator, Oracle, State, Step


class GradientFlow(Integrator):
    """x+ = x + h_x (first-order field at x)        y+ = y

    Explicit Euler on the gradient flow that the system accelerates. Order 1 on that flow, not on the damped one.
    """

    order = 1
    evaluations = 1
    momenta = 0
    damped = False

    def step(self, oracle: Oracle, x: Tensor, y: Tensor, step: Step, history: Any) -> State:
        return x + step.h_x * oracle(x).first_order(), y, None
