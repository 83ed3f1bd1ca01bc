"""The accelerated flows of the paper's section 2 for any energy F(rho): Wasserstein and Stein.

F is a `Functional` (potential, interaction, KL, sums of them), or a plain function U of particles that returns one
value per particle, (..., N, d) -> (..., N), which stands for the potential energy of U. The Hamiltonian of N particles
carries N F, so that velocity and force are its plain gradients.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from sympformer.flows import checks
from sympformer.flows.systems.base import Field, SeparableField, System
from sympformer.flows.systems.functionals import Functional, PairFunction, PointFunction, as_functional

Kernel = PairFunction
Energy = Functional | PointFunction


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


def quadratic_potential(V: Tensor) -> PointFunction:
    """U(x) = -1/2 x' V x with V symmetric: the potential of linear attention."""
    checks.symmetric("V", V)
    return lambda x: -(x * (x @ V)).sum(-1) / 2


class Wasserstein(System):
    """Accelerated Wasserstein flow of an energy: H(x, y) = 1/2 |y|^2 + N F(x). For a potential N F = sum_i U(x_i).

    `lower_bound`: the infimum of N F over the whole cloud, if known.
    """

    def __init__(self, energy: Energy, lower_bound: float | None = None) -> None:
        super().__init__()
        self.functional, self.lower_bound = as_functional(energy), lower_bound

    def _field(self, x: Tensor) -> SeparableField:
        return SeparableField(self.functional.first_variation_gradient(x))

    def kinetic(self, x: Tensor, y: Tensor) -> Tensor:
        return (y * y).sum((-2, -1)) / 2

    def potential(self, x: Tensor) -> Tensor:
        return x.shape[-2] * self.functional.value(x)


@dataclass(frozen=True)
class SteinField(Field):
    """The Stein field at fixed x: kernel matrix, its pullback in the first argument, and grad dF/drho."""

    K: Tensor  # (..., N, N)
    pullback: Callable[[Tensor], tuple[Tensor]]  # W -> sum_j W_ij grad_1 k(x_i, x_j)
    grad: Tensor  # (..., N, d)

    def velocity(self, y: Tensor) -> Tensor:
        """velocity_i = 1/N sum_j k(x_i, x_j) y_j."""
        return self.K @ y / y.shape[-2]

    def force(self, y: Tensor) -> Tensor:
        """force_i = -1/N sum_j <y_i, y_j> grad_1 k(x_i, x_j) - grad dF/drho(x_i)."""
        (interaction,) = self.pullback(y @ y.mT)
        return -interaction / y.shape[-2] - self.grad

    def first_order(self) -> Tensor:
        """Stein variational gradient flow of F: x_i' = -1/N sum_j k(x_i, x_j) grad dF/drho(x_j)."""
        return -self.velocity(self.grad)


class Stein(System):
    """Accelerated Stein flow of an energy: H(x, y) = 1/(2N) sum_ij <y_i, y_j> k(x_i, x_j) + N F(x), k symmetric."""

    def __init__(self, energy: Energy, kernel: Kernel, lower_bound: float | None = None) -> None:
        super().__init__()
        self.functional, self.kernel, self.lower_bound = as_functional(energy), kernel, lower_bound

    def _field(self, x: Tensor) -> SteinField:
        K, pullback = torch.func.vjp(lambda u: self.kernel(u, x), x)  # type: ignore[misc]  # (a third value only with has_aux)
        return SteinField(K, pullback, self.functional.first_variation_gradient(x))

    def passes(self, momenta: int) -> int:
        """One a momentum: the sums over the kernel hold y_j."""
        return max(1, momenta)

    def kinetic(self, x: Tensor, y: Tensor) -> Tensor:
        return (self.kernel(x, x) * (y @ y.mT)).sum((-2, -1)) / (2 * x.shape[-2])

    def potential(self, x: Tensor) -> Tensor:
        return x.shape[-2] * self.functional.value(x)

    def svgd(self, x: Tensor) -> Tensor:
        """The Stein flow of F(rho) + integral rho log rho, the entropy integrated by parts; one kernel evaluation.

        x_i' = 1/N sum_j [ -k(x_i, x_j) grad dF/drho(x_j) + grad_{x_j} k(x_j, x_i) ]
        For a potential U that is SVGD towards the density exp(-U).
        """

        def column_sums(shift: Tensor) -> Tensor:  # sum over i, j of k(x_j + shift_i, x_i)
            moved = x.unsqueeze(-3) + shift.unsqueeze(-2)  # (..., N, N, d)
            return self.kernel(moved, x.unsqueeze(-2)).sum()

        repulsion = torch.func.grad(column_sums)(torch.zeros_like(x))  # (..., N, d)
        return self.gradient_flow(x) + repulsion / x.shape[-2]
