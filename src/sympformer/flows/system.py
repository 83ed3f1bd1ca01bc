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

from sympformer.errors import InputError
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


class Quadratic(System):
    """Independent oscillators, exactly solvable: the ruler for the integrators. K symmetric positive definite.

    H(x, y) = 1/2 |y|^2 + 1/2 sum_i x_i' K x_i        x'' + alpha(t) x' + K x = 0
    """

    lower_bound = 0.0

    def __init__(self, K: Tensor) -> None:
        self.K, self.dim = checks.positive_definite("K", K), K.shape[0]

    def _field(self, x: Tensor) -> SeparableField:
        return SeparableField(x @ self.K)

    def potential(self, x: Tensor) -> Tensor:
        return (x * (x @ self.K)).sum((-2, -1)) / 2

    def exact(self, x0: Tensor, y0: Tensor, t: float, damping: LogLinear) -> tuple[Tensor, Tensor]:
        """(x, y) at time t, started at damping.t0. Closed form for constant damping and for alpha = 2/t.

        In the eigenbasis of K each mode w^2 solves q'' + alpha q' + w^2 q = 0 with two fundamental solutions:
        exp((-m/2 +- sqrt(m^2/4 - w^2)) t) for alpha = m, and exp(+-i w t)/t for alpha = 2/t.
        """
        w2, Q = torch.linalg.eigh(self.K)
        r, m, t0 = float(damping.r), float(damping.m), float(damping.t0)
        if r == 0:
            start, end = _exponential_modes(w2, m, 0.0), _exponential_modes(w2, m, t - t0)
        elif r == 2 and m == 0:
            start, end = _decaying_modes(w2, t0), _decaying_modes(w2, t)
        else:
            raise InputError(f"exact solution known for r = 0 or (r = 2, m = 0) only, got r = {r}, m = {m}; use rk4")
        q0, p0 = (x0 @ Q).to(start.dtype), (y0 @ Q).to(start.dtype)  # (..., N, d)
        c = torch.linalg.solve(start, torch.stack((q0, p0), -1).unsqueeze(-1))  # (..., N, d, 2, 1)
        q, p = (end @ c).squeeze(-1).unbind(-1)
        return q.real.to(x0.dtype) @ Q.mT, p.real.to(x0.dtype) @ Q.mT


def _exponential_modes(w2: Tensor, m: float, t: float) -> Tensor:
    """[[u, v], [u', v']] at t for q'' + m q' + w^2 q = 0, (d, 2, 2) complex."""
    root = (m * m / 4 - w2).to(torch.complex128).sqrt()
    if bool((root.abs() < 1e-9).any()):
        raise InputError(f"m = {m} damps a mode critically, where the closed form degenerates; change m slightly")
    rates = torch.stack((-m / 2 + root, -m / 2 - root), -1)  # (d, 2)
    modes = (rates * t).exp()
    return torch.stack((modes, rates * modes), -2)


def _decaying_modes(w2: Tensor, t: float) -> Tensor:
    """[[u, v], [u', v']] at t for q'' + 2/t q' + w^2 q = 0: u, v = exp(+-i w t)/t, since (t q)'' + w^2 t q = 0."""
    rates = w2.to(torch.complex128).sqrt().unsqueeze(-1) * torch.tensor([1j, -1j], device=w2.device)  # (d, 2)
    modes = (rates * t).exp() / t
    return torch.stack((modes, (rates - 1 / t) * modes), -2)
