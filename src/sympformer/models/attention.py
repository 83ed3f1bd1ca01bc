"""Attention inside a model: the oracles of the accelerated layers, and the classical attention of the peers.

An oracle is the fast twin of a system in `flows.systems`: `at(x)` evaluates the kernel once and returns a `Field`,
which the integrators of `flows` use as they use the slow one. Positions come normalised; momenta do not.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sympformer import ops
from sympformer.flows import Field
from sympformer.flows.damping import Scalar
from sympformer.flows.systems.base import Bound
from sympformer.models.cache import LayerCache, Visible, once
from sympformer.models.config import ModelConfig
from sympformer.models.direct import part
from sympformer.models.layers import Norm, Projection, dropout, merge_heads, residual_std, split_heads

# log z is kept in [-10, 10]: z and 1/z then stay below 22,027, which products with a momentum can carry in float32
LOG_Z_BOUND = 10.0
# rho_j multiplies values inside the kernel of form "paper", where an infinity would poison a whole row
RHO_BOUND = 1e4


def kernels(cfg: ModelConfig) -> tuple[int, float]:
    """How many kernels an accelerated layer has, and the scale of their scores.

    The mean of H score matrices of width d/H, each scaled by 1/sqrt(d/H), is one kernel of width d.
    """
    if cfg.heads == "averaged":
        return 1, 1 / math.sqrt(cfg.n_head * cfg.d_model)
    return cfg.n_head, 1 / math.sqrt(cfg.d_head)


def remembered(qkv: Tensor, n_head: int, cache: LayerCache) -> tuple[Tensor, Tensor, Tensor]:
    """(B, T, 3d) -> queries of the present tokens, keys and values of these and of all before, each (B, H, ., d/H)."""
    B, T, width = qkv.shape
    if T == 1:
        parts = qkv.view(B, 3 * n_head, 1, width // (3 * n_head))  # the same as below, for one token
    else:
        parts = qkv.view(B, T, 3 * n_head, -1).transpose(1, 2)  # (B, 3H, T, d/H)
    q, pairs = parts.split_with_sizes((n_head, 2 * n_head), 1)
    k, v = cache.pairs.append(pairs).chunk(2, 1)
    return q, k, v


class Mobility(nn.Module):
    """B of the softmax system: velocity = B y / z, by cfg.mobility.

    free: any matrix, started at the identity. spd: B = L L' + eps I. derived: B = Sym(V A^-1), in float32.
    """

    EPS = 1e-4

    def __init__(self, cfg: ModelConfig) -> None:
        super().__init__()
        self.kind = cfg.mobility
        self.factor = Projection(cfg.d_model, cfg.d_model, identity=cfg.mobility != "derived")

    def forward(self, A: Tensor | None) -> Tensor:
        """The matrix B; `A` is needed by "derived" only."""
        W = self.factor.weight
        if self.kind == "free":
            return W
        if self.kind == "spd":
            return W @ W.mT + self.EPS * torch.eye(len(W), dtype=W.dtype, device=W.device)
        assert A is not None
        with torch.autocast(W.device.type, enabled=False):
            wide = torch.promote_types(W.dtype, torch.float32)
            M = torch.linalg.solve(A.to(wide), W.to(wide).mT)  # A^-1 V', the transpose of V A^-1 as A = A'
        return ((M + M.mT) / 2).to(W.dtype)


@dataclass(frozen=True)
class SoftmaxField(Field):
    """The softmax field at fixed positions, in log form: z = exp(log_z), mean_i = sum_j P_ij v_j."""

    oracle: "SoftmaxOracle"
    B: Tensor  # (d, d)
    attend: Callable[[Tensor], tuple[Tensor, Tensor]]  # values -> (sum_j P_ij values_j, lse_i)
    v: Tensor  # (B, H, T, c)
    mean: Tensor  # (B, H, T, c)
    log_z: Tensor  # (B, H, T, 1)
    cache: LayerCache | None

    def velocity(self, y: Tensor) -> Tensor:
        """velocity_i = B y_i / z_i."""
        return self._velocity(y, self._mobile(y))

    def force(self, y: Tensor) -> Tensor:
        """own: z_i (rho_i/2 + 1) mean_i.  paper: the same + z_i/2 sum_j P_ij rho_j v_j."""
        return self._force(y, self._mobile(y))

    def both(self, y: Tensor) -> tuple[Tensor, Tensor]:
        By = self._mobile(y)
        return self._velocity(y, By), self._force(y, By)

    def euler_step(
        self, x: Tensor, y: Tensor, h_x: Scalar, zeta_1: Scalar, zeta_2: Scalar, bound: Bound = None
    ) -> tuple[Tensor, Tensor]:
        """As in `Field`; form "own" under a LayerNorm keeps neither velocity, nor force, nor the unbounded momentum."""
        drops = self.oracle.dropout > 0 and self.oracle.training
        if self.oracle.form == "paper" or drops or not isinstance(bound, Norm):
            return super().euler_step(x, y, h_x, zeta_1, zeta_2, bound)
        return ops.own_euler_step(x, y, self.B, self.mean, self.log_z, h_x, zeta_1, zeta_2, bound.weight)

    def first_order(self) -> Tensor:
        """Classical attention on the same kernel: B sum_j P_ij v_j."""
        return F.linear(merge_heads(self.mean), self.B)

    def _mobile(self, y: Tensor) -> Tensor:
        return split_heads(F.linear(y, self.B), self.oracle.n_kernel)  # (B, H, T, c)

    # log z is float32 at least; velocity and force have the dtype of y, so that a model in bfloat16 stays in it

    def _velocity(self, y: Tensor, By: Tensor) -> Tensor:
        return merge_heads(By * torch.exp(-self.log_z)).to(y.dtype)

    def _force(self, y: Tensor, By: Tensor) -> Tensor:
        kinetic = (split_heads(y, self.oracle.n_kernel) * By).sum(-1, keepdim=True).to(self.log_z.dtype)  # <y, B y>
        # z (rho/2 + 1) with rho = kinetic / z^2, without ever forming z^2
        force = (torch.exp(-self.log_z) * kinetic / 2 + torch.exp(self.log_z)) * self.mean
        if self.oracle.form == "paper":
            force = force + torch.exp(self.log_z) * self._others(kinetic)
        return dropout(merge_heads(force).to(y.dtype), self.oracle.dropout, self.oracle.training)

    def _others(self, kinetic: Tensor) -> Tensor:
        """1/2 sum_j P_ij rho_j v_j: a second pass over the same kernel, for what the others' momenta add."""
        rho = (kinetic * torch.exp(-2 * self.log_z)).clamp(-RHO_BOUND, RHO_BOUND)
        if self.cache is not None:
            rho = self.cache.rho.append(rho)
        # float16 could overflow on rho v: this pass runs in the dtype of rho there
        narrow = self.v.dtype if self.v.dtype != torch.float16 else rho.dtype
        pulled, _ = self.attend((rho / 2 * self.v).to(narrow))
        return pulled


