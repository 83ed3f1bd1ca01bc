"""What a model remembers of earlier tokens, layer by layer: each kind of attention has a memory of its own.

The history of a multistep integrator runs over layers, not tokens, and is not here.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from sympformer.errors import InputError
from sympformer.nn import Memory, View, fixed


@dataclass
class Cache:
    """The memory of a model for `batch_size` texts, `length` columns of tokens, or of padding, seen so far."""

    batch_size: int
    layers: list[Memory]
    length: int = 0
    real: Tensor | None = None  # (B, length), False at padding; None: every column so far is a token of every row

    def columns(self, T: int, real: Tensor | None) -> Tensor | None:
        """The same with T more columns, of which `real` (B, T) says what they are."""
        if self.real is None and real is None:
            return None
        present = None if real is None else real.new_ones(self.batch_size, self.length)
        past = present if self.real is None else self.real
        assert past is not None
        new = past.new_ones(self.batch_size, T) if real is None else real
        return torch.cat((past, new), 1)

    def select(self, index: Tensor) -> None:
        """Keep and reorder batch rows (for beams, or when texts end)."""
        for layer in self.layers:
            layer.select(index)
        self.real = None if self.real is None else self.real[index]
        self.batch_size = len(index)

    def part(self, index: Tensor) -> "Cache":
        """A cache of its own for the rows `index`; this one stays as it is."""
        part = Cache(self.batch_size, [layer.copy() for layer in self.layers], self.length, self.real)
        part.select(index)
        return part

    def crop(self, length: int) -> None:
        """Go back to the first `length` tokens (when guessed tokens are refused). Not every attention can."""
        for layer in self.layers:
            layer.crop(length)
        self.length = min(self.length, length)
        self.real = None if self.real is None else self.real[:, :length]

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return sum(layer.nbytes for layer in self.layers)


class FixedCache(Cache):
    """The same in buffers of `room` columns, so that nothing that a compiled program looks at changes as texts grow."""

    def __init__(self, batch_size: int, layers: list[Memory], room: int, device: torch.device) -> None:
        self.batch_size, self.room = batch_size, room
        self.layers = [fixed(layer, room) for layer in layers]
        self.taken = torch.zeros(1, dtype=torch.long, device=device)  # columns so far
        self.real: Tensor = torch.ones(batch_size, room, dtype=torch.bool, device=device)  # of columns to come too

    @property
    def length(self) -> int:  # type: ignore[override]
        return int(self.taken)

    def look(self, T: int, real: Tensor | None, dtype: torch.dtype) -> tuple[Tensor, View]:
        """The places (B, T) of the next T columns, of which `real` (B, T) says what they are, and what they see."""
        if not torch.compiler.is_compiling() and self.length + T > self.room:
            raise InputError(f"{self.length + T} columns do not fit into a cache with room for {self.room}")
        device = self.taken.device
        present = self.taken + torch.arange(T, device=device)
        if real is None:
            real = torch.ones(self.batch_size, T, dtype=torch.bool, device=device)
        self.real.index_copy_(1, present, real)
        ordered = torch.arange(self.room, device=device) <= present.unsqueeze(-1)
        seen = ordered & self.real.unsqueeze(1)  # (B, T, room)
        places = (seen.sum(-1) - 1).clamp_min(0)
        return places, View.masked(False, seen.unsqueeze(1), dtype)._replace(seen=None, real=real)

    def crop(self, length: int) -> None:
        for layer in self.layers:
            layer.crop(length)
        self.taken.clamp_max_(length)

    def part(self, index: Tensor) -> Cache:
        raise InputError("a cache of a fixed size is for one batch as a whole; use one that grows")
