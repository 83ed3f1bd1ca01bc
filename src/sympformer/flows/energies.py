"""The accelerated flows of the paper's section 2, Wasserstein and Stein, for any energy F(rho) of a density.

Energies are known through their first variation. The particles x stand for the empirical measure rho = 1/N sum_j
delta_{x_j}. The first variation dF/drho is a function on space: F(rho + eps phi) = F(rho) + eps integral dF/drho phi
+ .., for every phi of mass zero; it counts up to a constant. Its gradient at the particles is what flows follow, and N
times the gradient of F in one particle's position: the Hamiltonian of N particles carries N F, so that velocity and
force are its plain gradients. A plain function U of particles stands for the potential energy of U.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from sympformer.errors import InputError
from sympformer.flows import checks
from sympformer.flows.system import Field, SeparableField, System

PointFunction = Callable[[Tensor], Tensor]  # (..., N, d) -> (..., N)
PairFunction = Callable[[Tensor, Tensor], Tensor]  # (..., N, d), (..., M, d) -> (..., N, M)
Kernel = PairFunction


class Functional(ABC):
    """Abstract base. Functionals add: `Potential(U) + Interaction(W)`."""

    @abstractmethod
    def value(self, x: Tensor) -> Tensor:
        """F at the empirical measure of x: (..., N, d) -> (...)."""

    @abstractmethod
    def first_variation(self, points: Tensor, x: Tensor) -> Tensor:
        """dF/drho at the points (..., M, d), rho the empirical measure of x (..., N, d): (..., M)."""

    def first_variation_gradient(self, x: Tensor) -> Tensor:
        """grad dF/drho at the particles themselves, (..., N, d), itself differentiable."""
        return torch.func.grad(lambda points: self.first_variation(points, x).sum())(x)

    def __add__(self, other: "Functional | PointFunction") -> "Functional":
        return Sum(self, as_functional(other))


class Sum(Functional):
    """F_1 + F_2 + .."""

    def __init__(self, *parts: Functional) -> None:
        self.parts = parts

    def value(self, x: Tensor) -> Tensor:
        return torch.stack([part.value(x) for part in self.parts]).sum(0)

    def first_variation(self, points: Tensor, x: Tensor) -> Tensor:
        return torch.stack([part.first_variation(points, x) for part in self.parts]).sum(0)


class Potential(Functional):
    """F(rho) = integral U d rho, with dF/drho = U."""

    def __init__(self, U: PointFunction) -> None:
        self.U = U

    def value(self, x: Tensor) -> Tensor:
        return at_points(self.U, x).mean(-1)

    def first_variation(self, points: Tensor, x: Tensor) -> Tensor:
        return at_points(self.U, points)


class Interaction(Functional):
    """F(rho) = 1/2 double integral W(x, y) d rho(x) d rho(y), with dF/drho = integral W(., y) d rho(y).

    W need not be symmetric: only its symmetric part counts. A particle interacts with itself, as a measure does.
    """

    def __init__(self, W: PairFunction) -> None:
        self.W = W

    def value(self, x: Tensor) -> Tensor:
        return self._pairs(x, x).mean((-2, -1)) / 2

    def first_variation(self, points: Tensor, x: Tensor) -> Tensor:
        return (self._pairs(points, x).mean(-1) + self._pairs(x, points).mean(-2)) / 2

    def _pairs(self, x: Tensor, y: Tensor) -> Tensor:
        value = self.W(x, y)
        if value.shape[-2:] != (x.shape[-2], y.shape[-2]):
            want = (x.shape[-2], y.shape[-2])
            raise InputError(f"the interaction must return one value per pair, {want}, got {tuple(value.shape)}")
        return value


class KL(Functional):
    """KL(rho | pi) = integral log(rho/pi) d rho, with rho inside the logarithm smoothed by a Gaussian kernel k:

        F(rho) = integral log(k * rho) d rho - integral log pi d rho
        dF/drho = log(k * rho) + integral k(. - y) / (k * rho)(y) d rho(y) - log pi

    An empirical measure has no density, so some smoothing is needed; with this one F stays a functional of rho whose
    particle flow is exactly Hamiltonian. `log_density`: log pi, (..., N, d) -> (..., N); a constant in it adds a
    constant to F. `bandwidth`: the kernel's standard deviation; as it falls and N grows, F tends to KL(rho | pi).
    """

    def __init__(self, log_density: PointFunction, bandwidth: float) -> None:
        checks.positive("bandwidth", bandwidth)
        self.log_density, self.bandwidth = log_density, bandwidth

    def value(self, x: Tensor) -> Tensor:
        return (self._log_smoothed(x, x) - at_points(self.log_density, x)).mean(-1)

    def first_variation(self, points: Tensor, x: Tensor) -> Tensor:
        ratio = torch.exp(self._log_kernel(points, x) - self._log_smoothed(x, x).unsqueeze(-2))  # (..., M, N)
        return self._log_smoothed(points, x) + ratio.mean(-1) - at_points(self.log_density, points)

    def _log_smoothed(self, points: Tensor, x: Tensor) -> Tensor:
        """log (k * rho) at the points."""
        return torch.logsumexp(self._log_kernel(points, x), -1) - math.log(x.shape[-2])

    def _log_kernel(self, x: Tensor, y: Tensor) -> Tensor:
        variance = self.bandwidth**2
        return -squared_distances(x, y) / (2 * variance) - x.shape[-1] / 2 * math.log(2 * math.pi * variance)


def squared_distances(x: Tensor, y: Tensor) -> Tensor:
    """|x_i - y_j|^2 of (..., N, d) and (..., M, d): (..., N, M)."""
    return (x.unsqueeze(-2) - y.unsqueeze(-3)).square().sum(-1)


def as_functional(energy: Functional | PointFunction) -> Functional:
    """A functional as it is; a plain function U of points as the potential energy of U."""
    return energy if isinstance(energy, Functional) else Potential(energy)


def at_points(function: PointFunction, x: Tensor) -> Tensor:
    """function(x), checked to be one value per particle."""
    value = function(x)
    if value.shape != x.shape[:-1]:
        want, got = tuple(x.shape[:-1]), tuple(value.shape)
        raise InputError(f"the potential must return one value per particle, shape {want}, got {got}")
    return value


Energy = Functional | PointFunction


def gaussian_kernel(length: float = 1.0) -> Kernel:
    """k(x, y) = exp(-|x - y|^2 / (2 length^2))."""
    checks.positive("the kernel's length", length)
    return lambda x, y: (-squared_distances(x, y) / (2 * length**2)).exp()


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
        self.functional, self.lower_bound = as_functional(energy), lower_bound

    def _field(self, x: Tensor) -> SeparableField:
        return SeparableField(self.functional.first_variation_gradient(x))

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
