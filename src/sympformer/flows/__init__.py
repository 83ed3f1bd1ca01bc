"""The paper's mathematics on particles: pure functions of tensors, float64-clean."""

from sympformer.flows import elliptic
from sympformer.flows.attention import LinearAttention, SoftmaxAttention
from sympformer.flows.damping import Constant, LogLinear, Nesterov
from sympformer.flows.energies import (
    KL,
    Functional,
    Interaction,
    Potential,
    Stein,
    Wasserstein,
    bilinear_kernel,
    gaussian_kernel,
    quadratic_potential,
)
from sympformer.flows.integrators import (
    ACCELERATED,
    INTEGRATORS,
    Euler,
    FrozenIntegrator,
    Integrator,
    Oracle,
    Step,
    Sum,
    get_integrator,
)
from sympformer.flows.simulate import Path, simulate
from sympformer.flows.system import Field, Quadratic, System, Undamped

# fmt: off
__all__ = [
    "ACCELERATED", "INTEGRATORS", "KL", "Constant", "Euler", "Field", "FrozenIntegrator", "Functional",
    "Integrator", "Interaction", "LinearAttention", "LogLinear", "Nesterov", "Oracle", "Path", "Potential",
    "Quadratic", "SoftmaxAttention", "Stein", "Step", "Sum", "System", "Undamped", "Wasserstein", "bilinear_kernel",
    "elliptic", "gaussian_kernel", "get_integrator", "quadratic_potential", "simulate",
]
