"""What every system of particles offers: a Hamiltonian, the vector field it generates, and a count of kernel calls.

Shapes: positions x and momenta y are (..., N, d); energies are (...). The damped flow is

    x' = velocity(x, y)        y' = force(x, y) - alpha(t) y

With full visibility velocity = dH/dy and force = -dH/dx.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from sympformer.flows import checks
from sympformer.flows.damping import LogLinear, Scalar


class Field(Protocol):
    """The vector field at fixed positions x: one kernel evaluation, then any number of momenta.

    Splitting "evaluate the kernel at x" from "apply it to y" is what lets the geometric Euler step use the new
    momentum without a second kernel evaluation.
    """

    def velocity(self, y: Tensor) -> Tensor:
        """x' at momentum y."""

    def force(self, y: Tensor) -> Tensor:
        """y' at momentum y, without damping."""

    def first_order(self) -> Tensor:
        """x' of the gradient flow that the system accelerates."""

    def both(self, y: Tensor) -> tuple[Tensor, Tensor]:
        """(velocity, force) at momentum y; a field whose two parts share work overrides this."""
        return self.velocity(y), self.force(y)


@dataclass(frozen=True)
class SeparableField(Field):
    """The field of H = 1/2 |y|^2 + U(x), from the gradient of U: velocity = y, force = first order = -grad U."""

    grad: Tensor

    def velocity(self, y: Tensor) -> Tensor:
        return y

    def force(self, y: Tensor) -> Tensor:
        return -self.grad

    def first_order(self) -> Tensor:
        return -self.grad


class System(ABC):
    """Abstract base. A concrete system implements `_field`, `kinetic` and `potential`.

    `kernel_calls` counts evaluations of the interaction kernel (for a system without one, of the potential's
    gradient): the "oracle calls" of the paper. Energies are diagnostics and do not count.
    """

    dim: int | None = None  # d, where the system fixes it
    lower_bound: float | None = None  # infimum of the potential energy, where it is known and finite
    kernel_calls: int = 0

    def at(self, x: Tensor) -> Field:
        """The field at positions x: one kernel evaluation."""
        checks.particles(x, self.dim)
        self.kernel_calls += 1
        return self._field(x)

    def passes(self, momenta: int) -> int:
        """Passes over the kernel that the field at one set of positions costs where no N x N matrix is kept.

        That is what a model pays. momenta: how many different ones the field is asked at, 0 for the first-order field
        or for momentum zero. Here one pass serves them all; a system whose sums hold momenta says otherwise.
        """
        return 1

    def velocity(self, x: Tensor, y: Tensor) -> Tensor:
        """dH/dy, one kernel evaluation."""
        checks.same_shape(x, y)
        return self.at(x).velocity(y)

    def force(self, x: Tensor, y: Tensor) -> Tensor:
        """-dH/dx, one kernel evaluation."""
        checks.same_shape(x, y)
        return self.at(x).force(y)

    def gradient_flow(self, x: Tensor) -> Tensor:
        """x' of the first-order flow that the system accelerates, one kernel evaluation."""
        return self.at(x).first_order()

    def hamiltonian(self, x: Tensor, y: Tensor) -> Tensor:
        """H(x, y) = kinetic(x, y) + potential(x)."""
        checks.same_shape(x, y)
        return self.kinetic(x, y) + self.potential(x)

    @abstractmethod
    def _field(self, x: Tensor) -> Field: ...

    @abstractmethod
    def potential(self, x: Tensor) -> Tensor:
        """What the first-order flow decreases."""

    def kinetic(self, x: Tensor, y: Tensor) -> Tensor:
        """1/2 |y|^2, that of a separable system."""
        return (y * y).sum((-2, -1)) / 2


@dataclass(frozen=True)
class Undamped:
    """A system and its damping in the variables (x, P), P = e^eta y, where the damped flow is Hamiltonian:

    H~(t, x, P) = e^eta(t) H(x, e^-eta(t) P)        x' = dH~/dP        P' = -dH~/dx, without a damping term
    """

    system: System
    damping: LogLinear

    def hamiltonian(self, t: Scalar, x: Tensor, P: Tensor) -> Tensor:
        scale = self._scale(t, x)
        return scale * self.system.hamiltonian(x, P / scale)

    def velocity(self, t: Scalar, x: Tensor, P: Tensor) -> Tensor:
        return self.system.velocity(x, P / self._scale(t, x))

    def force(self, t: Scalar, x: Tensor, P: Tensor) -> Tensor:
        scale = self._scale(t, x)
        return scale * self.system.force(x, P / scale)

    def _scale(self, t: Scalar, x: Tensor) -> Tensor:
        return torch.exp(self.damping.eta(t)).to(x)
