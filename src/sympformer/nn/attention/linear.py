"""Linear attention in a model, for every stepper: the fast twin of `flows.LinearAttention`.

One chunked scan, linear in the length; a text that grows needs one d x d state a layer, however long it is.
"""

from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from sympformer import ops
from sympformer.errors import InputError
from sympformer.flows import Field
from sympformer.nn.attention.base import Attention, QueryKeys, by_head, check_kernel, kernels, refuse_turns
from sympformer.nn.options import StackConfig
from sympformer.nn.parts import STD, Matrix, Projection, merge_heads, residual_std, split_heads
from sympformer.nn.tables import STEPPERS
from sympformer.nn.view import View

# queries' and keys' matrix where the force needs it, the way back to the tokens, V where it is symmetric
Matrices = tuple[Tensor | None, Tensor | None, Tensor | None]


class LinearField(Field):
    """The linear field at fixed positions. Velocity and force share one scan, so ask for `both`."""

    def __init__(self, part: "LinearAttention", potential: Tensor, back: Tensor | None, q: Tensor, k: Tensor,
                 view: View) -> None:  # fmt: skip
        self.part, self.view = part, view
        self.potential, self.back = potential, back  # V x (B, T, d); (d, m), from key space to the tokens
        self.q, self.k = q, view.shown(k.to(q.dtype))  # (B, H, T, c), q scaled

    def velocity(self, y: Tensor) -> Tensor:
        return self.both(y)[0]

    def force(self, y: Tensor) -> Tensor:
        return self.both(y)[1]

    def both(self, y: Tensor) -> tuple[Tensor, Tensor]:
        """velocity_i = S_i' A x_i / n_i,  force_i = V x_i - A S_i y_i / n_i  with  S_i = sum_{j<=i} k_j y_j'.

        Turned keys R_j k_j are turned back by R_i, so that the pull too depends on distances alone.
        """
        heads, memory, view = split_heads(y, self.q.shape[1]).to(self.q.dtype), self.view.memory, self.view
        rows = self._rows()
        if memory is None:
            moved, pulled = ops.symplectic_scan(self.q, self.k, heads, causal=view.causal, seen=view.seen)
        else:
            moved, pulled, memory.state = ops.symplectic_step(memory.state, self.q, self.k, heads)
        velocity = merge_heads(moved / view.n if rows is None else (rows @ heads.to(rows.dtype)).to(moved.dtype))
        pull = merge_heads(pulled / view.n)
        pull = pull if view.rotation is None else view.rotation.back().turn(pull)
        assert self.back is not None
        return velocity, self.part.dropped(self.potential - F.linear(pull, self.back))

    def first_order(self) -> Tensor:
        """Linear attention on the same kernel: 1/n_i sum_j V x_j (q_i' k_j)."""
        v, memory, view = split_heads(self.potential, self.q.shape[1]), self.view.memory, self.view
        rows = self._rows()
        if memory is None:
            sums = ops.linear_attention(self.q, self.k, v, causal=view.causal, seen=view.seen)
        else:
            sums, memory.state = ops.linear_attention_step(memory.state, self.q, self.k, v)
        mixed = merge_heads(sums / view.n if rows is None else (rows @ v.to(rows.dtype)).to(v.dtype))
        return self.part.dropped(mixed if self.part.out is None else self.part.out(mixed))

    def _rows(self) -> Tensor | None:
        """<q_i, k_j> / n_i, if somebody wants to see it; to be used where the present tokens are all there are."""
        view, memory = self.view, self.view.memory
        if view.kernels is None:
            if memory is not None:
                memory.kept.pop("keys", None)  # kept as long as somebody wants to see the kernel
            return None
        if memory is not None and memory.state is not None and "keys" not in memory.kept:
            raise InputError("linear attention keeps no keys of earlier tokens, so its kernel can be shown only where"
                             " it was asked for from the first call on; ask there, or leave the cache out")  # fmt: skip
        keys = self.k if memory is None else memory.rows("keys").append(self.k)
        rows = view.show(ops.linear_rows(self.q, keys, causal=view.causal, seen=view.seen) / view.n, self.part.n_head)
        return rows if rows.shape[-1] == self.q.shape[2] else None


