"""The undamped form: with P = e^eta y the damped flow is Hamiltonian with a time-dependent Hamiltonian.

H~(t, x, P) = e^eta(t) H(x, e^-eta(t) P)        x' = dH~/dP        P' = -dH~/dx
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from sympformer.flows.damping import LogLinear, Scalar
from sympformer.flows.systems.base import System


@dataclass(frozen=True)
class Undamped:
    """A system and its damping in the variables (x, P)."""

    system: System
    damping: LogLinear

    def hamiltonian(self, t: Scalar, x: Tensor, P: Tensor) -> Tensor:
        """H~(t, x, P) = e^eta H(x, e^-eta P)."""
        scale = self._scale(t, x)
        return scale * self.system.hamiltonian(x, P / scale)

    def velocity(self, t: Scalar, x: Tensor, P: Tensor) -> Tensor:
        """dH~/dP = velocity(x, e^-eta P)."""
        return self.system.velocity(x, P / self._scale(t, x))

    def force(self, t: Scalar, x: Tensor, P: Tensor) -> Tensor:
        """-dH~/dx = e^eta force(x, e^-eta P): no damping term."""
        scale = self._scale(t, x)
        return scale * self.system.force(x, P / scale)

    def _scale(self, t: Scalar, x: Tensor) -> Tensor:
        return torch.exp(self.damping.eta(t)).to(x)
