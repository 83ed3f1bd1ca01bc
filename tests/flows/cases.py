"""The tables every flow test draws from. A new system or integrator joins by one row."""

from collections.abc import Callable

import torch
from torch import Tensor

from sympformer import flows

D = 3


def randn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def symmetric(d: int = D, seed: int = 1, size: float = 0.5) -> Tensor:
    M = randn(d, d, seed=seed)
    return size * (M + M.mT) / 2


def positive(d: int = D, seed: int = 2) -> Tensor:
    M = randn(d, d, seed=seed)
    return torch.eye(d, dtype=M.dtype) + M @ M.mT / d


def quartic(x: Tensor) -> Tensor:
    """A potential that is neither quadratic nor isotropic."""
    return (x**4).sum(-1) / 4 + x[..., 0] * x[..., 1] ** 2


def pull(x: Tensor, y: Tensor) -> Tensor:
    """An interaction that is neither symmetric nor translation-invariant."""
    squared = (x.unsqueeze(-2) - y.unsqueeze(-3)).square().sum(-1)
    return torch.log1p(squared) + x @ symmetric(seed=7).to(x.dtype) @ torch.tanh(y).mT


# name -> energies of the density on D-dimensional particles
FUNCTIONALS: dict[str, Callable[[], flows.Functional]] = {
    "potential": lambda: flows.Potential(quartic),
    "interaction": lambda: flows.Interaction(pull),
    "kl": lambda: flows.KL(lambda x: -quartic(x), bandwidth=0.6),
    "sum": lambda: flows.Potential(quartic) + flows.Interaction(pull) + flows.KL(lambda x: -quartic(x), bandwidth=0.6),
}

# name -> builder of a system on D-dimensional particles with full visibility
SYSTEMS: dict[str, Callable[[], flows.System]] = {
    "softmax": lambda: flows.SoftmaxAttention(symmetric(), positive(), form="paper"),
    "linear": lambda: flows.LinearAttention(positive(), symmetric()),
    "quadratic": lambda: flows.Quadratic(positive()),
    "wasserstein": lambda: flows.Wasserstein(quartic),
    "stein-gaussian": lambda: flows.Stein(quartic, flows.gaussian_kernel(0.8)),
    "stein-bilinear": lambda: flows.Stein(quartic, flows.bilinear_kernel(positive())),
    "wasserstein-kl": lambda: flows.Wasserstein(FUNCTIONALS["kl"]()),
    "stein-interaction": lambda: flows.Stein(FUNCTIONALS["interaction"](), flows.gaussian_kernel(0.8)),
}

# name -> order on the damped system (None: not a consistent scheme), kernel evaluations a step
INTEGRATORS: dict[str, tuple[int | None, int]] = {
    "plain_euler": (None, 1),
    "presymp_euler": (1, 1),
    "symplectic_euler": (1, 1),
    "exp_euler": (1, 1),
    "ab2": (2, 1),
    "etd_ab2": (2, 1),
    "rk4": (4, 4),
    "gradient_flow": (None, 1),
    "nesterov": (None, 1),
}

DAMPINGS: dict[str, Callable[[], flows.LogLinear]] = {
    "constant": lambda: flows.Constant(0.7, t0=1.0),
    "nesterov": lambda: flows.Nesterov(3.0, t0=1.0),
    "log-linear": lambda: flows.LogLinear(r=1.3, m=0.4, t0=0.5),
}


def relative_error(got: Tensor, want: Tensor) -> float:
    return ((got - want).norm() / want.norm()).item()
