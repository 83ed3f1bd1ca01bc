"""The systems and dampings that `sympformer flow` offers, made from a few numbers and a seed."""

import math
from typing import Literal, get_args

import torch
from torch import Tensor

from sympformer.errors import InputError, unknown_name
from sympformer.flows import (
    LinearAttention,
    LogLinear,
    Quadratic,
    SoftmaxAttention,
    Stein,
    System,
    Wasserstein,
    gaussian_kernel,
)
from sympformer.flows.attention import Form

SystemName = Literal["linear", "softmax", "quadratic", "wasserstein", "stein"]
DampingName = Literal["nesterov", "constant", "log-linear"]

TITLES: dict[str, str] = {
    "linear": "linear attention",
    "softmax": "softmax attention",
    "quadratic": "harmonic oscillators",
    "wasserstein": "Wasserstein flow in a curved valley",
    "stein": "Stein flow in a curved valley",
}


def make_system(
    name: str, dim: int, condition: float, generator: torch.Generator, causal: bool = False, form: Form | None = None
) -> System:
    """A system whose matrix has the eigenvalues logspace(-log10 condition, 0, dim) and seeded random eigenvectors.

    linear: A = I, V = -Q diag Q'. softmax: A = Q diag Q' / sqrt(dim), B = I. quadratic: K = Q diag Q'.
    wasserstein, stein: the energy of a curved valley; stein with a Gaussian kernel.
    """
    if name not in get_args(SystemName):
        raise unknown_name("system", name, get_args(SystemName))
    _check_options(name, dim, condition, causal, form)
    Q = rotation(dim, generator)
    values = torch.logspace(-math.log10(condition), 0, dim, dtype=torch.float64)
    K, eye = Q @ torch.diag(values) @ Q.mT, torch.eye(dim, dtype=torch.float64)
    K = (K + K.mT) / 2
    if name == "linear":
        return LinearAttention(eye, -K, causal=causal)
    if name == "softmax":
        return SoftmaxAttention(K / math.sqrt(dim), eye, causal=causal, form=form or "paper")
    if name == "quadratic":
        return Quadratic(K)
    if name == "wasserstein":
        return Wasserstein(Valley(Q, values), lower_bound=0.0)
    return Stein(Valley(Q, values), gaussian_kernel(math.sqrt(dim)), lower_bound=0.0)


class Valley:
    """U(x) = 1/2 sum_k lambda_k v_k^2 with u = Q'x, v_1 = u_1 and v_k = u_k - (u_1^2 - 1)/2 in the other directions.

    The floor of the valley is a parabola along the softest direction; at the minimum U = 0.
    """

    def __init__(self, Q: Tensor, values: Tensor) -> None:
        self.Q, self.values = Q, values

    def __call__(self, x: Tensor) -> Tensor:
        u = x @ self.Q
        soft, rest = u[..., :1], u[..., 1:]
        v = torch.cat((soft, rest - (soft**2 - 1) / 2), -1)
        return (self.values * v**2).sum(-1) / 2


def rotation(dim: int, generator: torch.Generator) -> Tensor:
    """A random orthogonal matrix (dim, dim)."""
    Q, _ = torch.linalg.qr(torch.randn(dim, dim, generator=generator, dtype=torch.float64))
    return Q


def make_damping(name: str, r: float | None = None, m: float | None = None, t0: float | None = None) -> LogLinear:
    """alpha(t) = r/t + m from t0. nesterov: r (3). constant: m (0.3). log-linear: r (3) and m (0.1)."""
    if name not in get_args(DampingName):
        raise unknown_name("damping", name, get_args(DampingName))
    if name == "nesterov" and m is not None:
        raise InputError("nesterov damping r/t has no m; leave m out or choose log-linear damping")
    if name == "constant" and r is not None:
        raise InputError("constant damping m has no r; leave r out or choose log-linear damping")
    if r is None:
        r = 0.0 if name == "constant" else 3.0
    if m is None:
        m = {"nesterov": 0.0, "constant": 0.3, "log-linear": 0.1}[name]
    for label, value in (("r", r), ("m", m), ("t0", t0 or 0.0)):
        if not math.isfinite(value):
            raise InputError(f"{label} must be a finite number, got {value}")
    return LogLinear(r=r, m=m, t0=1.0 if t0 is None else t0)


def _check_options(name: str, dim: int, condition: float, causal: bool, form: Form | None) -> None:
    if dim < 2:
        raise InputError(f"dim must be at least 2 so that tokens can be drawn in a plane, got {dim}")
    if not 1 <= condition <= 1e12:
        raise InputError(f"condition must lie between 1 and 1e12, got {condition}")
    if causal and name not in ("linear", "softmax"):
        raise InputError(f"causal is an option of linear and softmax attention; {name} has no order of tokens")
    if form is not None and name != "softmax":
        raise InputError(f"form is an option of softmax attention; {name} has one force only")
    if form is not None and form not in get_args(Form):
        raise unknown_name("force form", form, get_args(Form))
