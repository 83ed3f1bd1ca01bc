"""What a kind of attention is, and what its tokens see."""

import math
from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from sympformer import ops
from sympformer.nn.attention.memory import Memory
from sympformer.nn.attention.queries import QueryKeys
from sympformer.nn.config import StackConfig
from sympformer.nn.parts import Projection, dropout, merge_heads, residual_std
from sympformer.nn.positions import Rotation


class View(NamedTuple):
    """What the present tokens see: n_i tokens each, themselves included; `memory` holds those that came before.

    Where all rows of a batch are alike nothing more is needed. Padding is what nobody sees: its keys are zero for the
    sums of linear attention (`shown`) and hidden by `bias` from softmax attention. Results at padding mean nothing.
    """

    causal: bool  # with a memory: the present columns are its last; else (`FixedRows`) `bias` says what is seen
    n: Tensor  # (T, 1), or (B, 1, T, 1) where rows differ
    log_n: Tensor  # (T,), or (B, 1, T)
    memory: Any = None  # the layer's own Memory, None where a text begins and ends here
    rotation: Rotation | None = None  # how queries and keys are turned, None where they are not
    real: Tensor | None = None  # (B, T), False at padding; None: every column is a token
    bias: Tensor | None = None  # (B, 1, 1 or T, S), what hides keys: of all S columns so far, the present ones last
    seen: Tensor | None = None  # (B, 1, T, S), where tokens see some of the others only: those of their text, say
    last: Tensor | None = None  # (B, T), where the last token up to each column stands (`nn.prelude`); None: there
    before: Tensor | None = None  # (B, T), where the token before each stands, by `seen`; None: one column before
    second: Tensor | None = None  # (B, T, d), what a second table says of the tokens
    kernels: list[Tensor] | None = None  # where attention leaves its matrix (B, H, T, S), if somebody wants to see it

    @classmethod
    def make(cls, causal: bool, start: int, T: int, device: torch.device, dtype: torch.dtype) -> "View":
        """The view of T tokens that stand behind `start` others."""
        n = torch.arange(start + 1, start + T + 1, device=device) if causal else torch.full((T,), T, device=device)
        return cls._of(causal, n, dtype)

    @classmethod
    def padded(cls, causal: bool, real: Tensor, T: int, dtype: torch.dtype) -> "View":
        """The view of the last T columns, where `real` (B, S) says which of all columns hold a token."""
        n = real.cumsum(1)[:, -T:] if causal else real.sum(1, keepdim=True).expand(-1, T)
        bias = ops.hiding(real[:, None, None], torch.promote_types(dtype, torch.float32))
        n = n.unsqueeze(1).clamp_min(1)  # padding may see nothing
        return cls._of(causal, n, dtype)._replace(real=real[:, -T:], bias=bias)

    @classmethod
    def masked(cls, causal: bool, seen: Tensor, dtype: torch.dtype) -> "View":
        """The view of T tokens by a mask (B, 1, T, S): True where token i, of the last T, sees column j."""
        T, S = seen.shape[-2:]
        if causal:
            seen = seen & torch.ones(T, S, dtype=torch.bool, device=seen.device).tril(S - T)
        bias = ops.hiding(seen, torch.promote_types(dtype, torch.float32))
        return cls._of(causal, seen.sum(-1).clamp_min(1), dtype)._replace(bias=bias, seen=seen)

    @classmethod
    def _of(cls, causal: bool, n: Tensor, dtype: torch.dtype) -> "View":
        """The view of tokens that see n others each."""
        # in bfloat16 log n would be off by up to 0.016, and z by as much
        log_n = n.to(torch.promote_types(dtype, torch.float32)).log()
        return cls(causal, n.to(dtype).unsqueeze(-1), log_n)

    def show(self, rows: Tensor, n_head: int) -> Tensor:
        """Leave the rows of a kernel (B, 1 or H, T, S) for those who want to see them, under every head that shares
        them; what comes back is to be used, so that gradients reach what was left."""
        assert self.kernels is not None
        self.kernels.append(rows.expand(-1, n_head, -1, -1))
        return self.kernels[-1][:, : rows.shape[1]]

    def shown(self, k: Tensor) -> Tensor:
        """Keys (B, H, T, c), zero at padding, so that nothing of it is in any sum."""
        return k if self.real is None else k.masked_fill(~self.real[:, None, :, None], 0)

    def tokens(self, x: Tensor) -> Tensor:
        """Something of every column (B, T, d), zero at padding."""
        return x if self.real is None else x.masked_fill(~self.real.unsqueeze(-1), 0)


