"""The parts that layers are made of. Each knows the optimizer group of its parameters and how they start.

Groups: "matrix" (decayed, clipped), "embedding" (decayed), "gain" (undecayed), "scalar" (see scalars.py).
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sympformer.nn.config import StackConfig
from sympformer.nn.tables import MLPS, NORMS

STD = 0.02  # GPT-2's


def _start(weight: Tensor, std: float, identity: bool) -> None:
    """A matrix as it starts: the identity, or normal."""
    if identity:
        nn.init.eye_(weight)
    else:
        nn.init.normal_(weight, std=std)


class Projection(nn.Linear):
    """A matrix without bias. `std`: of its normal start; "identity" starts it at the identity."""

    group = "matrix"

    def __init__(self, n_in: int, n_out: int, std: float = STD, identity: bool = False) -> None:
        self.std, self.identity = std, identity  # before the base class, which resets
        super().__init__(n_in, n_out, bias=False)

    def reset_parameters(self) -> None:
        _start(self.weight, self.std, self.identity)


class Matrix(nn.Module):
    """A matrix (n_out, n_in) that is part of a formula. Calling it gives it, by way of whatever stands before modules.

    No `nn.Linear`: what adapters and quantisation put in place of one would never multiply anything here.
    """

    group = "matrix"

    def __init__(self, n_in: int, n_out: int, std: float = STD, identity: bool = False) -> None:
        super().__init__()
        self.std, self.identity = std, identity
        self.weight = nn.Parameter(torch.empty(n_out, n_in))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        _start(self.weight, self.std, self.identity)

    def forward(self) -> Tensor:
        return self.weight


class Embedding(nn.Embedding):
    """A table of vectors."""

    group = "embedding"

    def reset_parameters(self) -> None:
        nn.init.normal_(self.weight, std=STD)


class Norm(nn.LayerNorm):
    """LayerNorm without bias, its gain started at `gain`."""

    group = "gain"

    def __init__(self, d: int, gain: float = 1.0) -> None:
        self.gain = gain
        super().__init__(d, bias=False)

    def reset_parameters(self) -> None:
        nn.init.constant_(self.weight, self.gain)


class RMSNorm(nn.RMSNorm):
    """x / sqrt(mean x^2 + eps) times a gain, started at `gain`: LayerNorm without taking the mean away."""

    group = "gain"

    def __init__(self, d: int, gain: float = 1.0) -> None:
        self.gain = gain
        super().__init__(d, eps=1e-5)  # LayerNorm's

    def reset_parameters(self) -> None:
        nn.init.constant_(self.weight, self.gain)

    def forward(self, x: Tensor) -> Tensor:
        return rms_norm(x, self.weight, self.eps)


def rms_norm(x: Tensor, gain: Tensor, eps: float | None) -> Tensor:
    """RMSNorm in the wider dtype of both, as autocast has it for LayerNorm."""
    dtype = x.dtype if x.dtype == gain.dtype else torch.promote_types(x.dtype, gain.dtype)
    return torch.rms_norm(x.to(dtype), gain.shape, gain.to(dtype), eps)


def norm(cfg: StackConfig, gain: float = 1.0) -> nn.Module:
    """The norm of a config, its gain started at `gain`."""
    return NORMS[cfg.norm](cfg.d_model, gain)


class Cap(nn.Module):
    """Scale rows whose root mean square exceeds `limit` down to it; leave the others alone."""

    def __init__(self, limit: float) -> None:
        super().__init__()
        self.limit = limit

    def forward(self, y: Tensor) -> Tensor:
        square = y.to(torch.promote_types(y.dtype, torch.float32)).square().mean(-1, keepdim=True)
        # never the root of a square that may be zero, whose slope is infinite
        scale = self.limit / square.clamp_min(self.limit**2).sqrt()
        return y * torch.where(square > self.limit**2, scale, 1.0).to(y.dtype)


# momentum_bound -> the options that it uses
BOUND_OPTIONS = {
    "norm": {"momentum_gain"},
    "cap": {"momentum_cap"},
    "none": set[str](),
    "drift": {"momentum_gain", "momentum_cap"},
}


def bound_options(cfg: StackConfig) -> frozenset[str]:
    """The options that the momentum's bound uses."""
    return frozenset({"momentum_bound"}) | BOUND_OPTIONS[cfg.momentum_bound]


