"""Softmax attention in a model: the oracle of Hamiltonian layers, the classical form of the others, their memory.

The oracle is the fast twin of `flows.SoftmaxAttention`: flash attention that also returns the log-sum-exp. Positions
come normalised; momenta do not.
"""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sympformer import ops
from sympformer.errors import InputError
from sympformer.flows import Field
from sympformer.nn.attention.base import AttentionKind, ClassicalAttention, View, kernels
from sympformer.nn.attention.inverse import symmetric_inverse
from sympformer.nn.attention.pairs import PairMemory
from sympformer.nn.attention.queries import QueryKeys, by_head, per_query, refuse_qk_norm, refuse_turns
from sympformer.nn.config import StackConfig
from sympformer.nn.parts import Matrix, Projection, dropout, merge_heads, residual_std, split_heads

# log z is kept in [-10, 10]: z and 1/z then stay below 22,027, which products with a momentum can carry in float32
LOG_Z_BOUND = 10.0
# rho_j multiplies values inside the kernel of form "paper", where an infinity would poison a whole row
# (B = V A^-1 starts large: rho of 1e5 is ordinary there).
RHO_BOUND = 1e12
FORCE_BOUND = 1e17  # a norm squares what it is given: sums of such squares still fit into float32


Attend = Callable[[Tensor], tuple[Tensor, Tensor]]  # values -> (sum_j P_ij values_j, lse_i)


class Mobility(nn.Module):
    """B of the softmax system: velocity = B y / z, by cfg.mobility.

    free: any matrix, started at the identity. spd: B = L L' + eps I. derived: B = Sym(V A^-1), in float32 at
    least, with the inverse of `nn.attention.inverse`. identity: B = I.
    """

    EPS = 1e-4

    def __init__(self, cfg: StackConfig) -> None:
        super().__init__()
        self.kind = cfg.mobility
        fixed = cfg.mobility == "identity"
        self.factor = None if fixed else Matrix(cfg.d_model, cfg.d_model, identity=cfg.mobility != "derived")

    def forward(self, A: Tensor | None) -> Tensor | None:
        """The matrix B, None for the identity; `A` is needed by "derived" only."""
        if self.factor is None:
            return None
        W = self.factor()
        if self.kind == "free":
            return W
        if self.kind == "spd":
            return W @ W.mT + self.EPS * torch.eye(len(W), dtype=W.dtype, device=W.device)
        assert A is not None
        with torch.autocast(W.device.type, enabled=False):
            B = W.to(A.dtype) @ symmetric_inverse(A)
            return ((B + B.mT) / 2).to(W.dtype)