def same_text(position_ids: Tensor) -> Tensor:
    """The mask (B, 1, T, T) of texts packed into one row: places start again at 0 where a new text begins."""
    text = (position_ids == 0).cumsum(-1)
    return (text.unsqueeze(-1) == text.unsqueeze(-2)).unsqueeze(1)


def no_check(cfg: StackConfig) -> None:
    """Every combination of options is fine."""


@dataclass(frozen=True)
class AttentionKind:
    """A row of the table of attention kinds.

    oracle(cfg) is a module (x, view) -> flows.Field: one kernel pass, velocity and force at any momentum. It makes the
    kind available to Hamiltonian layers. classical(cfg) is a module (x, view) -> update, for the other layers.
    memory() is what one layer keeps. options are those of the config that the oracle uses; shared are those that both
    forms use, "positions" among them where queries and keys can be turned. starts: what a preset gives to models of
    this kind, by (preset, architecture) and, on top, by (preset, integrator). curved(cfg) is classical attention with
    its curvature term beside it, (x, view, motion) -> (update, u, C), where a kind has one.
    """

    oracle: Callable[[StackConfig], nn.Module]
    classical: Callable[[StackConfig], nn.Module]
    memory: Callable[[], Memory]
    options: frozenset[str] = frozenset()
    shared: frozenset[str] = frozenset()
    starts: Mapping[tuple[str, str], Mapping[str, Any]] = field(default_factory=dict)
    check: Callable[[StackConfig], None] = no_check
    curved: Callable[[StackConfig], nn.Module] | None = None
    one_momentum: bool = False  # its kernel mixes x and y: another momentum needs another pass


def kernels(cfg: StackConfig) -> tuple[int, float]:
    """How many kernels an accelerated layer has, and the scale of their scores.

    The mean of H score matrices of width m/H, each scaled by 1/sqrt(m/H), is one kernel of width m.
    """
    if cfg.heads == "averaged":
        return 1, 1 / math.sqrt(cfg.n_head * cfg.width_key)
    return cfg.n_head, 1 / math.sqrt(cfg.width_key // cfg.n_head)


class ClassicalAttention(nn.Module):
    """Abstract base: attention of GPT-2 without biases, whatever a kind makes of queries, keys and values."""

    def __init__(self, cfg: StackConfig) -> None:
        super().__init__()
        self.n_head, self.n_key_head = cfg.n_head, cfg.n_key_head
        self.scale, self.dropout = cfg.d_head**-0.5, cfg.dropout
        self.widths = cfg.d_model, self.n_key_head * cfg.d_head, self.n_key_head * cfg.d_head
        self.qkv = Projection(cfg.d_model, sum(self.widths))
        self.query_keys = QueryKeys(cfg)
        self.out = Projection(cfg.d_model, cfg.d_model, std=residual_std(cfg))

    def forward(self, x: Tensor, view: View) -> Tensor:
        """Every head mixes values, then the output matrix, (B, T, d)."""
        qkv = self.query_keys(self.qkv(x), view.rotation)
        return dropout(self.out(merge_heads(self.mixed(qkv, view))), self.dropout, self.training)

    @abstractmethod
    def mixed(self, qkv: Tensor, view: View) -> Tensor:
        """Queries, keys and values (B, T, widths together) -> (B, H, T, d/H)."""
