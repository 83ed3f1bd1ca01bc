"""What a model remembers of earlier tokens, layer by layer: each kind of attention has a memory of its own.

The history of a multistep integrator runs over layers, not tokens, and is not here.
"""

from dataclasses import dataclass

from torch import Tensor

from sympformer.nn import Memory


@dataclass
class Cache:
    """The memory of a model for `batch_size` texts, `length` tokens of each seen so far."""

    batch_size: int
    layers: list[Memory]
    length: int = 0

    def select(self, index: Tensor) -> None:
        """Keep and reorder batch rows (for beams, or when texts end)."""
        for layer in self.layers:
            layer.select(index)
        self.batch_size = len(index)

    def part(self, index: Tensor) -> "Cache":
        """A cache of its own for the rows `index`; this one stays as it is."""
        part = Cache(self.batch_size, [layer.copy() for layer in self.layers], self.length)
        part.select(index)
        return part

    def crop(self, length: int) -> None:
        """Go back to the first `length` tokens (when guessed tokens are refused). Not every attention can."""
        for layer in self.layers:
            layer.crop(length)
        self.length = min(self.length, length)

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return sum(layer.nbytes for layer in self.layers)
