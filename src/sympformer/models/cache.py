"""What a model remembers of earlier tokens, layer by layer.

The history of a multistep integrator runs over layers, not tokens, and is not here.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from sympformer.nn import Memory


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
        like = real if self.real is None else self.real
        assert like is not None
        past = like.new_ones(self.batch_size, self.length) if self.real is None else self.real
        return torch.cat((past, like.new_ones(self.batch_size, T) if real is None else real), 1)

    def select(self, index: Tensor) -> None:
        """Keep and reorder batch rows (for beams, or when texts end)."""
        for layer in self.layers:
            layer.select(index)
        self.real = None if self.real is None else self.real[index]
        self.batch_size = len(index)

    def part(self, index: Tensor) -> "Cache":
        """A cache of its own for the rows `index`; this one stays as it is."""
        part = self.copy()
        part.select(index)
        return part

    def copy(self) -> "Cache":
        """The same memory under a new name; what one of them takes in the other does not see."""
        return Cache(self.batch_size, [layer.copy() for layer in self.layers], self.length, self.real)

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
