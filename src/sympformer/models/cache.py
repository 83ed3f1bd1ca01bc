"""What a model remembers of earlier tokens, layer by layer.

Softmax layers keep keys and values (and rho where the force needs it): memory grows with the context. Linear layers
keep one d x d state: memory is constant. The history of a multistep integrator runs over layers, not tokens, and is
not here.
"""

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from sympformer.flows import OneStep


class Rows:
    """Rows (B, H, t, c) that grow along t, in a buffer that doubles, so that appending costs O(1) on average."""

    def __init__(self) -> None:
        self._buffer: Tensor | None = None
        self.length = 0

    def append(self, rows: Tensor) -> Tensor:
        """All rows so far, the new ones last."""
        B, H, T, c = rows.shape
        need = self.length + T
        if self._buffer is None or self._buffer.shape[2] < need:
            bigger = rows.new_empty(B, H, max(64, 2 * need), c)
            if self._buffer is not None:
                bigger[:, :, : self.length] = self._buffer[:, :, : self.length]
            self._buffer = bigger
        self._buffer.narrow(2, self.length, T).copy_(rows)  # slices by index cost several times as much
        self.length = need
        return self._buffer.narrow(2, 0, need)

    def select(self, index: Tensor) -> None:
        """Keep and reorder batch rows."""
        if self._buffer is not None:
            self._buffer = self._buffer[index]

    @property
    def nbytes(self) -> int:
        return 0 if self._buffer is None else self._buffer.nbytes


@dataclass
class LayerCache:
    """The memory of one layer. A kind of attention uses the parts it needs."""

    keys: Rows = field(default_factory=Rows)
    values: Rows = field(default_factory=Rows)
    rho: Rows = field(default_factory=Rows)
    state: Tensor | None = None  # (B, H, d, d) of linear attention
    # The layer's scalars as plain numbers: they stay the same while a text grows, and cost a third of a token's time.
    scalars: Any = None
    damping: OneStep | None = None

    def select(self, index: Tensor) -> None:
        """Keep and reorder batch rows."""
        for rows in (self.keys, self.values, self.rho):
            rows.select(index)
        if self.state is not None:
            self.state = self.state[index]

    @property
    def nbytes(self) -> int:
        state = 0 if self.state is None else self.state.nbytes
        return state + sum(rows.nbytes for rows in (self.keys, self.values, self.rho))


@dataclass
class Cache:
    """The memory of a model for `batch_size` texts, `length` tokens of each seen so far."""

    batch_size: int
    layers: list[LayerCache]
    length: int = 0

    @classmethod
    def empty(cls, batch_size: int, n_layer: int) -> "Cache":
        return cls(batch_size, [LayerCache() for _ in range(n_layer)])

    def select(self, index: Tensor) -> None:
        """Keep and reorder batch rows (for beams, or when texts end)."""
        for layer in self.layers:
            layer.select(index)
        self.batch_size = len(index)

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return sum(layer.nbytes for layer in self.layers)


@dataclass(frozen=True)
class Visible:
    """How many tokens each of the T present ones sees: n_i, and log n_i."""

    causal: bool
    n: Tensor  # (T, 1)
    log_n: Tensor  # (T,)

    @classmethod
    def make(cls, causal: bool, start: int, T: int, device: torch.device, dtype: torch.dtype) -> "Visible":
        n = torch.arange(start + 1, start + T + 1, device=device) if causal else torch.full((T,), T, device=device)
        n = n.to(dtype)
        return cls(causal, n.unsqueeze(-1), n.log())