@dataclass(frozen=True)
class SoftmaxField(Field):
    """The softmax field at fixed positions, in log form: z = exp(log_z), mean_i = sum_j P_ij v_j.

    Without z all of it stands at z = 1: velocity = B y, force (own) = (rho_i/2 + 1) mean_i. Without rho as well it is
    that of |y_i|^2 / 2 - log z_i where B = I and values are tied, since mean_i is then the gradient of log z_i.
    """

    form: str
    B: Tensor | None  # (d, d); None: the identity
    attend: Attend
    v: Tensor  # (B, H, T, c)
    mean: Tensor  # (B, H, T, c)
    log_mean: Tensor  # (B, H, T, 1): of the kernel over the keys seen, within bounds
    memory: PairMemory | None
    dropout: float  # of the force; 0 where nothing is dropped
    large: bool = False  # whether B may have entries that float16 cannot hold
    output: Callable[[Tensor], Tensor] | None = None  # what mixes the forces of the heads
    with_z: bool = True
    with_rho: bool = True  # whether the force has its kinetic part

    @property
    def log_z(self) -> Tensor | None:
        """None: z = 1."""
        return self.log_mean if self.with_z else None

    def velocity(self, y: Tensor) -> Tensor:
        """velocity_i = B y_i / z_i."""
        return self._velocity(y, self._mobile(y))

    def force(self, y: Tensor) -> Tensor:
        """own: z_i (rho_i/2 + 1) mean_i.  paper: the same + z_i/2 sum_j P_ij rho_j v_j."""
        return self._force(y, self._mobile(y))

    def both(self, y: Tensor) -> tuple[Tensor, Tensor]:
        By = self._mobile(y)
        return self._velocity(y, By), self._force(y, By)

    def first_order(self) -> Tensor:
        """Classical attention on the same kernel: B sum_j P_ij v_j."""
        mixed = self._mixed(self.mean)
        return mixed if self.B is None else F.linear(mixed, self.B)

    def _mixed(self, heads: Tensor) -> Tensor:
        """(B, H, T, c) -> (B, T, d)."""
        merged = merge_heads(heads)
        return merged if self.output is None else self.output(merged)

    def _mobile(self, y: Tensor) -> Tensor:
        if self.B is None:
            return split_heads(y, self.mean.shape[1])
        with torch.autocast(y.device.type, enabled=False) if self.large else nullcontext():
            By = F.linear(y.to(self.B.dtype) if self.large else y, self.B)
        return split_heads(By, self.mean.shape[1])  # (B, H, T, c)

    # log z is float32 at least; velocity and force have the dtype of y, so that a model in bfloat16 stays in it

    def _velocity(self, y: Tensor, By: Tensor) -> Tensor:
        return merge_heads(By if self.log_z is None else By * torch.exp(-self.log_z)).to(y.dtype)

    def _force(self, y: Tensor, By: Tensor) -> Tensor:
        kinetic = self._kinetic(y, By) if self.with_rho else None
        force = self._own_force(kinetic)
        if self.form == "paper" and kinetic is not None:
            others = self._others(kinetic)
            others = others if self.log_z is None else torch.exp(self.log_z) * others
            force = (force + others).clamp(-FORCE_BOUND, FORCE_BOUND)
        return dropout(self._mixed(force.to(y.dtype)).to(y.dtype), self.dropout, training=True)

    def _own_force(self, kinetic: Tensor | None) -> Tensor:
        """z_i (rho_i/2 + 1) mean_i. kinetic: z_i^2 rho_i, None without rho."""
        if self.log_z is None:
            return self.mean if kinetic is None else (kinetic / 2 + 1) * self.mean
        if kinetic is None:
            return torch.exp(self.log_z) * self.mean
        # z (rho/2 + 1) with rho = kinetic / z^2, without ever forming z^2
        return (torch.exp(-self.log_z) * kinetic / 2 + torch.exp(self.log_z)) * self.mean

    def _kinetic(self, y: Tensor, By: Tensor) -> Tensor:
        """<y, B y>, (B, H, T, 1), in float32 at least."""
        work = torch.promote_types(y.dtype, torch.float32)
        return (split_heads(y, self.mean.shape[1]) * By).sum(-1, keepdim=True).to(work)

    def _others(self, kinetic: Tensor) -> Tensor:
        """1/2 sum_j P_ij rho_j v_j: a second pass over the same kernel, for what the others' momenta add."""
        rho = kinetic if self.log_z is None else kinetic * torch.exp(-2 * self.log_z)
        rho = rho.clamp(-RHO_BOUND, RHO_BOUND)
        if self.memory is not None:
            rho = self.memory.remember_beside(rho)
        # float16 could overflow on rho v: this pass runs in the dtype of rho there
        narrow = self.v.dtype if self.v.dtype != torch.float16 else rho.dtype
        pulled, _ = self.attend((rho / 2 * self.v).to(narrow))
        return pulled


