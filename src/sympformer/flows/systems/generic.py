"""The accelerated flows of the paper's section 2 for any potential: Wasserstein and Stein.

The functional is a potential energy F(rho) = integral U d rho, given as a function U of particles that returns one
value per particle: (..., N, d) -> (..., N).
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from sympformer.errors import InputError
from sympformer.flows import checks
from sympformer.flows.systems.base import Field, SeparableField, System

Potential = Callable[[Tensor], Tensor]
Kernel = Callable[[Tensor, Tensor], Tensor]


def gradient(potential: Potential, x: Tensor) -> Tensor:
    """grad U at every particle, itself differentiable."""

    def total(u: Tensor) -> Tensor:
        value = potential(u)
        if value.shape != u.shape[:-1]:
            raise InputError(
                f"the potential must return one value per particle, shape {tuple(u.shape[:-1])},"
                f" got {tuple(value.shape)}"
            )
        return value.sum()

    return torch.func.grad(total)(x)


def gaussian_kernel(length: float = 1.0) -> Kernel:
    """k(x, y) = exp(-|x - y|^2 / (2 length^2))."""
    checks.positive("the kernel's length", length)

    def kernel(x: Tensor, y: Tensor) -> Tensor:
        squared = (x.unsqueeze(-2) - y.unsqueeze(-3)).square().sum(-1)  # (..., N, M)
        return (-squared / (2 * length**2)).exp()

    return kernel


def bilinear_kernel(A: Tensor) -> Kernel:
    """k(x, y) = x' A y with A symmetric positive definite: the kernel of linear attention."""
    checks.positive_definite("A", A)
    return lambda x, y: x @ A @ y.mT


def quadratic_potential(V: Tensor) -> Potential:
    """U(x) = -1/2 x' V x with V symmetric: the potential of linear attention."""
    checks.symmetric("V", V)
    return lambda x: -(x * (x @ V)).sum(-1) / 2


class Wasserstein(System):
    """Accelerated Wasserstein flow of a potential energy: H(x, y) = 1/2 |y|^2 + sum_i U(x_i).

    `lower_bound`: the infimum of the potential energy of the whole cloud, if known.
    """

    def __init__(self, potential: Potential, lower_bound: float | None = None) -> None:
        super().__init__()
        self.U, self.lower_bound = potential, lower_bound

    def _field(self, x: Tensor) -> SeparableField:
        return SeparableField(gradient(self.U, x))

    def kinetic(self, x: Tensor, y: Tensor) -> Tensor:
        return (y * y).sum((-2, -1)) / 2

    def potential(self, x: Tensor) -> Tensor:
        return self.U(x).sum(-1)


@dataclass(frozen=True)
class SteinField(Field):
    """The Stein field at fixed x: kernel matrix, its pullback in the first argument, and grad U."""

    K: Tensor  # (..., N, N)
    pullback: Callable[[Tensor], tuple[Tensor]]  # W -> sum_j W_ij grad_1 k(x_i, x_j)
    grad: Tensor  # (..., N, d)

    def velocity(self, y: Tensor) -> Tensor:
        """velocity_i = 1/N sum_j k(x_i, x_j) y_j."""
        return self.K @ y / y.shape[-2]

    def force(self, y: Tensor) -> Tensor:
        """force_i = -1/N sum_j <y_i, y_j> grad_1 k(x_i, x_j) - grad U(x_i)."""
        (interaction,) = self.pullback(y @ y.mT)
        return -interaction / y.shape[-2] - self.grad

    def first_order(self) -> Tensor:
        """Stein variational gradient flow of the potential energy: x_i' = -1/N sum_j k(x_i, x_j) grad U(x_j)."""
        return -self.velocity(self.grad)


class Stein(System):
    """Accelerated Stein flow: H(x, y) = 1/(2N) sum_ij <y_i, y_j> k(x_i, x_j) + sum_i U(x_i), k symmetric."""

    def __init__(self, potential: Potential, kernel: Kernel, lower_bound: float | None = None) -> None:
        super().__init__()
        self.U, self.kernel, self.lower_bound = potential, kernel, lower_bound

    def _field(self, x: Tensor) -> SteinField:
        K, pullback = torch.func.vjp(lambda u: self.kernel(u, x), x)  # type: ignore[misc]  # (a third value only with has_aux)
        return SteinField(K, pullback, gradient(self.U, x))

    def passes(self, momenta: int) -> int:
        """One a momentum: the sums over the kernel hold y_j."""
        return max(1, momenta)

    def kinetic(self, x: Tensor, y: Tensor) -> Tensor:
        return (self.kernel(x, x) * (y @ y.mT)).sum((-2, -1)) / (2 * x.shape[-2])

    def potential(self, x: Tensor) -> Tensor:
        return self.U(x).sum(-1)

    def svgd(self, x: Tensor) -> Tensor:
        """SVGD towards the density exp(-U), one kernel evaluation: the gradient flow plus a repulsion,

        x_i' = 1/N sum_j [ -k(x_i, x_j) grad U(x_j) + grad_{x_j} k(x_j, x_i) ].
        """

        def column_sums(shift: Tensor) -> Tensor:  # sum over i, j of k(x_j + shift_i, x_i)
            moved = x.unsqueeze(-3) + shift.unsqueeze(-2)  # (..., N, N, d)
            return self.kernel(moved, x.unsqueeze(-2)).sum()

        repulsion = torch.func.grad(column_sums)(torch.zeros_like(x))  # (..., N, d)
        return self.gradient_flow(x) + repulsion / x.shape[-2]
