"""The geometric Euler step: kick, damp exactly, then drift with the new momentum."""

from typing import Any

from torch import Tensor

from sympformer.flows.integrators.base import FrozenIntegrator, State, Step
from sympformer.flows.system import Field


class SymplecticEuler(FrozenIntegrator):
    """y+ = sigma (y + h_y G(x, y))        x+ = x + h_x F(x, y+)

    (the paper's conformally symplectic Euler). On a separable Hamiltonian its Jacobian satisfies
    J' Omega J = sigma Omega. The kernel depends on x only, so the new momentum needs no second evaluation.
    """

    order = 1
    momenta = 2

    def advance(self, field: Field, x: Tensor, y: Tensor, step: Step, history: Any) -> State:
        y_next = step.damping.sigma(step.t, step.h_y) * (y + step.h_y * field.force(y))
        return x + step.h_x * field.velocity(y_next), y_next, None
