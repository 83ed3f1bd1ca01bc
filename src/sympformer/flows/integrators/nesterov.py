"""Nesterov's discrete scheme in Euclidean space, for reference."""

from typing import Any

from torch import Tensor

from sympformer.flows.integrators.base import Integrator, Oracle, State, Step
from sympformer.flows.integrators.euler import nesterov_factor


class Nesterov(Integrator):
    """u = x + (k-1)/(k+2) (x - x_before)        x+ = u - tau grad F(u),  tau = h_x h_y

    (the paper's Nesterov scheme, F the potential energy). The momentum is the last move in units of velocity,
    y = (x - x_before)/h_x, so that with t = k h the scheme tends to x'' + 3/t x' + grad F = 0. The damping that is
    passed in is not used: the factor (k-1)/(k+2) is the damping. The geometry of the system (its kernel) is not used
    either; the gradient is the force at zero momentum.
    """

    order = 1
    evaluations = 1  # but at x + (k-1)/(k+2) h y, not at x
    momenta = 0
    damped = False

    def step(self, oracle: Oracle, x: Tensor, y: Tensor, step: Step, history: Any) -> State:
        u = x + nesterov_factor(step.k) * step.h_x * y
        x_next = u + step.h_x * step.h_y * oracle(u).force(y * 0)
        return x_next, (x_next - x) / step.h_x, None
