"""What a model remembers of earlier tokens, layer by layer.

Softmax layers keep keys and values (and rho where the force needs it): memory grows with the context. Linear layers
keep one d x d state: memory is constant. The history of a multistep integrator runs over layers, not tokens, and is
not here.
"""

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import torch
from torch import Tensor

from sympformer.errors import InputError

Made = TypeVar("Made")


class Rows:
    """Rows (..., t, c) that grow along t, in a buffer that doubles, so that appending costs O(1) on average."""

    def __init__(self) -> None:
        self._buffer: Tensor | None = None
        self.length = 0

    def append(self, rows: Tensor) -> Tensor:
        """All rows so far, the new ones last."""
        *lead, new, c = rows.shape
        need = self.length + new
        if self._buffer is None or self._buffer.shape[-2] < need:
            bigger = rows.new_empty(*lead, max(64, 2 * need), c)
            if self._buffer is not None:
                bigger[..., : self.length, :] = self._buffer[..., : self.length, :]
            self._buffer = bigger
        self._buffer.narrow(-2, self.length, new).copy_(rows)  # slices by index cost several times as much
        self.length = need
        return self._buffer.narrow(-2, 0, need)

    def select(self, index: Tensor) -> None:
        """Keep and reorder batch rows."""
        if self._buffer is not None:
            self._buffer = self._buffer[index]

    def crop(self, length: int) -> None:
        """Forget all but the first `length` rows."""
        self.length = min(self.length, length)

    @property
    def nbytes(self) -> int:
        return 0 if self._buffer is None else self._buffer.nbytes


@dataclass
class LayerCache:
    """The memory of one layer. A kind of attention uses the parts it needs."""

    pairs: Rows = field(default_factory=Rows)  # (B, 2H, t, d/H): keys of all heads, then values
    rho: Rows = field(default_factory=Rows)  # (B, H, t, 1)
    state: Tensor | None = None  # (B, H, d, d) of linear attention
    constants: dict[str, Any] = field(default_factory=dict)  # what stays the same while a text grows: see `once`

    def select(self, index: Tensor) -> None:
        """Keep and reorder batch rows."""
        for rows in (self.pairs, self.rho):
            rows.select(index)
        if self.state is not None:
            self.state = self.state[index]

    def copy(self) -> "LayerCache":
        """The same memory under a new name, for `select` to cut down: it replaces tensors, and changes none."""
        return replace(self, pairs=copy(self.pairs), rho=copy(self.rho))

    def crop(self, length: int) -> None:
        """Forget all but the first `length` tokens."""
        if self.state is not None:
            raise InputError("the state of linear attention cannot forget single tokens; start anew from the text")
        for rows in (self.pairs, self.rho):
            rows.crop(length)

    @property
    def nbytes(self) -> int:
        state = 0 if self.state is None else self.state.nbytes
        return state + sum(rows.nbytes for rows in (self.pairs, self.rho))


def once(cache: LayerCache | None, name: str, make: Callable[[], Made]) -> Made:
    """make(); when nothing learns, a cache keeps the result, so that the next token need not work it out again."""
    if cache is None or torch.is_grad_enabled():
        return make()
    if name not in cache.constants:
        cache.constants[name] = make()
    made: Made = cache.constants[name]
    return made


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

    def part(self, index: Tensor) -> "Cache":
        """A cache of its own for the rows `index`; this one stays as it is."""
        part = Cache(self.batch_size, [layer.copy() for layer in self.layers], self.length)
        part.select(index)
        return part

    def crop(self, length: int) -> None:
        """Go back to the first `length` tokens (when guessed tokens are refused). Softmax attention only."""
        for layer in self.layers:
            layer.crop(length)
        self.length = min(self.length, length)

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return sum(layer.nbytes for layer in self.layers)


@dataclass(frozen=True)
class Visible:
    """How many tokens each of the present ones sees: n_i, and log n_i."""

    causal: bool
    n: Tensor  # (T, 1)
    log_n: Tensor  # (T,)

    @classmethod
    def make(cls, causal: bool, start: int, T: int, device: torch.device, dtype: torch.dtype) -> "Visible":
        n = torch.arange(start + 1, start + T + 1, device=device) if causal else torch.full((T,), T, device=device)
        # in bfloat16 log n would be off by up to 0.016, and z by as much
        log_n = n.to(torch.promote_types(dtype, torch.float32)).log()
        return cls(causal, n.to(dtype).unsqueeze(-1), log_n)
