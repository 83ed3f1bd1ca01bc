"""What a family of elliptic laws is: one g for every dimension, its constants, its radii."""

import math
from abc import ABC, abstractmethod
from functools import cache

from torch import Generator, Tensor

from sympformer.flows.elliptic.radial import Conditions, conditions, log_integral


class Family(ABC):
    """All E(m, Sigma, g) of one g: x = m + L R U, L L' = Sigma, U uniform on the sphere, R >= 0 set by g.

    A family states the shape of g and how R is drawn. Its constants follow by quadrature where it has no closed form.
    """

    @abstractmethod
    def log_shape(self, s: Tensor, d: int) -> Tensor:
        """log g(s) up to a constant, s >= 0."""

    @abstractmethod
    def radii(self, normals: Tensor, generator: Generator | None) -> Tensor:
        """n independent R, (n,). They may use the lengths of the normals (n, d), but not their directions."""

    def log_constant(self, d: int) -> float:
        """log g(s) - log_shape(s): what condition i) asks for."""
        return _log_sphere(d) - _log_shape_integral(self, d / 2, d)

    def log_g(self, s: Tensor, d: int) -> Tensor:
        """log g(s) in d dimensions, normalised."""
        return self.log_shape(s, d) + self.log_constant(d)

    def kappa(self, d: int) -> float:
        """1/d integral |y|^2 g(|y|^2) dy = E[R^2]/d: the covariance in d dimensions is kappa Sigma."""
        second = _log_shape_integral(self, d / 2 + 1, d) + self.log_constant(d)
        return math.exp(second - _log_sphere(d)) / d

    def conditions(self, d: int) -> Conditions:
        """The paper's conditions i) to iii) on g in d dimensions, by quadrature."""
        return conditions(lambda s: self.log_g(s, d), d)


def _log_sphere(d: int) -> float:
    """log of Gamma(d/2)/pi^(d/2), the right-hand side of condition i)."""
    return math.lgamma(d / 2) - d / 2 * math.log(math.pi)


@cache
def _log_shape_integral(family: Family, power: float, d: int) -> float:
    """log integral s^(power - 1) shape(s) ds; kept, because every density asks for it."""
    return log_integral(lambda s: family.log_shape(s, d), power)
