"""What a kind of attention is: a module from positions to a field, for every stepper; and queries and keys by head."""

import math
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from sympformer.errors import InputError
from sympformer.flows import Field
from sympformer.nn.memory import Memory
from sympformer.nn.options import StackConfig
from sympformer.nn.parts import dropout, split_heads
from sympformer.nn.positions import Rotation
from sympformer.nn.tables import BASES, NORMS, POSITIONS
from sympformer.nn.view import View


class Attention(nn.Module):
    """Abstract base of the kinds: forward(x, view, matrices) evaluates the kernel at normalised positions x (B, T, d)
    and gives a `flows.Field`. Its `first_order()` is what a stepper without the flow takes."""

    options: ClassVar[dict[str, Any]] = {}  # the options of a config that it uses, and what they are unless given
    flow_options: ClassVar[dict[str, Any]] = {}  # those that only its flow has: velocity and force
    croppable: ClassVar[bool] = True  # whether what is remembered can forget single tokens
    one_momentum: ClassVar[bool] = False  # its kernel mixes x and y: another momentum needs another pass

    def __init__(self, cfg: StackConfig) -> None:
        super().__init__()
        self.cfg = cfg

    @classmethod
    def check(cls, cfg: StackConfig) -> None:
        """Refuse combinations of options that make no sense together."""

    @classmethod
    def memory(cls) -> Memory:
        """What a layer keeps of a text, at its start."""
        return Memory(cls.croppable)

    def matrices(self) -> Any:
        """What depends on weights alone: worked out once a pass, or once a text by a decoder."""
        return None

    def forward(self, x: Tensor, view: View, matrices: Any) -> Field:
        raise NotImplementedError

    def dropped(self, force: Tensor) -> Tensor:
        """A force under dropout."""
        return dropout(force, self.cfg.dropout, self.training)


BASES["attention"] = Attention


class QueryKeys(nn.Module):
    """Per head: q = R_i N_q(q), k = R_i N_k(k), with the norm of qk_norm and the turn of rotary positions, if any.

    A kernel of averaged heads is no exception: its scores are the mean of those of the heads.
    """

    # of attention on queries and keys, whatever its field
    options: ClassVar = {"heads": "averaged", "value": "free", "qk_norm": False, "n_kv_head": 0, "d_key": 0}

    def __init__(self, cfg: StackConfig) -> None:
        super().__init__()
        c = cfg.d_query
        self.width, self.widths = c, (cfg.n_head * c, cfg.n_key_head * c)
        self.norm_q, self.norm_k = (NORMS[cfg.norm](c, 1.0) if cfg.qk_norm else None for _ in range(2))

    def forward(self, projected: Tensor, rotation: Rotation | None) -> Tensor:
        """(B, T, queries and keys and whatever follows) -> the same, the first two made ready."""
        if self.norm_q is None and rotation is None:
            return projected
        n = sum(self.widths)
        qk, rest = projected.split_with_sizes((n, projected.shape[-1] - n), -1)
        if self.norm_q is not None and self.norm_k is not None:
            q, k = (t.unflatten(-1, (-1, self.width)) for t in qk.split_with_sizes(self.widths, -1))
            qk = torch.cat((self.norm_q(q), self.norm_k(k)), -2).flatten(-2)
        if rotation is not None:
            qk = rotation.turn(qk)
        return torch.cat((qk.to(rest.dtype), rest), -1)


def kernels(cfg: StackConfig) -> tuple[int, int, float]:
    """How many kernels a layer has, how many groups of query heads share keys and values, the scale of the scores.

    The mean of H score matrices of width m/H, each scaled by 1/sqrt(m/H), is one kernel of width m.
    """
    if cfg.heads == "averaged":
        return 1, 1, 1 / math.sqrt(cfg.n_head * cfg.width_key)
    return cfg.n_head, cfg.n_key_head, 1 / math.sqrt(cfg.d_query)


def by_head(projected: Tensor, widths: tuple[int, ...], n_head: int) -> list[Tensor]:
    """(B, T, widths together) -> queries, then what is of their kind or grouped, each (B, H, T, c)."""
    c = widths[0] // n_head
    return [per_query(split_heads(t, t.shape[-1] // c), n_head) for t in projected.split_with_sizes(widths, -1)]


def per_query(t: Tensor, n_head: int) -> Tensor:
    """Grouped keys or values (B, G, T, c), each as often as there are query heads in its group: (B, H, T, c)."""
    return t if t.shape[1] == n_head else t.repeat_interleave(n_head // t.shape[1], 1)


def check_kernel(cfg: StackConfig) -> None:
    """What both kinds refuse: forces that are worked out from scores x_i' A x_j want them as they are."""
    if cfg.n_kv_head and cfg.heads == "averaged":
        raise InputError(f"n_kv_head = {cfg.n_kv_head} has no effect with heads = 'averaged'; leave it out")
    if cfg.value != "free" and cfg.qk_norm:
        raise InputError(f"qk_norm does not go with value = {cfg.value!r}: normalised scores are no x_i' A x_j, whose"
                         " gradient the force would be; leave one of them out")  # fmt: skip


def refuse_turns(cfg: StackConfig) -> None:
    """For kernels of one matrix A."""
    if POSITIONS[cfg.positions].turns:
        raise InputError(f"positions = {cfg.positions!r} does not go with value = {cfg.value!r}, which is one matrix A"
                         " for all pairs of tokens: turns make another of it at every distance; choose learned or"
                         " none")  # fmt: skip