class LinearAttention(Attention):
    """Positions -> `LinearField`, with scores x_j' A x_i and A = scale W_K' W_Q.

    value "tied": the interaction pulls along A' x_j, the gradient of the score; the paper's A x_j where A is
    symmetric, as it assumes. "free": along a learned matrix's k_j. "spd": A = scale W_Q' W_Q + eps I and V are
    symmetric, A is positive definite (W_K is not there).
    """

    EPS = 1e-6
    croppable = False
    one_momentum = True
    options: ClassVar[dict[str, Any]] = QueryKeys.options

    def __init__(self, cfg: StackConfig) -> None:
        super().__init__(cfg)
        d, m, std = cfg.d_model, cfg.width_key, 0.0 if cfg.zero_start else STD
        self.n_kernel, n_group, self.scale = kernels(cfg)
        self.n_head, self.value, projected = cfg.n_head, cfg.value, cfg.heads == "projected"
        width = n_group * m // self.n_kernel
        self.widths = (m, width, *([width] if projected else []))
        tied = cfg.value != "free"  # then W_Q and W_K are part of the force too
        self.qk = (Matrix if tied else Projection)(d, m if cfg.value == "spd" else sum(self.widths))
        self.query_keys = QueryKeys(cfg)
        self.potential = None if projected else (Matrix if cfg.value == "spd" else Projection)(d, d, std)
        self.pull = Matrix(m, d, std) if not tied and STEPPERS[cfg.stepper].inertial else None
        self.out = Projection(d, d, std=residual_std(cfg)) if projected else None

    @classmethod
    def check(cls, cfg: StackConfig) -> None:
        check_kernel(cfg)
        projected, inertial = cfg.heads == "projected", STEPPERS[cfg.stepper].inertial
        if projected and inertial:
            raise InputError("heads = 'projected' of linear attention belongs to steppers gradient and nesterov: its"
                             " force goes through such a matrix with heads = 'multi' already")  # fmt: skip
        if projected and (cfg.value != "free" or cfg.width_key != cfg.d_model):
            raise InputError("heads = 'projected' needs value = 'free' and keys as wide as the tokens: values come from"
                             " the matrix of the keys")  # fmt: skip
        if cfg.value == "spd" and cfg.heads != "averaged":
            raise InputError("value = 'spd' is one matrix A, along which the force points: it needs heads = 'averaged'")
        if cfg.value == "spd":
            refuse_turns(cfg)

    def matrices(self) -> Matrices:
        if self.value == "free":
            return None, None if self.pull is None else self.pull(), None
        W = self.qk()
        if self.value == "tied":
            return W, self.scale * W.split(self.widths)[0].mT, None
        assert self.potential is not None
        V = self.potential()
        A = self.scale * W.mT @ W + self.EPS * torch.eye(len(V), dtype=W.dtype, device=W.device)
        return A, A, (V + V.mT) / 2

    def forward(self, x: Tensor, view: View, matrices: Matrices) -> LinearField:
        if view.seen is not None and view.memory is not None:
            raise InputError("linear attention keeps a sum of all tokens and cannot hide some of them later;"
                             " give the whole text without a cache, or a mask of its padding")  # fmt: skip
        W, back, V = matrices
        if V is not None:
            assert W is not None
            return LinearField(self, F.linear(x, V), back, split_heads(F.linear(x, W), 1), split_heads(x, 1), view)
        rows = self.query_keys(self.qk(x) if W is None else F.linear(x, W), view.rotation)
        q, k, *v = by_head(rows, self.widths, self.n_kernel)
        potential = merge_heads(v[0]) if self.potential is None else self.potential(x)
        return LinearField(self, potential, back, self.scale * q, k, view)
