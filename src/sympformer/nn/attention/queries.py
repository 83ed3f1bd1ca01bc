"""What happens to queries and keys, head by head, between their projection and the scores."""

import torch
from torch import Tensor, nn

from sympformer.errors import InputError
from sympformer.nn.config import StackConfig
from sympformer.nn.parts import split_heads
from sympformer.nn.positions import Rotation
from sympformer.nn.tables import NORMS, POSITIONS


class QueryKeys(nn.Module):
    """Per head: q = R_i N_q(q), k = R_i N_k(k), with the norm of qk_norm and the turn of rotary positions, if any.

    A kernel of averaged heads is no exception: its scores are the mean of those of the heads.
    """

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


def by_head(projected: Tensor, widths: tuple[int, ...], n_head: int) -> list[Tensor]:
    """(B, T, widths together) -> queries, then what is of their kind or grouped, each (B, H, T, c)."""
    c = widths[0] // n_head
    return [per_query(split_heads(t, t.shape[-1] // c), n_head) for t in projected.split_with_sizes(widths, -1)]


def per_query(t: Tensor, n_head: int) -> Tensor:
    """Grouped keys or values (B, G, T, c), each as often as there are query heads in its group: (B, H, T, c)."""
    return t if t.shape[1] == n_head else t.repeat_interleave(n_head // t.shape[1], 1)


def refuse_qk_norm(cfg: StackConfig, option: str) -> None:
    """For forces that are worked out from scores x_i' A x_j."""
    if cfg.qk_norm:
        raise InputError(f"qk_norm does not go with {option}: normalised scores are no x_i' A x_j, whose gradient the"
                         " force would be; leave one of them out")  # fmt: skip


def refuse_turns(cfg: StackConfig, option: str) -> None:
    """For kernels of one matrix A."""
    if POSITIONS[cfg.positions].turns:
        raise InputError(f"positions = {cfg.positions!r} does not go with {option}, which is one matrix A for all pairs"
                         " of tokens: turns make another of it at every distance; choose learned or none")  # fmt: skip