class SoftmaxOracle(nn.Module):
    """Positions -> `SoftmaxField`, one kernel pass."""

    def __init__(self, cfg: StackConfig) -> None:
        super().__init__()
        d = cfg.d_model
        self.n_kernel, self.scale = kernels(cfg)
        self.n_group = cfg.n_key_head if self.n_kernel > 1 else 1
        self.n_head = cfg.n_head
        self.tied, self.form, self.dropout = cfg.value == "tied", cfg.form, cfg.dropout
        self.with_z, self.with_rho = cfg.with_z, cfg.with_rho
        self.widths = d, self.n_group * (d // self.n_kernel), self.n_group * (d // self.n_kernel)
        self.qkv = Matrix(d, 2 * cfg.width_key) if self.tied else Projection(d, sum(self.widths))
        self.query_keys = QueryKeys(cfg)
        self.mobility = Mobility(cfg)
        self.out = Projection(d, d, std=residual_std(cfg)) if cfg.heads == "projected" else None

    def forward(self, x: Tensor, view: View) -> SoftmaxField:
        """The field at positions x (B, T, d)."""
        A, B = self.matrices()
        scale = self.scale if A is None else 1.0
        qkv = self.query_keys(self.qkv(x), view.rotation) if A is None else _tied_projections(x, A)
        if view.memory is None:
            q, k, v = by_head(qkv, self.widths, self.n_kernel)
        else:
            q, k, v = view.memory.remember(qkv, self.n_kernel, self.n_group)

        attend = attending(q, k, scale, view) if view.kernels is None else showing(q, k, scale, view, self.n_head)
        mean, lse = attend(v)
        log_mean = (lse - view.log_n).clamp(-LOG_Z_BOUND, LOG_Z_BOUND).unsqueeze(-1)
        drop = self.dropout if self.training else 0.0
        large = self.mobility.kind == "derived"
        return SoftmaxField(
            self.form, B, attend, v, mean, log_mean, view.memory, drop, large, self.out, self.with_z, self.with_rho
        )

    def matrices(self) -> tuple[Tensor | None, Tensor | None]:
        """A where the value is tied to it, and B; None where it is the identity."""
        A = self.tied_matrix() if self.tied else None
        return A if A is None else A.to(self.qkv.weight.dtype), self.mobility(A)

    def tied_matrix(self) -> Tensor:
        """A = scale Sym(W_K' W_Q), so that x_i' A x_j is the symmetric part of the averaged scores.

        In float32 at least: B may divide by it.
        """
        weight = self.qkv()
        with torch.autocast(weight.device.type, enabled=False):
            W_Q, W_K = weight.to(torch.promote_types(weight.dtype, torch.float32)).chunk(2)
            A = self.scale * W_K.mT @ W_Q
            return (A + A.mT) / 2


def attending(q: Tensor, k: Tensor, scale: float, view: View) -> Attend:
    """The kernel of some queries and keys, ready for values."""

    def attend(values: Tensor) -> tuple[Tensor, Tensor]:
        a = q if q.dtype == values.dtype else q.to(values.dtype)
        if view.memory is not None and view.causal:
            return ops.cached_attention_lse(a, k, values, scale=scale, bias=view.bias)
        return ops.attention_lse(a, k, values, scale=scale, causal=view.causal, bias=view.bias)

    return attend


def showing(q: Tensor, k: Tensor, scale: float, view: View, n_head: int) -> Attend:
    """The same by its matrix, which somebody wants to see."""
    rows, lse = ops.attention_rows(q, k, scale=scale, causal=view.causal, bias=view.bias)
    rows = view.show(rows, n_head)

    def attend(values: Tensor) -> tuple[Tensor, Tensor]:
        ops.note_pass()
        return (rows @ values.to(rows.dtype)).to(values.dtype), lse

    return attend


def _tied_projections(x: Tensor, A: Tensor) -> Tensor:
    """Queries A x, keys x, values A x."""
    Ax = F.linear(x, A)
    return torch.cat((Ax, x.to(Ax.dtype), Ax), -1)


class SoftmaxAttention(ClassicalAttention):
    """Multi-head attention of GPT-2: sum_j P_ij v_j in every head."""

    def mixed(self, qkv: Tensor, view: View) -> Tensor:
        q, k, v = self.heads_of(qkv, view)
        return self.mixing(q, k, view)(v)

    def heads_of(self, qkv: Tensor, view: View) -> Sequence[Tensor]:
        """Queries of the present tokens, keys and values of these and all before, each (B, H, ., d/H)."""
        if view.memory is None:
            return by_head(qkv, self.widths, self.n_head)
        return view.memory.remember(qkv, self.n_head, self.n_key_head)

    def mixing(self, q: Tensor, k: Tensor, view: View) -> Callable[[Tensor], Tensor]:
        """values -> sum_j P_ij values_j. Values may be wider than keys: one pass for several sums over one kernel."""
        if view.kernels is not None:
            attend = showing(q, k, self.scale, view, self.n_head)
            return lambda values: attend(values)[0]

        def mix(values: Tensor) -> Tensor:
            more = values.shape[-1] - k.shape[-1]  # zeros there change no score
            a, b = (F.pad(q, (0, more)), F.pad(k, (0, more))) if more else (q, k)
            if view.memory is None or not view.causal:
                return ops.attention(a, b, values, scale=self.scale, causal=view.causal, bias=view.bias)
            return ops.cached_attention_lse(a, b, values, scale=self.scale, bias=view.bias)[0]

        return mix


class CurvedAttention(SoftmaxAttention):
    """Attention F, and beside it the curvature term of a motion u of the tokens (docs/theory.md, section 6).

        C_i = a_i u_i - 1/2 (|u_i|^2 F_i + sum_h O_h sum_j P^h_ij |u_j|^2 w^h_j)
        a_i = mean_h sum_j P^h_ij scale (<dq_i, k_j> + <q_i, dk_j>)

    with q, k, w the queries, keys and values of head h, O_h its columns of the output matrix, and dq, dk what the
    matrices of queries and keys make of u. All sums over j are attention outputs: there is no T x T matrix.
    """

    def forward(  # type: ignore[override]
        self, x: Tensor, view: View, motion: Tensor | Callable[[Tensor], Tensor]
    ) -> tuple[Tensor, Tensor, Tensor]:
        """F, u and C, each (B, T, d). motion: u, one pass for all then; or what makes u of F, which takes a second."""
        q, k, v = self.heads_of(self.query_keys(self.qkv(x), view.rotation), view)
        mix, c = self.mixing(q, k, view), q.shape[-1]
        dq, *moved = self.moved(motion, v, view) if isinstance(motion, Tensor) else (None,)
        mean, k_mean, *sums = mix(torch.cat((v, k, *moved), -1)).split(c, -1)
        update = dropout(self.out(merge_heads(mean)), self.dropout, self.training)
        u = motion if isinstance(motion, Tensor) else motion(update)
        if dq is None:
            dq, *moved = self.moved(u, v, view)
            sums = mix(torch.cat(moved, -1)).split(c, -1)
        dk_mean, pulled = sums
        a = self.scale * (dq * k_mean + q * dk_mean).sum(-1).mean(1).unsqueeze(-1)  # (B, T, 1)
        others = dropout(self.out(merge_heads(pulled)), self.dropout, self.training)
        return update, u, a * u - (u.square().sum(-1, keepdim=True) * update + others) / 2

    def moved(self, u: Tensor, v: Tensor, view: View) -> tuple[Tensor, Tensor, Tensor]:
        """dq of the present tokens, dk and |u|^2 w of these and all before, each (B, H, ., c)."""
        # the values of u are worked out for nothing: a slice of the matrix would go past adapters and hooks
        dq, dk, _ = self.query_keys(self.qkv(u), view.rotation).split_with_sizes(self.widths, -1)
        dk = split_heads(dk, self.n_key_head)
        square = u.square().sum(-1).to(dk.dtype)[:, None, :, None].expand(*dk.shape[:3], 1)
        rows = torch.cat((dk, square), -1)
        if view.memory is not None:
            rows = view.memory.remember_beside(rows)
        dk, square = per_query(rows, self.n_head).split_with_sizes((dk.shape[-1], 1), -1)
        return split_heads(dq, self.n_head), dk, square * v


def check(cfg: StackConfig) -> None:
    """Refuse combinations that make no sense together."""
    if cfg.heads != "averaged" and cfg.value == "tied":
        raise InputError("value = 'tied' needs heads = 'averaged': a head's A x is d_model wide, its slice is not")
    if cfg.value == "tied":
        refuse_qk_norm(cfg, "value = 'tied'")
        refuse_turns(cfg, "value = 'tied'")
    if cfg.mobility == "derived" and cfg.value != "tied":
        raise InputError("mobility = 'derived' is Sym(V A^-1) and needs value = 'tied', which makes A explicit")
    if cfg.form == "paper" and not cfg.with_rho:
        raise InputError(
            "form = 'paper' adds the others' rho, left out by with_rho = False: choose form = 'own' or preset = 'full'"
        )
    if cfg.width_key != cfg.d_model and cfg.value != "tied":
        raise InputError("d_key needs value = 'tied' with softmax attention, whose kernel takes values as wide as keys")


SOFTMAX = AttentionKind(
    SoftmaxOracle,
    SoftmaxAttention,
    PairMemory,
    options=frozenset({"heads", "d_key", "form", "value", "mobility", "with_z", "with_rho"}),
    shared=frozenset({"positions", "qk_norm", "n_kv_head"}),
    starts={
        # what cost seconds and gave nothing (docs/results): Newton's law with friction is left
        ("tuned", "sympformer"): {"with_z": False, "with_rho": False, "mobility": "identity", "look_ahead": False},
        ("modern", "sympformer"): {"heads": "projected"},
        # the letter: Q, K, V learned, A from Q and K, the force along A x, B = V A^-1
        ("paper", "sympformer"): {"h_x": 0.1, "h_y": 0.1, "form": "paper", "value": "tied", "mobility": "derived"},
        # the paper assumes B symmetric positive definite: here it is, and V = B A follows
        ("paper-spd", "sympformer"): {"mobility": "spd"},
    },
    check=check,
    curved=CurvedAttention,
)
