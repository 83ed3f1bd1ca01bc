"""What happens to the tokens before a layer's step, whatever the dynamics: a second table is added, then transport.

    x_i <- x_i + w e_i        x_i <- x_i + c (x_{i-1} - x_i)

e_i is what a second table of tokens says of token i. The second line is an upwind step of d_t x + c d_s x = 0 along the
text, for positions, momenta or both; the first token of a text has nobody before it and stays. w and c in (0, 1) are
learned, a number for every layer and channel.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from sympformer.errors import InputError
from sympformer.nn.attention.base import View
from sympformer.nn.attention.memory import LastRow, Memory, Rows, fixed, rows_of
from sympformer.nn.config import StackConfig
from sympformer.nn.dynamics.base import State
from sympformer.nn.tables import ATTENTIONS

WEIGHT = 0.3  # start of w
SHARE = 0.1  # start of c
TRANSPORTED = {"none": "", "positions": "x", "momenta": "y", "both": "xy"}  # transport -> what of a state it moves


@dataclass
class StepMemory:
    """What a layer and its prelude keep: that of attention, and x and y of earlier tokens, as far as transport asks.

    Where attention can forget single tokens, rows of all are kept, as its own are; else the last token alone, so that
    a memory of a constant size stays one. A column of padding repeats the token before it.
    """

    attention: Memory
    x: Rows | LastRow  # (B, t, d)
    y: Rows | LastRow

    @classmethod
    def beside(cls, attention: Memory, room: int | None = None) -> "StepMemory":
        """Nothing yet, beside the empty memory of attention. room: columns from the start, where it may not grow."""
        x, y = (rows_of(room) if attention.croppable else LastRow() for _ in "xy")
        return cls(attention, x, y)

    @property
    def croppable(self) -> bool:
        return self.attention.croppable

    def fixed(self, room: int) -> "StepMemory":
        return StepMemory.beside(fixed(self.attention, room), room)

    def select(self, index: Tensor) -> None:
        for part in (self.attention, self.x, self.y):
            part.select(index)

    def copy(self) -> "StepMemory":
        return StepMemory(self.attention.copy(), self.x.copy(), self.y.copy())

    def crop(self, length: int) -> None:
        for part in (self.attention, self.x, self.y):
            part.crop(length)

    @property
    def nbytes(self) -> int:
        return sum(part.nbytes for part in (self.attention, self.x, self.y))


def new_memory(cfg: StackConfig) -> Memory:
    """What one layer of this config keeps of a text, at its start."""
    memory = ATTENTIONS[cfg.attention].memory()
    return memory if cfg.transport == "none" else StepMemory.beside(memory)


class Channels(nn.Module):
    """A number for every channel, started at `start`. Calling it gives them (d,)."""

    group = "gain"

    def __init__(self, d: int, start: float) -> None:
        super().__init__()
        self.start = start
        self.weight = nn.Parameter(torch.empty(d))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.constant_(self.weight, self.start)

    def forward(self) -> Tensor:
        return self.weight


class Share(Channels):
    """A share in (0, 1) for every channel, through a sigmoid."""

    def __init__(self, d: int, share: float) -> None:
        super().__init__(d, math.log(share / (1 - share)))

    def forward(self) -> Tensor:
        return self.weight.sigmoid()


class Prelude(nn.Module):
    """x <- x + w e        u_i <- u_i + c (u_{i-1} - u_i) for u = x, y or both."""

    def __init__(self, cfg: StackConfig, second: bool) -> None:
        super().__init__()
        moved, d = TRANSPORTED[cfg.transport], cfg.d_model
        self.second = Channels(d, WEIGHT) if second else None
        self.share_x = Share(d, SHARE) if "x" in moved else None
        self.share_y = Share(d, SHARE) if "y" in moved else None

    def forward(self, state: State, view: View) -> State:
        x, y, memory = state.x, state.y, view.memory
        if self.second is not None:
            assert view.second is not None
            x = torch.addcmul(x, self.second().to(x.dtype), view.second.to(x.dtype))
        if self.share_x is not None:
            x = transported(x, self.share_x(), view, None if memory is None else memory.x)
        if self.share_y is not None:
            y = transported(y, self.share_y(), view, None if memory is None else memory.y)
        return state._replace(x=x, y=y)


def transported(u: Tensor, share: Tensor, view: View, kept: Rows | LastRow | None) -> Tensor:
    """u_i + c (u_{i-1} - u_i). `kept` has the tokens before the present ones, and takes these in."""
    return torch.lerp(u, neighbours(u, view, kept).to(u.dtype), share.to(u.dtype))


def neighbours(u: Tensor, view: View, kept: Rows | LastRow | None) -> Tensor:
    """u_{i-1} for every token i, (B, T, d). The first token of a text is its own neighbour."""
    last = None if kept is None else kept.last
    first = u[:, :1] if last is None else last
    through = u if view.last is None else _gathered(torch.cat((first, u), 1), view.last)
    rows = through if kept is None else kept.append(through)
    if view.before is not None:
        return _gathered(rows, view.before)
    before = first if u.shape[1] == 1 else torch.cat((first, through[:, :-1]), 1)
    return before if view.last is None else torch.where(_alone(view).unsqueeze(-1), u, before)


def _gathered(rows: Tensor, columns: Tensor) -> Tensor:
    """The rows (B, S, d) at the columns (B, T)."""
    return rows.gather(1, columns.unsqueeze(-1).expand(-1, -1, rows.shape[-1]))


def _alone(view: View) -> Tensor:
    """(B, T): whether a column is the first token of its text, or padding in front of it."""
    return (view.n <= 1).flatten(1)


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
    return view._replace(before=torch.where(_alone(view), columns[-T:], before))
