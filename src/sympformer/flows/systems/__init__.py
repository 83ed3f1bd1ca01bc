"""Systems of particles: the ground truth of every attention kind, and the generic flows of the paper's section 2."""

from sympformer.flows.systems.base import Field, System
from sympformer.flows.systems.functionals import KL, Functional, Interaction, Potential
from sympformer.flows.systems.generic import (
    Stein,
    Wasserstein,
    bilinear_kernel,
    gaussian_kernel,
    quadratic_potential,
)
from sympformer.flows.systems.linear import LinearAttention
from sympformer.flows.systems.quadratic import Quadratic
from sympformer.flows.systems.softmax import SoftmaxAttention

__all__ = [
    "KL",
    "Field",
    "Functional",
    "Interaction",
    "LinearAttention",
    "Potential",
    "Quadratic",
    "SoftmaxAttention",
    "Stein",
    "System",
    "Wasserstein",
    "bilinear_kernel",
    "gaussian_kernel",
    "quadratic_potential",
]