class SoftmaxOracle(nn.Module):
    """Fast twin of `flows.SoftmaxAttention`: flash attention that also returns the log-sum-exp."""

    def __init__(self, cfg: ModelConfig) -> None:
        super().__init__()
        d = cfg.d_model
        self.n_kernel, self.scale = kernels(cfg)
        self.tied, self.form, self.dropout = cfg.value == "tied", cfg.form, cfg.dropout
        self.plain = not self.tied and cfg.mobility == "free"  # A and B need no working out
        self.qkv = Projection(d, (2 if self.tied else 3) * d)
        self.mobility = Mobility(cfg)

    def at(self, x: Tensor, visible: Visible, cache: LayerCache | None = None) -> SoftmaxField:
        """One kernel evaluation at positions x (B, T, d)."""
        A, B = (None, self.mobility.factor.weight) if self.plain else once(cache, "matrices", self.matrices)
        scale = self.scale if A is None else 1.0
        if cache is None:
            q, k, v = (split_heads(t, self.n_kernel) for t in self._projections(x, A))
        else:
            qkv = part(self, "qkv", cache)(x) if A is None else torch.cat(self._projections(x, A), -1)
            q, k, v = remembered(qkv, self.n_kernel, cache)

        def attend(values: Tensor) -> tuple[Tensor, Tensor]:
            a = q if q.dtype == values.dtype else q.to(values.dtype)
            if cache is not None:
                return ops.cached_attention_lse(a, k, values, scale=scale)
            return ops.attention_lse(a, k, values, scale=scale, causal=visible.causal)

        mean, lse = attend(v)
        log_z = (lse - visible.log_n).clamp(-LOG_Z_BOUND, LOG_Z_BOUND).unsqueeze(-1)
        return SoftmaxField(self, B, attend, v, mean, log_z, cache)

    def _projections(self, x: Tensor, A: Tensor | None) -> tuple[Tensor, ...]:
        """q, k, v, each (B, T, d)."""
        if A is None:
            return self.qkv(x).chunk(3, -1)
        Ax = F.linear(x, A)
        return Ax, x.to(Ax.dtype), Ax

    def matrices(self) -> tuple[Tensor | None, Tensor]:
        """A where the value is tied to it, and B."""
        A = self._tied_matrix() if self.tied else None
        return A, self.mobility(A)

    def _tied_matrix(self) -> Tensor:
        """A = scale Sym(W_K' W_Q), so that x_i' A x_j is the symmetric part of the averaged scores."""
        W_Q, W_K = self.qkv.weight.chunk(2)
        A = self.scale * W_K.mT @ W_Q
        return (A + A.mT) / 2


