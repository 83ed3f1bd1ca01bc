"""Softmax attention in a model, for every stepper: the fast twin of `flows.SoftmaxAttention`.

Flash attention that also returns the log-sum-exp. Positions come normalised; momenta do not.
"""

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sympformer import ops
from sympformer.errors import InputError
from sympformer.flows import Field
from sympformer.nn.attention.base import Attention, QueryKeys, by_head, check_kernel, kernels, per_query, refuse_turns
from sympformer.nn.attention.inverse import symmetric_inverse
from sympformer.nn.memory import Memory
from sympformer.nn.options import StackConfig
from sympformer.nn.parts import Matrix, Projection, merge_heads, residual_std, split_heads
from sympformer.nn.view import View

# log z is kept in [-10, 10]: z and 1/z then stay below 22,027, which products with a momentum can carry in float32
LOG_Z_BOUND = 10.0
# rho_j multiplies values inside the kernel of form "paper", where an infinity would poison a whole row
# (B = V A^-1 starts large: rho of 1e5 is ordinary there).
RHO_BOUND = 1e12
FORCE_BOUND = 1e17  # a norm squares what it is given: sums of such squares still fit into float32

Matrices = tuple[Tensor | None, Tensor | None]  # A where the value is tied to it, and B; None where it is the identity
Attend = Callable[[Tensor], tuple[Tensor, Tensor | None]]  # values -> (sum_j P_ij values_j, lse_i)


class SoftmaxField(Field):
    """The softmax field at fixed positions, in log form: z = exp(log_z), mean_i = sum_j P_ij v_j, by `form`:

    newton   velocity = B y        force = mean_i                                  (z = 1, rho = 0)
    own      velocity = B y / z    force = z_i (rho_i/2 + 1) mean_i                rho_i = <y_i, B y_i> / z_i^2
    paper    velocity = B y / z    force = the same + z_i/2 sum_j P_ij rho_j v_j
    """

    def __init__(self, part: "SoftmaxAttention", B: Tensor | None, attend: Attend, lse: Callable[[], Tensor],
                 v: Tensor, view: View) -> None:  # fmt: skip
        self.part, self.form, self.B, self.attend, self.v, self.view = part, part.form, B, attend, v, view
        self._z: Tensor | None = None
        self.asked = 0  # questions for the others' momenta so far
        self.mean, found = attend(v)  # (B, H, T, c)
        self._lse = lse if found is None else lambda: found

    def velocity(self, y: Tensor) -> Tensor:
        return self._velocity(y, self._mobile(y))

    def force(self, y: Tensor) -> Tensor:
        return self._force(y, None if self.form == "newton" else self._mobile(y))

    def both(self, y: Tensor) -> tuple[Tensor, Tensor]:
        By = self._mobile(y)
        return self._velocity(y, By), self._force(y, By)

    def first_order(self) -> Tensor:
        """Classical attention on the same kernel: B sum_j P_ij v_j."""
        mixed = self._mixed(self.mean)
        return self.part.dropped(mixed if self.B is None else F.linear(mixed, self.B))

    @property
    def log_z(self) -> Tensor:
        """Of the kernel over the keys seen, within bounds, (B, H, T, 1), float32 at least."""
        return (self._lse() - self.view.log_n).clamp(-LOG_Z_BOUND, LOG_Z_BOUND).unsqueeze(-1)

    @property
    def z(self) -> Tensor:
        """exp(log_z), once."""
        if self._z is None:
            self._z = self.log_z.exp()
        return self._z

    # velocity and force have the dtype of y, so that a model in bfloat16 stays in it

    def _mobile(self, y: Tensor) -> Tensor:
        if self.B is None:
            return y
        # V A^-1 may have entries that float16 cannot hold
        with torch.autocast(y.device.type, enabled=False) if self.part.mobility.large else nullcontext():
            return F.linear(y.to(self.B.dtype) if self.part.mobility.large else y, self.B)

    def _velocity(self, y: Tensor, By: Tensor) -> Tensor:
        if self.form == "newton":
            return By.to(y.dtype)
        return merge_heads(self._heads(By) / self.z).to(y.dtype)

    def _force(self, y: Tensor, By: Tensor | None) -> Tensor:
        if self.form == "newton" or By is None:
            return self.part.dropped(self._mixed(self.mean.to(y.dtype)).to(y.dtype))
        z = self.z
        kinetic = (self._heads(y) * self._heads(By)).sum(-1, keepdim=True).to(z.dtype)  # z^2 rho
        # z (rho/2 + 1) with rho = kinetic / z^2, without ever forming z^2
        force = torch.addcdiv(z, kinetic, z, value=0.5) * self.mean
        if self.form == "paper":
            force = (force + z * self._others(kinetic / z / z)).clamp(-FORCE_BOUND, FORCE_BOUND)
        return self.part.dropped(self._mixed(force.to(y.dtype)).to(y.dtype))

    def _others(self, rho: Tensor) -> Tensor:
        """1/2 sum_j P_ij rho_j v_j: a second pass over the same kernel, for what the others' momenta add."""
        rho = rho.clamp(-RHO_BOUND, RHO_BOUND)
        if self.view.memory is not None:
            self.asked += 1
            rho = self.view.memory.rows(f"rho {self.asked}").append(rho)
        # float16 could overflow on rho v: this pass runs in the dtype of rho there
        narrow = self.v.dtype if self.v.dtype != torch.float16 else rho.dtype
        return self.attend((rho / 2 * self.v).to(narrow))[0]

    def _heads(self, y: Tensor) -> Tensor:
        return split_heads(y, self.mean.shape[1])

    def _mixed(self, heads: Tensor) -> Tensor:
        """(B, H, T, c) -> (B, T, d)."""
        return merge_heads(heads) if self.part.out is None else self.part.out(merge_heads(heads))


