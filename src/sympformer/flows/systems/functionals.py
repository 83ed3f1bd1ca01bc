"""Energies F(rho) of a density, known through their first variation (the paper's section 2).

The particles x stand for the empirical measure rho = 1/N sum_j delta_{x_j}. The first variation dF/drho is a function
on space: F(rho + eps phi) = F(rho) + eps integral dF/drho phi + .., for every phi of mass zero; it counts up to a
constant. Its gradient at the particles is what flows follow, and N times the gradient of F in one particle's position.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable

import torch
from torch import Tensor

from sympformer.errors import InputError
from sympformer.flows import checks

PointFunction = Callable[[Tensor], Tensor]  # (..., N, d) -> (..., N)
PairFunction = Callable[[Tensor, Tensor], Tensor]  # (..., N, d), (..., M, d) -> (..., N, M)


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
        squared = (x.unsqueeze(-2) - y.unsqueeze(-3)).square().sum(-1)  # (..., N, M)
        return -squared / (2 * self.bandwidth**2) - x.shape[-1] / 2 * math.log(2 * math.pi * self.bandwidth**2)


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