def momentum_bound(cfg: StackConfig) -> nn.Module:
    """What keeps a momentum finite, by cfg.momentum_bound."""
    if cfg.momentum_bound == "norm":
        return norm(cfg, cfg.momentum_gain)
    return nn.Identity() if cfg.momentum_bound == "none" else Cap(cfg.momentum_cap)


def drift_norm(cfg: StackConfig) -> nn.Module | None:
    """The norm on what a momentum adds to the position, under bound "drift"."""
    return norm(cfg, cfg.momentum_gain) if cfg.momentum_bound == "drift" else None


def bounded(bound: Callable[[Tensor], Tensor] | None, update: Tensor) -> Tensor:
    """The update under its norm, if it has one."""
    return update if bound is None else bound(update)


class MLP(nn.Module):
    """Norm, then `activate` between two matrices, mlp_ratio times as wide. `down` starts small, as in GPT-2.

    gated: `activate` takes twice the columns that it gives, and the width is that of as many parameters.
    """

    def __init__(self, cfg: StackConfig, activate: Callable[[Tensor], Tensor] = F.gelu, gated: bool = False) -> None:
        super().__init__()
        self.dropout, self.activate = cfg.dropout, activate
        width = gated_width(cfg) if gated else cfg.mlp_ratio * cfg.d_model
        self.norm = norm(cfg)
        self.up = Projection(cfg.d_model, 2 * width if gated else width)
        self.down = Projection(width, cfg.d_model, std=residual_std(cfg))

    def forward(self, x: Tensor) -> Tensor:
        return dropout(self.down(self.activate(self.up(self.norm(x)))), self.dropout, self.training)


def relu2_mlp(cfg: StackConfig) -> MLP:
    """max(u, 0)^2 between the matrices."""
    return MLP(cfg, relu2)


def swiglu_mlp(cfg: StackConfig) -> MLP:
    """silu(u) v between the matrices, u and v both from the first."""
    return MLP(cfg, swiglu, gated=True)


def relu2(u: Tensor) -> Tensor:
    """max(u, 0)^2."""
    return F.relu(u).square()


def swiglu(uv: Tensor) -> Tensor:
    """silu(u) v, with u the first half of the columns and v the second."""
    u, v = uv.chunk(2, -1)
    return F.silu(u) * v


def gated_width(cfg: StackConfig) -> int:
    """Two thirds of the plain MLP's hidden width, as there are three matrices for two, in steps of 8."""
    return max(8, 8 * round(cfg.mlp_ratio * cfg.d_model / 12))


def no_mlp(cfg: StackConfig) -> None:
    """Layers without a second half."""
    return


def mlp(cfg: StackConfig) -> nn.Module | None:
    """The MLP of a config, if any."""
    return MLPS[cfg.mlp](cfg)


def residual_std(cfg: StackConfig) -> float:
    """The start of the matrices that write into the stream: GPT-2's 0.02 / sqrt(2 n_layer), or zero (zero_start)."""
    return 0.0 if cfg.zero_start else STD / math.sqrt(2 * cfg.n_layer)


def split_heads(x: Tensor, n_head: int) -> Tensor:
    """(B, T, d) -> (B, H, T, d/H)."""
    B, T, d = x.shape
    return x.view(B, T, n_head, d // n_head).transpose(1, 2)


def merge_heads(x: Tensor) -> Tensor:
    """(B, H, T, d/H) -> (B, T, d)."""
    B, H, T, d_head = x.shape
    return x.transpose(1, 2).reshape(B, T, H * d_head)


def dropout(x: Tensor, p: float, training: bool) -> Tensor:
    """Dropout that costs nothing where it does nothing."""
    return F.dropout(x, p, training) if p > 0 and training else x