class Mobility(nn.Module):
    """B of the softmax system: velocity = B y / z, by cfg.mobility.

    free: any matrix, started at the identity. spd: B = L L' + eps I. derived: B = Sym(V A^-1), in float32 at
    least, with the inverse of `nn.attention.inverse`. identity: B = I.
    """

    EPS = 1e-4

    def __init__(self, cfg: StackConfig) -> None:
        super().__init__()
        self.kind, self.large = cfg.mobility, cfg.mobility == "derived"
        self.factor = None if self.kind == "identity" else Matrix(cfg.d_model, cfg.d_model, identity=not self.large)

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


class SoftmaxAttention(Attention):
    """Positions -> `SoftmaxField`."""

    options: ClassVar[dict[str, Any]] = QueryKeys.options | {"mobility": "identity"}
    flow_options: ClassVar[dict[str, Any]] = {"form": "newton"}

    def __init__(self, cfg: StackConfig) -> None:
        super().__init__(cfg)
        d = cfg.d_model
        self.n_kernel, self.n_group, self.scale = kernels(cfg)
        self.tied, self.form = cfg.value == "tied", cfg.form or "newton"
        self.widths = d, self.n_group * (d // self.n_kernel), self.n_group * (d // self.n_kernel)
        self.qkv = Matrix(d, 2 * cfg.width_key) if self.tied else Projection(d, sum(self.widths))
        self.query_keys, self.mobility = QueryKeys(cfg), Mobility(cfg)
        self.out = Projection(d, d, std=residual_std(cfg)) if cfg.heads == "projected" else None

    @classmethod
    def check(cls, cfg: StackConfig) -> None:
        check_kernel(cfg)
        if cfg.value == "spd":
            raise InputError("value = 'spd' belongs to linear attention; choose free or tied")
        if cfg.value == "tied" and cfg.heads != "averaged":
            raise InputError("value = 'tied' needs heads = 'averaged': a head's A x is d_model wide, its slice is not")
        if cfg.value == "tied":
            refuse_turns(cfg)
        if cfg.mobility == "derived" and cfg.value != "tied":
            raise InputError("mobility = 'derived' is Sym(V A^-1) and needs value = 'tied', which makes A explicit")
        if cfg.width_key != cfg.d_model and cfg.value != "tied":
            raise InputError("d_key needs value = 'tied' with softmax attention, whose kernel takes values as wide as"
                             " keys")  # fmt: skip

    def matrices(self) -> Matrices:
        """A = scale Sym(W_K' W_Q), so that x_i' A x_j is the symmetric part of the averaged scores; and B."""
        if not self.tied:
            return None, self.mobility(None)
        W = self.qkv()
        with torch.autocast(W.device.type, enabled=False):
            W_Q, W_K = W.to(torch.promote_types(W.dtype, torch.float32)).chunk(2)  # B may divide by A
            A = self.scale * W_K.mT @ W_Q
            A = (A + A.mT) / 2
        return A.to(W.dtype), self.mobility(A)

    def forward(self, x: Tensor, view: View, matrices: Matrices) -> SoftmaxField:
        A, B = matrices
        if A is None:
            qkv, scale = self.query_keys(self.qkv(x), view.rotation), self.scale
        else:
            Ax, scale = F.linear(x, A), 1.0
            qkv = torch.cat((Ax, x.to(Ax.dtype), Ax), -1)
        if view.memory is None:
            q, k, v = by_head(qkv, self.widths, self.n_kernel)
        else:
            q, k, v = remembered(view.memory, qkv, self.n_kernel, self.n_group)

        def lse() -> Tensor:
            return ops.attention_rows(q, k, scale=scale, causal=view.causal, bias=view.bias)[1]

        if view.kernels is None:
            attend = attending(q, k, scale, view, self.form != "newton")
        else:
            attend = showing(q, k, scale, view, self.cfg.n_head)
        return SoftmaxField(self, B, attend, lse, v, view)


def remembered(memory: Memory, qkv: Tensor, n_head: int, n_group: int) -> tuple[Tensor, Tensor, Tensor]:
    """(B, T, (H + 2G) d/H) -> queries of the present tokens, keys and values of these and all before, by head.

    Keys and values are kept once a group, and come (B, H, ., d/H) as the queries do.
    """
    B, T, width = qkv.shape
    n = n_head + 2 * n_group
    # (B, H + 2G, T, d/H), for one token without a transposition
    parts = qkv.view(B, n, 1, width // n) if T == 1 else qkv.view(B, T, n, -1).transpose(1, 2)
    q, pairs = parts.split_with_sizes((n_head, 2 * n_group), 1)
    k, v = memory.rows("pairs").append(pairs).chunk(2, 1)
    return q, per_query(k, n_head), per_query(v, n_head)


def attending(q: Tensor, k: Tensor, scale: float, view: View, wants_lse: bool) -> Attend:
    """The kernel of some queries and keys, ready for values."""

    def attend(values: Tensor) -> tuple[Tensor, Tensor | None]:
        a = q if q.dtype == values.dtype else q.to(values.dtype)
        if view.memory is not None:
            return ops.cached_attention_lse(a, k, values, scale=scale, bias=view.bias)
        if wants_lse:
            return ops.attention_lse(a, k, values, scale=scale, causal=view.causal, bias=view.bias)
        return ops.attention(a, k, values, scale=scale, causal=view.causal, bias=view.bias), None

    return attend


def showing(q: Tensor, k: Tensor, scale: float, view: View, n_head: int) -> Attend:
    """The same by its matrix, which somebody wants to see."""
    rows, lse = ops.attention_rows(q, k, scale=scale, causal=view.causal, bias=view.bias)
    rows = view.show(rows, n_head)

    def attend(values: Tensor) -> tuple[Tensor, Tensor]:
        ops.note_pass()
        return (rows @ values.to(rows.dtype)).to(values.dtype), lse

    return attend
