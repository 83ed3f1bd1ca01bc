"""Adams-Bashforth 2 in the undamped variables: the damping is exact, the history is the scaled force."""

from torch import Tensor

from sympformer.flows.integrators.ab2 import Slopes, extrapolate
from sympformer.flows.integrators.base import FrozenIntegrator, State, Step
from sympformer.flows.system import Field


class EtdAB2(FrozenIntegrator):
    """AB-2 on (x, P) with P = e^eta y, for which P' = e^eta G holds without damping. In terms of y:

    y+ = sigma (y + h_y [(1 + q) G - q sigma_before G_before]),   q = h_y / (2 h_y_before)

    sigma_before = e^{-(eta(t) - eta(t_before))} carries the old force to the present. Only differences of eta occur,
    so nothing overflows at large times. The first step is symplectic_euler's momentum with Euler's position.
    """

    order = 2

    def advance(self, field: Field, x: Tensor, y: Tensor, step: Step, history: Slopes | None) -> State:
        velocity, force = field.both(y)
        here = Slopes(velocity, force, step.h_x, step.h_y)
        old = here if history is None else history
        sigma = step.damping.sigma(step.t, step.h_y)
        x_next = x + extrapolate(here.x, old.x, here.h_x, old.h_x)
        y_next = sigma * (y + extrapolate(here.y, old.y, here.h_y, old.h_y))
        return x_next, y_next, here._replace(y=sigma * force)
