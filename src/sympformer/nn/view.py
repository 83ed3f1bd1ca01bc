"""What the present tokens of a stack see, and the masks it comes from, checked."""

from typing import NamedTuple

import torch
from torch import Tensor

from sympformer import ops
from sympformer.errors import InputError
from sympformer.nn.memory import Memory
from sympformer.nn.positions import Rotation


class View(NamedTuple):
    """What the present tokens see: n_i tokens each, themselves included; `memory` holds those that came before.

    Where all rows of a batch are alike nothing more is needed. Padding is what nobody sees: its keys are zero for the
    sums of linear attention (`shown`) and hidden by `bias` from softmax attention. Results at padding mean nothing.
    """

    causal: bool
    n: Tensor  # (T, 1), or (B, 1, T, 1) where rows differ
    log_n: Tensor  # (T,), or (B, 1, T)
    memory: Memory | None = None  # the layer's own, None where a text begins and ends here
    rotation: Rotation | None = None  # how queries and keys are turned, None where they are not
    real: Tensor | None = None  # (B, T), False at padding; None: every column is a token
    bias: Tensor | None = None  # (B, 1, 1 or T, S), what hides keys: of all S columns so far, the present ones last
    seen: Tensor | None = None  # (B, 1, T, S), where tokens see some of the others only: those of their text, say
    last: Tensor | None = None  # (B, T), where the last token up to each column stands (`with_neighbours`); None: there
    before: Tensor | None = None  # (B, T), where the token before each stands, by `seen`; None: one column before
    second: Tensor | None = None  # (B, T, d), what a second table says of the tokens
    kernels: list[Tensor] | None = None  # where attention leaves its matrix (B, H, T, S), if somebody wants to see it

    @classmethod
    def of(
        cls,
        causal: bool,
        start: int,
        T: int,
        device: torch.device,
        dtype: torch.dtype,
        real: Tensor | None = None,
        seen: Tensor | None = None,
    ) -> "View":
        """The view of T tokens behind `start` others. real (B, S): which of all columns hold a token. seen
        (B, 1, T, S): which columns each of the last T sees."""
        wide = torch.promote_types(dtype, torch.float32)  # in bfloat16 log n would be off by up to 0.016
        S, bias = start + T, None
        if seen is not None:
            seen = seen if real is None else seen & real[:, None, None]
            seen = seen & torch.ones(T, S, dtype=torch.bool, device=device).tril(start) if causal else seen
            n, bias = seen.sum(-1), ops.hiding(seen, wide)
        elif real is not None:
            n = (real.cumsum(1)[:, -T:] if causal else real.sum(1, keepdim=True).expand(-1, T)).unsqueeze(1)
            bias = ops.hiding(real[:, None, None], wide)
        else:
            n = torch.arange(start + 1, S + 1, device=device) if causal else torch.full((T,), T, device=device)
        n = n if bias is None else n.clamp_min(1)  # padding may see nothing
        present = None if real is None else real[:, -T:]
        return cls(causal, n.to(dtype).unsqueeze(-1), n.to(wide).log(), real=present, bias=bias, seen=seen)

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


def with_neighbours(view: View, forgetful: bool) -> View:
    """The view that says where neighbours stand, for rows that are not one text without padding.

    `last` (B, T), where there is padding: the last token up to each column, 1 + its place among the present columns, 0
    for the last one before those. `before` (B, T), where a mask says what each token sees: the last column before it
    that it sees, of all so far, or its own. forgetful: whether no column before the present ones but one is remembered.
    """
    T, device = view.n.shape[-2], view.n.device
    if view.real is not None:
        view = view._replace(last=(view.real * torch.arange(1, T + 1, device=device)).cummax(1).values)
    if view.seen is None:
        return view
    if forgetful:
        raise InputError("a memory of the last token and of sums cannot hide some of them later; give the whole text"
                         " without a cache, or a mask of its padding")  # fmt: skip
    S = view.seen.shape[-1]
    columns = torch.arange(S, device=device)
    before = (view.seen[:, 0].tril(S - T - 1) * columns).amax(-1)
    return view._replace(before=torch.where(alone(view), columns[-T:], before))


def neighbours(u: Tensor, view: View, name: str) -> Tensor:
    """u_{i-1} for every token i, (B, T, d), by way of what the memory keeps under a name. The first token of a text is
    its own neighbour; a column of padding repeats the token before it."""
    kept = None if view.memory is None else view.memory.beside(name)
    first = u[:, :1] if kept is None or kept.last is None else kept.last
    through = u if view.last is None else _gathered(torch.cat((first, u), 1), view.last)
    rows = through if kept is None else kept.append(through)
    if view.before is not None:
        return _gathered(rows, view.before)
    before = first if u.shape[1] == 1 else torch.cat((first, through[:, :-1]), 1)
    return before if view.last is None else torch.where(alone(view).unsqueeze(-1), u, before)


def _gathered(rows: Tensor, columns: Tensor) -> Tensor:
    """The rows (B, S, d) at the columns (B, T)."""
    return rows.gather(1, columns.unsqueeze(-1).expand(-1, -1, rows.shape[-1]))


def alone(view: View) -> Tensor:
    """(B, T): whether a column is the first token of its text, or padding in front of it."""
    return (view.n <= 1).flatten(1)


# --- masks as users give them


def same_text(position_ids: Tensor) -> Tensor:
    """The mask (B, 1, T, T) of texts packed into one row: places start again at 0 where a new text begins."""
    text = (position_ids == 0).cumsum(-1)
    return (text.unsqueeze(-1) == text.unsqueeze(-2)).unsqueeze(1)


def real_columns(key_padding_mask: Tensor | None, shape: tuple[int, int]) -> Tensor | None:
    """(B, T), True where there is a token, of a mask that is True at padding; None when there is no padding."""
    mask = key_padding_mask
    if mask is None:
        return None
    if mask.dtype != torch.bool:
        raise InputError(f"key_padding_mask must be boolean, True at padding, got {mask.dtype};"
                         " of a mask with ones at tokens it is mask == 0")  # fmt: skip
    if mask.shape != shape:
        raise InputError(f"key_padding_mask must have shape (batch, tokens) = {shape}, got {tuple(mask.shape)}")
    if not torch.compiler.is_compiling() and not bool(mask.any()):
        return None  # the fast way, and the same to the last bit as without a mask
    return ~mask


def places_of(real: Tensor) -> Tensor:
    """The place of every column among the tokens of its row, (B, T): padding takes none."""
    return (real.cumsum(1) - 1).clamp_min(0)


def check_rows(real: Tensor | None) -> None:
    """Refuse a row without any token."""
    if real is None or torch.compiler.is_compiling():
        return
    empty = ~real.any(1)
    if bool(empty.any()):
        raise InputError(f"row {int(empty.int().argmax())} of the batch holds nothing but padding; leave it out")


def check_seen(mask: Tensor, shape: tuple[int, int, int]) -> Tensor:
    """A mask (B or 1, 1, T, S) of what tokens see, True where they do, for all rows."""
    B, T, S = shape
    if mask.dtype != torch.bool or mask.ndim != 4 or mask.shape[1:] != (1, T, S) or mask.shape[0] not in (1, B):
        raise InputError(f"a mask of what tokens see must be boolean, True where they do, of shape {(B, 1, T, S)};"
                         f" got {mask.dtype} {tuple(mask.shape)}")  # fmt: skip
    return mask.expand(B, -1, -1, -1)
