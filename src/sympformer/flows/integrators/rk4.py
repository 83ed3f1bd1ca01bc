"""The classical Runge-Kutta method, for reference."""

from typing import Any

from torch import Tensor

from sympformer.flows.damping import Scalar
from sympformer.flows.integrators.base import Integrator, Oracle, State, Step


class RK4(Integrator):
    """Classical Runge-Kutta on (F, G - alpha y): four kernel evaluations a step, the clock runs with h_y."""

    order = 4
    evaluations = 4

    def step(self, oracle: Oracle, x: Tensor, y: Tensor, step: Step, history: Any) -> State:
        def slopes(share: float, dx: Tensor | None = None, dy: Tensor | None = None) -> tuple[Tensor, Tensor]:
            x_at = x if dx is None else x + share * step.h_x * dx
            y_at = y if dy is None else y + share * step.h_y * dy
            t: Scalar = step.t + share * step.h_y
            velocity, force = oracle(x_at).both(y_at)
            return velocity, force - step.damping.alpha(t) * y_at

        x1, y1 = slopes(0.0)
        x2, y2 = slopes(0.5, x1, y1)
        x3, y3 = slopes(0.5, x2, y2)
        x4, y4 = slopes(1.0, x3, y3)
        x_next = x + step.h_x * (x1 + 2 * x2 + 2 * x3 + x4) / 6
        y_next = y + step.h_y * (y1 + 2 * y2 + 2 * y3 + y4) / 6
        return x_next, y_next, None
