"""What happens to the tokens before a layer's step, whatever the dynamics: a second table is added, then transport.

    x_i <- x_i + w e_i        x_i <- x_i + c (x_{i-1} - x_i)

e_i is what a second table of tokens says of token i. The second line is an upwind step of d_t x + c d_s x = 0 along the
text, for positions, momenta or both; the first token of a text has nobody before it and stays. w and c in (0, 1) are
learned, a number for every layer and channel.
"""

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from sympformer.errors import InputError
from sympformer.nn.attention.base import View
from sympformer.nn.attention.memory import Memory, fixed
from sympformer.nn.config import StackConfig
from sympformer.nn.dynamics.base import State
from sympformer.nn.tables import ATTENTIONS

WEIGHT = 0.3  # start of w
SHARE = 0.1  # start of c
TRANSPORTED = {"none": "", "positions": "x", "momenta": "y", "both": "xy"}  # transport -> what of a state it moves


@dataclass
class StepMemory:
    """What a layer and its prelude keep: that of attention, and x and y of the last token, as far as asked for."""

    croppable: ClassVar[bool] = False  # the token before the last is gone
    attention: Memory
    x: Tensor | None = None  # (B, 1, d)
    y: Tensor | None = None

    def fixed(self, room: int) -> "StepMemory":
        return StepMemory(fixed(self.attention, room))

    def select(self, index: Tensor) -> None:
        self.attention.select(index)
        self.x, self.y = (None if t is None else t[index] for t in (self.x, self.y))

    def copy(self) -> "StepMemory":
        return StepMemory(self.attention.copy(), self.x, self.y)

    def crop(self, length: int) -> None:
        raise InputError("transport remembers the last token only and cannot forget it; take the text in anew")

    @property
    def nbytes(self) -> int:
        return self.attention.nbytes + sum(0 if t is None else t.nbytes for t in (self.x, self.y))


def new_memory(cfg: StackConfig) -> Memory:
    """What one layer of this config keeps of a text, at its start."""
    memory = ATTENTIONS[cfg.attention].memory()
    return memory if cfg.transport == "none" else StepMemory(memory)


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
            x, last = transported(x, self.share_x(), view, None if memory is None else memory.x)
            if memory is not None:
                memory.x = last
        if self.share_y is not None:
            y, last = transported(y, self.share_y(), view, None if memory is None else memory.y)
            if memory is not None:
                memory.y = last
        return state._replace(x=x, y=y)


def transported(u: Tensor, share: Tensor, view: View, kept: Tensor | None) -> tuple[Tensor, Tensor]:
    """(u_i + c (u_{i-1} - u_i), what is to be kept of u for the token that comes next)."""
    before, last = neighbours(u, view, kept)
    return torch.lerp(u, before.to(u.dtype), share.to(u.dtype)), last


def neighbours(u: Tensor, view: View, kept: Tensor | None) -> tuple[Tensor, Tensor]:
    """(u_{i-1} for every token i, (B, T, d); u of the last token of every row, (B, 1, d)).

    kept: that of the last token before the present ones, None where there is none. The first token of a text is its own
    neighbour.
    """
    first = u[:, :1] if kept is None else kept
    if view.before is None:
        return (first, u) if u.shape[1] == 1 else (torch.cat((first, u[:, :-1]), 1), u[:, -1:])
    index = view.before.unsqueeze(-1).expand(-1, -1, u.shape[-1])
    found = torch.cat((first, u), 1).gather(1, index)  # (B, T + 1, d)
    return found[:, :-1], found[:, -1:]


def with_neighbours(view: View, cached: bool) -> View:
    """The view that says where each token's neighbour stands, for rows that are not one text without padding.

    `before` (B, T + 1): 1 + the column of the token before, 0 for the remembered one. The last entry is the neighbour
    of a token that is still to come.
    """
    if view.real is None and view.seen is None:
        return view
    if view.seen is not None and cached:
        raise InputError("transport remembers the last token only: with a cache give a mask of the padding, not one of"
                         " what each token sees")  # fmt: skip
    T = view.n.shape[-2]
    columns = torch.arange(1, T + 1, device=view.n.device)
    if view.seen is None:
        assert view.real is not None
        last = (view.real * columns).cummax(1).values  # the last token up to each column
        before = torch.cat((torch.zeros_like(last[:, :1]), last), 1)
    else:
        earlier = view.seen[:, 0, :, -T:].tril(-1)
        tokens = view.seen[:, 0, :, -T:].diagonal(0, 1, 2)
        before = torch.cat(((earlier * columns).amax(-1), (tokens * columns).amax(-1, keepdim=True)), 1)
    alone = (view.n <= 1).flatten(1)  # (B, T): the first of its text, or padding in front of it
    itself = torch.where(alone, columns, before[:, :-1])
    return view._replace(before=torch.cat((itself, before[:, -1:]), 1))
