"""The parts blocks are made of. Each knows the optimizer group of its parameters and how they start.

Groups: "matrix" (decayed, clipped), "embedding" (decayed), "gain" (undecayed), "scalar" (see scalars.py).
"""

import math
from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sympformer import ops
from sympformer.flows.damping import Scalar
from sympformer.models.config import ModelConfig

GROUPS = ("matrix", "embedding", "gain", "scalar")
STD = 0.02  # GPT-2's


class Projection(nn.Linear):
    """A matrix without bias. `std`: of its normal start; "identity" starts it at the identity."""

    group = "matrix"

    def __init__(self, n_in: int, n_out: int, std: float = STD, identity: bool = False) -> None:
        self.std, self.identity = std, identity  # before the base class, which resets
        super().__init__(n_in, n_out, bias=False)

    def reset_parameters(self) -> None:
        if self.identity:
            nn.init.eye_(self.weight)
        else:
            nn.init.normal_(self.weight, std=self.std)


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


class Cap(nn.Module):
    """Scale rows whose root mean square exceeds `limit` down to it; leave the others alone."""

    def __init__(self, limit: float) -> None:
        super().__init__()
        self.limit = limit

    def forward(self, y: Tensor) -> Tensor:
        rms = y.float().square().mean(-1, keepdim=True).sqrt()
        return y * (self.limit / rms.clamp_min(self.limit)).to(y.dtype)


def momentum_bound(cfg: ModelConfig) -> nn.Module:
    """What keeps a momentum finite, by cfg.momentum_bound."""
    if cfg.momentum_bound == "norm":
        return Norm(cfg.d_model, cfg.momentum_gain)
    return Cap(cfg.momentum_cap) if cfg.momentum_bound == "cap" else nn.Identity()


class MLP(nn.Module):
    """LayerNorm, then GELU between two matrices, mlp_ratio times as wide. `down` starts small, as in GPT-2."""

    def __init__(self, cfg: ModelConfig) -> None:
        super().__init__()
        self.dropout = cfg.dropout
        self.norm = Norm(cfg.d_model)
        self.up = Projection(cfg.d_model, cfg.mlp_ratio * cfg.d_model)
        self.down = Projection(cfg.mlp_ratio * cfg.d_model, cfg.d_model, std=residual_std(cfg))

    def forward(self, x: Tensor) -> Tensor:
        return dropout(self.down(gelu(self.up(self.norm(x)))), self.dropout, self.training)


def gelu(x: Tensor) -> Tensor:
    """x (1 + erf(x / sqrt 2)) / 2. For a token at a time the formula as it stands: the CPU library spends 40
    microseconds on setting up its kernel, more than a layer's other elementwise work together."""
    if x.numel() > 4096 or torch.is_grad_enabled() or x.device.type != "cpu":
        return F.gelu(x)
    return torch.erf(x * math.sqrt(0.5)).add_(1).mul_(x).mul_(0.5)


def residual_std(cfg: ModelConfig) -> float:
    """GPT-2's start of the matrices that write into the residual stream: 0.02 / sqrt(2 n_layer)."""
    return STD / math.sqrt(2 * cfg.n_layer)


def grouped_parameters(model: nn.Module) -> dict[str, list[nn.Parameter]]:
    """Every parameter once, under the group its module declares."""
    groups: dict[str, list[nn.Parameter]] = {group: [] for group in GROUPS}
    seen: set[int] = set()
    for module, parameter in _own_parameters(model):
        if id(parameter) not in seen:
            seen.add(id(parameter))
            groups[str(module.group)].append(parameter)
    return groups


def _own_parameters(model: nn.Module) -> Iterator[tuple[nn.Module, nn.Parameter]]:
    for module in model.modules():
        for parameter in module.parameters(recurse=False):
            yield module, parameter


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


def bounded_sum(bound: nn.Module, a: Scalar, u: Tensor, b: Scalar, v: Tensor) -> Tensor:
    """bound(a u + b v); a LayerNorm does it without keeping the sum."""
    if isinstance(bound, Norm):
        return ops.norm_of_sum(a, u, b, v, bound.weight)
    return bound(a * u + b * v)


@torch.no_grad()
def perturb_(model: nn.Module, std: float = 0.2, seed: int = 0, by_width: bool = False) -> nn.Module:
    """Add N(0, std^2) to every matrix and table, so that attention and momentum matter. For tests and audits.

    by_width: std is that of a whole row's sum, not of an entry, so that a wide model does not saturate.
    """
    generator = torch.Generator().manual_seed(seed)
    for parameter in model.parameters():
        if parameter.ndim >= 2 and parameter.is_floating_point() and parameter.numel() > 0:
            noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
            scale = std / math.sqrt(parameter[0].numel()) if by_width else std
            parameter.add_((scale * noise).to(parameter))
    return model
