"""The parts that layers are made of. Each knows the optimizer group of its parameters and how they start.

Groups: "matrix" (decayed, clipped), "embedding" (decayed), "gain" (undecayed), "scalar" (see scalars.py).
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sympformer import ops
from sympformer.flows import Sum
from sympformer.nn.options import CAPPED, GAINED, StackConfig
from sympformer.nn.tables import MLPS, NO_MLP, NORMS, register

STD = 0.02  # GPT-2's


def _start(matrix: "Projection | Matrix") -> None:
    if matrix.identity:
        nn.init.eye_(matrix.weight)
    else:
        nn.init.normal_(matrix.weight, std=matrix.std)


class Projection(nn.Linear):
    """A matrix without bias. `std`: of its normal start; "identity" starts it at the identity."""

    group = "matrix"
    reset_parameters = _start

    def __init__(self, n_in: int, n_out: int, std: float = STD, identity: bool = False) -> None:
        self.std, self.identity = std, identity  # before the base class, which resets
        super().__init__(n_in, n_out, bias=False)


class Matrix(nn.Module):
    """A matrix (n_out, n_in) that is part of a formula. Calling it gives it, by way of whatever stands before modules.

    No `nn.Linear`: what adapters and quantisation put in place of one would never multiply anything here.
    """

    group = "matrix"
    reset_parameters = _start

    def __init__(self, n_in: int, n_out: int, std: float = STD, identity: bool = False) -> None:
        super().__init__()
        self.std, self.identity = std, identity
        self.weight = nn.Parameter(torch.empty(n_out, n_in))
        self.reset_parameters()

    def forward(self) -> Tensor:
        return self.weight


class Embedding(nn.Embedding):
    """A table of vectors."""

    group = "embedding"

    def reset_parameters(self) -> None:
        nn.init.normal_(self.weight, std=STD)


class Norm(nn.LayerNorm):
    """LayerNorm without bias, its gain started at `gain`. Of a `Sum` it keeps the terms for the backward pass, and not
    what they add up to."""

    group = "gain"

    def __init__(self, d: int, gain: float = 1.0) -> None:
        self.gain = gain
        super().__init__(d, bias=False)

    def reset_parameters(self) -> None:
        nn.init.constant_(self.weight, self.gain)

    def forward(self, x: Tensor | Sum) -> Tensor:
        return ops.norm_of_sum(*x, self.weight) if isinstance(x, Sum) else super().forward(x)


class Channels(nn.Module):
    """A number for every channel, started at `start`. Calling it gives them (d,)."""

    group = "gain"

    def __init__(self, d: int, start: float) -> None:
        super().__init__()
        self.start = start
        self.weight = nn.Parameter(torch.empty(d))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.constant_(self.weight, self.start)

    def forward(self) -> Tensor:
        return self.weight


class Share(Channels):
    """A share in (0, 1) for every channel, through a sigmoid."""

    def __init__(self, d: int, share: float) -> None:
        super().__init__(d, math.log(share / (1 - share)))

    def forward(self) -> Tensor:
        return self.weight.sigmoid()


class RMSNorm(nn.RMSNorm):
    """x / sqrt(mean x^2 + eps) times a gain, started at `gain`: LayerNorm without taking the mean away."""

    group = "gain"

    def __init__(self, d: int, gain: float = 1.0) -> None:
        self.gain = gain
        super().__init__(d, eps=1e-5)  # LayerNorm's

    def reset_parameters(self) -> None:
        nn.init.constant_(self.weight, self.gain)

    def forward(self, x: Tensor) -> Tensor:
        gain, dtype = self.weight, torch.promote_types(x.dtype, self.weight.dtype)  # as autocast does with LayerNorm
        return torch.rms_norm(x.to(dtype), gain.shape, gain.to(dtype), self.eps)


def norm(cfg: StackConfig, gain: float = 1.0) -> nn.Module:
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


class Bound(nn.Module):
    """Where N stands: on the force, on the momentum, or on what moves the position (the momentum then under a cap)."""

    CAP = 1.0  # largest root mean square of a momentum's row

    def __init__(self, cfg: StackConfig) -> None:
        super().__init__()
        where, N = cfg.bound, norm(cfg, cfg.gain or 1.0) if cfg.bound in GAINED else None
        self.force = N if where == "update" else None
        self.momentum = N if where == "momentum" else Cap(self.CAP) if where in CAPPED else None
        self.drift = N if where == "drift" else None


def under(bound: nn.Module | None, x: Tensor | Sum) -> Tensor:
    """N(x), through the module, so that hooks, adapters and offloading see a call. Without N, x."""
    if isinstance(x, Sum) and type(bound) is not Norm:
        x = ops.plus(x.a * x.u, x.b, x.v)
    return x if bound is None else bound(x)  # type: ignore[return-value]


class MLP(nn.Module):
    """Norm, then `activate` between two matrices, mlp_ratio times as wide. `down` starts small, as in GPT-2.

    gated: `activate` takes twice the columns that it gives, and the width is that of as many parameters.
    """

    def __init__(self, cfg: StackConfig, activate: Callable[[Tensor], Tensor] = F.gelu, gated: bool = False) -> None:
        super().__init__()
        self.dropout, self.activate = cfg.dropout, activate
        assert cfg.mlp_ratio is not None
        width = cfg.mlp_ratio * cfg.d_model
        if gated:  # three matrices for two: two thirds of the width, in steps of 8
            width = max(8, 8 * round(width / 12))
        self.norm = norm(cfg)
        self.up = Projection(cfg.d_model, 2 * width if gated else width)
        self.down = Projection(width, cfg.d_model, std=residual_std(cfg))

    def forward(self, x: Tensor) -> Tensor:
        return dropout(self.down(self.activate(self.up(self.norm(x)))), self.dropout, self.training)


def relu2(u: Tensor) -> Tensor:
    """max(u, 0)^2."""
    return F.relu(u).square()


def swiglu(uv: Tensor) -> Tensor:
    """silu(u) v, with u the first half of the columns and v the second."""
    u, v = uv.chunk(2, -1)
    return F.silu(u) * v


def mlp(cfg: StackConfig) -> nn.Module | None:
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


register("norm", "layernorm", Norm)
register("norm", "rmsnorm", RMSNorm)
register("mlp", "gelu", MLP)
register("mlp", "relu2", lambda cfg: MLP(cfg, relu2))
register("mlp", "swiglu", lambda cfg: MLP(cfg, swiglu, gated=True))
register("mlp", NO_MLP, lambda cfg: None)
