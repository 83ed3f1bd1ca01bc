"""Exponential Euler: the damping is integrated exactly, the force is frozen over the step."""

from typing import Any

from torch import Tensor

from sympformer.flows.integrators.base import Integrator, Oracle, State, Step


class ExpEuler(Integrator):
    """y+ = sigma(t, h_y) y + w(t, h_y) G(x, y)        x+ = x + h_x F(x, y)

    (the paper's exponential Euler, with the weight w as it follows from the variation of constants: no extra factor h,
    time origin t_k).
    """

    order = 1

    def step(self, oracle: Oracle, x: Tensor, y: Tensor, step: Step, history: Any) -> State:
        zeta_1 = step.damping.sigma(step.t, step.h_y)
        zeta_2 = step.damping.weight(step.t, step.h_y)
        return *oracle(x).euler_step(x, y, step.h_x, zeta_1, zeta_2, step.bound), None
