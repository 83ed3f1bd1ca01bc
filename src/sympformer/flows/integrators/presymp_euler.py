"""Explicit Euler on the damped system: the paper's layer form."""

from typing import Any

from torch import Tensor

from sympformer.flows.integrators.base import Integrator, Oracle, State, Step


class PresympEuler(Integrator):
    """x+ = x + h_x F(x, y)        y+ = (1 - alpha(t) h_y) y + h_y G(x, y)

    Both updates use the old state, so that one kernel evaluation serves both (the paper, "simplified time
    discretization"). Not to be confused with `symplectic_euler`, the geometric form.
    """

    order = 1

    def step(self, oracle: Oracle, x: Tensor, y: Tensor, step: Step, history: Any) -> State:
        zeta_1 = 1 - step.damping.alpha(step.t) * step.h_y
        return *oracle(x).euler_step(x, y, step.h_x, zeta_1, step.h_y, step.bound), None
