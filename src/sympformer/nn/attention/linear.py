"""Linear attention in a model: the oracle of Hamiltonian layers, the classical form of the others, their memory.

The oracle is the fast twin of `flows.LinearAttention`: one chunked scan, linear in the length; a text that grows needs
one d x d state a layer, however long it is.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sympformer import ops
from sympformer.errors import InputError
from sympformer.flows import Field
from sympformer.nn.attention.base import AttentionKind, ClassicalAttention, View, kernels
from sympformer.nn.attention.memory import Rows, rows_of
from sympformer.nn.attention.queries import QueryKeys, by_head, refuse_qk_norm, refuse_turns
from sympformer.nn.config import StackConfig
from sympformer.nn.parts import STD, Matrix, Projection, dropout, merge_heads, split_heads


@dataclass
class StateMemory:
    """The sum over all tokens so far that linear attention reads: its size never grows."""

    croppable: ClassVar[bool] = False
    state: Tensor | None = None  # (B, H, d, d)
    keys: Rows | None = None  # of all tokens, as long as somebody wants to see the kernel
    room: int | None = None  # columns for them, where they may not grow

    def fixed(self, room: int) -> "StateMemory":
        return StateMemory(room=room)

    def see(self, k: Tensor) -> Tensor:
        """The keys of the present tokens and of all before, if the kernel was looked at from the start."""
        if self.state is None:
            self.keys = rows_of(self.room)
        if self.keys is None:
            raise InputError("linear attention keeps no keys of earlier tokens, so its kernel can be shown only where"
                             " it was asked for from the first call on; ask there, or leave the cache out")  # fmt: skip
        return self.keys.append(k)

    def select(self, index: Tensor) -> None:
        if self.state is not None:
            self.state = self.state[index]
        if self.keys is not None:
            self.keys.select(index)

    def copy(self) -> "StateMemory":
        return StateMemory(self.state, None if self.keys is None else self.keys.copy(), self.room)

    def crop(self, length: int) -> None:
        if self.state is not None:
            raise InputError("the state of linear attention cannot forget single tokens; start anew from the text")

    @property
    def nbytes(self) -> int:
        return 0 if self.state is None else self.state.nbytes


@dataclass(frozen=True)
class LinearField(Field):
    """The linear field at fixed positions. Velocity and force share one scan, so ask for `both`."""

    potential: Tensor  # V x, (B, T, d)
    back: Tensor  # (d, d): carries the pull from key space to the tokens
    q: Tensor  # (B, H, T, c), scaled
    k: Tensor  # (B, H, T, c)
    view: View
    dropout: float  # of the force; 0 where nothing is dropped
    n_head: int = 1  # that share the kernel

    def velocity(self, y: Tensor) -> Tensor:
        return self.both(y)[0]

    def force(self, y: Tensor) -> Tensor:
        return self.both(y)[1]

    def both(self, y: Tensor) -> tuple[Tensor, Tensor]:
        """velocity_i = S_i' A x_i / n_i,  force_i = V x_i - A S_i y_i / n_i  with  S_i = sum_{j<=i} k_j y_j'.

        Turned keys R_j k_j are turned back by R_i, so that the pull too depends on distances alone.
        """
        heads, memory = split_heads(y, self.q.shape[1]).to(self.q.dtype), self.view.memory
        rows = shown_rows(self.q, self.k, self.view, self.n_head)
        if memory is None:
            moved, pulled = ops.symplectic_scan(self.q, self.k, heads, causal=self.view.causal, seen=self.view.seen)
        else:
            moved, pulled, memory.state = ops.symplectic_step(memory.state, self.q, self.k, heads)
        velocity = merge_heads(moved / self.view.n if rows is None else (rows @ heads.to(rows.dtype)).to(moved.dtype))
        pull = merge_heads(pulled / self.view.n)
        if self.view.rotation is not None:
            pull = self.view.rotation.back().turn(pull)
        force = self.potential - F.linear(pull, self.back)
        return velocity, dropout(force, self.dropout, training=True)

    def first_order(self) -> Tensor:
        """Linear attention on the same kernel: 1/n_i sum_j V x_j (q_i' k_j)."""
        v = split_heads(self.potential, self.q.shape[1])
        sums = ops.linear_attention(self.q, self.k, v, causal=self.view.causal, seen=self.view.seen)
        return merge_heads(sums / self.view.n)


class LinearOracle(nn.Module):
    """Positions -> `LinearField`, with scores x_j' A x_i and A = scale W_K' W_Q.

    value "tied": the interaction pulls along A' x_j, the gradient of the score; the paper's A x_j where A is
    symmetric, as it assumes. "free": along a learned matrix's k_j.
    kernel "spd": A = scale W_Q' W_Q + eps I and V are symmetric, A is positive definite (W_K is not there).
    """

    EPS = 1e-6

    def __init__(self, cfg: StackConfig) -> None:
        super().__init__()
        d, m = cfg.d_model, cfg.width_key
        self.n_kernel, self.scale = kernels(cfg)
        self.n_head, self.dropout, self.spd = cfg.n_head, cfg.dropout, cfg.kernel == "spd"
        self.widths = m, (cfg.n_key_head if self.n_kernel > 1 else cfg.n_head) * cfg.d_query
        tied = cfg.value == "tied"  # then W_Q and W_K are part of the force too
        self.qk = (Matrix if tied else Projection)(d, m if self.spd else sum(self.widths))
        self.query_keys = QueryKeys(cfg)
        std = 0.0 if cfg.zero_start else STD
        self.potential = (Matrix if self.spd else Projection)(d, d, std)
        self.pull = None if tied else Matrix(m, d, std)

    def forward(self, x: Tensor, view: View) -> LinearField:
        """The field at positions x (B, T, d)."""
        check_view(view)
        drop = self.dropout if self.training else 0.0
        if self.spd:
            A, V = self.symmetric_matrices()
            q, k = (split_heads(t, 1) for t in (F.linear(x, A), x))
            return LinearField(F.linear(x, V), A, q, view.shown(k.to(q.dtype)), view, drop, self.n_head)
        qk = self.qk(x) if self.pull is not None else F.linear(x, self.qk())
        q, k = by_head(self.query_keys(qk, view.rotation), self.widths, self.n_kernel)
        return LinearField(self.potential(x), self.back(), self.scale * q, view.shown(k), view, drop, self.n_head)

    def back(self) -> Tensor:
        """The matrix that carries the pull from key space to the tokens: scale W_Q', or its own."""
        if self.pull is not None:
            return self.pull()
        W_Q, _ = self.qk().split_with_sizes(self.widths)
        return self.scale * W_Q.mT

    def symmetric_matrices(self) -> tuple[Tensor, Tensor]:
        """A, positive definite, and V, of kernel "spd"."""
        W, V = self.qk(), self.potential()
        A = self.scale * W.mT @ W + self.EPS * torch.eye(len(V), dtype=W.dtype, device=W.device)
        return A, (V + V.mT) / 2


class LinearAttention(ClassicalAttention):
    """The linear counterpart of GPT-2's attention: 1/n_i sum_j (q_i.k_j) v_j in every head."""

    def mixed(self, qkv: Tensor, view: View) -> Tensor:
        check_view(view)
        q, k, v = by_head(qkv, self.widths, self.n_head)
        k = view.shown(k)
        rows = shown_rows(self.scale * q, k, view, self.n_head)
        if view.memory is None:
            sums = ops.linear_attention(self.scale * q, k, v, causal=view.causal, seen=view.seen)
        else:
            sums, view.memory.state = ops.linear_attention_step(view.memory.state, self.scale * q, k, v)
        return sums / view.n if rows is None else (rows @ v.to(rows.dtype)).to(v.dtype)


def shown_rows(q: Tensor, k: Tensor, view: View, n_head: int) -> Tensor | None:
    """<q_i, k_j> / n_i, if somebody wants to see it; to be used where the present tokens are all there are."""
    memory = view.memory
    if view.kernels is None:
        if memory is not None:
            memory.keys = None
        return None
    keys = k if memory is None else memory.see(k)
    seen = view.seen
    if memory is not None and not view.causal:
        assert view.bias is not None
        seen = view.bias == 0
    rows = view.show(ops.linear_rows(q, keys, causal=view.causal, seen=seen) / view.n, n_head)
    return rows if rows.shape[-1] == q.shape[2] else None


def check_view(view: View) -> None:
    """Refuse to hide tokens that a state has summed up already."""
    if view.seen is not None and view.memory is not None:
        raise InputError("linear attention keeps a sum of all tokens and cannot hide some of them later;"
                         " give the whole text without a cache, or a mask of its padding")  # fmt: skip


def check(cfg: StackConfig) -> None:
    """Refuse combinations that make no sense together."""
    if cfg.kernel == "spd" and (cfg.value != "tied" or cfg.heads != "averaged"):
        raise InputError("kernel = 'spd' is one matrix A, along which the force points: it needs value = 'tied' and"
                         " heads = 'averaged'")  # fmt: skip
    if cfg.heads == "projected":
        raise InputError("heads = 'projected' belongs to softmax attention: the force of linear attention goes through"
                         " such a matrix with heads = 'multi' already")  # fmt: skip
    if cfg.value == "tied":
        refuse_qk_norm(cfg, "value = 'tied'")
    if cfg.kernel == "spd":
        refuse_turns(cfg, "kernel = 'spd'")


LINEAR = AttentionKind(
    LinearOracle,
    LinearAttention,
    StateMemory,
    options=frozenset({"heads", "d_key", "value", "kernel", "zero_start"}),
    shared=frozenset({"positions", "qk_norm", "n_kv_head"}),
    starts={
        ("modern", "sympformer"): {"heads": "multi"},
        # Q, K, V learned; the steps of the paper's first linear table, 0.25 for first-order schemes
        ("paper", "sympformer"): {"h_x": 0.25, "h_y": 0.25, "value": "tied"},
        ("paper", "ab2"): {"h_x": 0.01, "h_y": 0.01},
        ("paper", "etd_ab2"): {"h_x": 0.01, "h_y": 0.01},
        # the paper assumes A symmetric positive definite and V symmetric here
        ("paper-spd", "sympformer"): {"kernel": "spd"},
    },
    check=check,
    one_momentum=True,
)
