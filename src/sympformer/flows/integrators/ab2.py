"""Two-step Adams-Bashforth with variable steps."""

from typing import NamedTuple

from torch import Tensor

from sympformer.flows.damping import Scalar
from sympformer.flows.integrators.base import FrozenIntegrator, State, Step
from sympformer.flows.system import Field


class Slopes(NamedTuple):
    """The slopes of the previous step, and its step sizes."""

    x: Tensor
    y: Tensor
    h_x: Scalar
    h_y: Scalar


def extrapolate(now: Tensor, before: Tensor, h: Scalar, h_before: Scalar) -> Tensor:
    """h [(1 + q) now - q before] with q = h / (2 h_before): the integral of the line through both slopes."""
    q = h / (2 * h_before)
    return h * ((1 + q) * now - q * before)


class AB2(FrozenIntegrator):
    """u+ = u + h [(1 + q) f - q f_before],  q = h / (2 h_before),  on u = (x, y), f = (F, G - alpha y)

    (the paper's AB-2). The first step is Euler. The weights 3/2 and -1/2 are the special case of equal steps.
    """

    order = 2

    def advance(self, field: Field, x: Tensor, y: Tensor, step: Step, history: Slopes | None) -> State:
        velocity, force = field.both(y)
        slope = force - step.damping.alpha(step.t) * y
        here = Slopes(velocity, slope, step.h_x, step.h_y)
        old = here if history is None else history  # with equal slopes the extrapolation is Euler's
        x_next = x + extrapolate(here.x, old.x, here.h_x, old.h_x)
        y_next = y + extrapolate(here.y, old.y, here.h_y, old.h_y)
        return x_next, y_next, here