@dataclass(frozen=True)
class LinearField(Field):
    """The linear field at fixed positions. Velocity and force share one scan, so ask for `both`."""

    oracle: "LinearOracle"
    x: Tensor  # (B, T, d)
    q: Tensor  # (B, H, T, c), scaled
    k: Tensor  # (B, H, T, c)
    visible: Visible
    cache: LayerCache | None

    def velocity(self, y: Tensor) -> Tensor:
        return self.both(y)[0]

    def force(self, y: Tensor) -> Tensor:
        return self.both(y)[1]

    def both(self, y: Tensor) -> tuple[Tensor, Tensor]:
        """velocity_i = S_i' A x_i / n_i,  force_i = V x_i - A S_i y_i / n_i  with  S_i = sum_{j<=i} k_j y_j'."""
        heads = split_heads(y, self.oracle.n_kernel).to(self.q.dtype)
        if self.cache is None:
            moved, pulled = ops.symplectic_scan(self.q, self.k, heads, causal=self.visible.causal)
        else:
            moved, pulled, self.cache.state = ops.symplectic_step(self.cache.state, self.q, self.k, heads)
        velocity = merge_heads(moved / self.visible.n)
        back = F.linear(merge_heads(pulled / self.visible.n), self.oracle.back())
        force = self.oracle.potential(self.x) - back
        return velocity, dropout(force, self.oracle.dropout, self.oracle.training)

    def first_order(self) -> Tensor:
        """Linear attention on the same kernel: 1/n_i sum_j V x_j (q_i' k_j)."""
        v = split_heads(self.oracle.potential(self.x), self.oracle.n_kernel)
        return merge_heads(ops.linear_attention(self.q, self.k, v, causal=self.visible.causal) / self.visible.n)


class LinearOracle(nn.Module):
    """Fast twin of `flows.LinearAttention`: one chunked scan, linear in the length.

    value "tied": the interaction pulls along scale W_Q' k, as in the equations; "free": along a learned matrix's k.
    """

    def __init__(self, cfg: ModelConfig) -> None:
        super().__init__()
        d = cfg.d_model
        self.n_kernel, self.scale = kernels(cfg)
        self.dropout = cfg.dropout
        self.qk = Projection(d, 2 * d)
        self.potential = Projection(d, d)
        self.pull = None if cfg.value == "tied" else Projection(d, d)

    def back(self) -> Tensor:
        """The matrix that carries the pull from key space to the tokens: scale W_Q', or its own."""
        if self.pull is not None:
            return self.pull.weight
        W_Q, _ = self.qk.weight.chunk(2)
        return self.scale * W_Q.mT

    def at(self, x: Tensor, visible: Visible, cache: LayerCache | None = None) -> LinearField:
        """The field at positions x (B, T, d)."""
        q, k = (split_heads(part, self.n_kernel) for part in self.qk(x).chunk(2, -1))
        return LinearField(self, x, self.scale * q, k, visible, cache)


ORACLES: dict[str, type[SoftmaxOracle] | type[LinearOracle]] = {"softmax": SoftmaxOracle, "linear": LinearOracle}


class ClassicalAttention(nn.Module):
    """Multi-head attention of GPT-2 without biases, and its linear counterpart 1/n_i sum_j (q_i.k_j) v_j."""

    def __init__(self, cfg: ModelConfig) -> None:
        super().__init__()
        self.n_head, self.scale, self.dropout = cfg.n_head, cfg.d_head**-0.5, cfg.dropout
        self.mix = _softmax_mix if cfg.attention == "softmax" else _linear_mix
        self.qkv = Projection(cfg.d_model, 3 * cfg.d_model)
        self.out = Projection(cfg.d_model, cfg.d_model, std=residual_std(cfg))

    def forward(self, x: Tensor, visible: Visible, cache: LayerCache | None = None) -> Tensor:
        mixed = self.mix(part(self, "qkv", cache)(x), self.n_head, self.scale, visible, cache)
        return dropout(part(self, "out", cache)(merge_heads(mixed)), self.dropout, self.training)


def _softmax_mix(qkv: Tensor, n_head: int, scale: float, visible: Visible, cache: LayerCache | None) -> Tensor:
    if cache is None:
        q, k, v = (split_heads(t, n_head) for t in qkv.chunk(3, -1))
        return F.scaled_dot_product_attention(q, k, v, is_causal=visible.causal, scale=scale)
    out, _ = ops.cached_attention_lse(*remembered(qkv, n_head, cache), scale=scale)
    return out


def _linear_mix(qkv: Tensor, n_head: int, scale: float, visible: Visible, cache: LayerCache | None) -> Tensor:
    q, k, v = (split_heads(t, n_head) for t in qkv.chunk(3, -1))
    if cache is None:
        return ops.linear_attention(scale * q, k, v, causal=visible.causal) / visible.n
    out, cache.state = ops.linear_attention_step(cache.state, scale * q, k, v)
    return out / visible.n
