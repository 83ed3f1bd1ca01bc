"""What attention remembers of earlier tokens: a memory a layer, of rows that grow or of a fixed size."""

from copy import copy
from typing import Protocol, Self

import torch
from torch import Tensor

from sympformer.errors import InputError


class Memory(Protocol):
    """What a layer keeps of the tokens before the present ones. Batch rows can be selected; tokens may be forgotten."""

    @property
    def croppable(self) -> bool:
        """Whether single tokens can be forgotten."""

    def select(self, index: Tensor) -> None:
        """Keep and reorder batch rows. Replaces tensors, changes none."""

    def copy(self) -> Self:
        """The same memory under a new name, for `select` to cut down."""

    def crop(self, length: int) -> None:
        """Forget all but the first `length` tokens; raise where that cannot be done."""

    @property
    def nbytes(self) -> int:
        """Bytes held."""


class GrowingRows:
    """Rows (..., t, c) that grow along t, in a buffer that doubles, so that appending costs O(1) on average."""

    def __init__(self) -> None:
        self._buffer: Tensor | None = None
        self.length = 0

    def append(self, rows: Tensor) -> Tensor:
        """All rows so far, the new ones last."""
        *lead, new, c = rows.shape
        need = self.length + new
        if torch.is_grad_enabled() and (rows.requires_grad or getattr(self._buffer, "requires_grad", False)):
            return self._append_learning(rows)
        if self._buffer is None or self._buffer.shape[-2] < need:
            bigger = rows.new_empty(*lead, max(64, 2 * need), c)
            if self._buffer is not None:
                bigger[..., : self.length, :] = self._buffer[..., : self.length, :]
            self._buffer = bigger
        self._buffer.narrow(-2, self.length, new).copy_(rows)  # slices by index cost several times as much
        self.length = need
        return self._buffer.narrow(-2, 0, need)

    def _append_learning(self, rows: Tensor) -> Tensor:
        """The same where gradients flow: rows that a backward pass may need are never written over."""
        past = () if self._buffer is None else (self._buffer.narrow(-2, 0, self.length),)
        self._buffer = torch.cat((*past, rows), -2)
        self.length = self._buffer.shape[-2]
        return self._buffer

    @property
    def rows(self) -> Tensor:
        """All rows so far."""
        assert self._buffer is not None
        return self._buffer.narrow(-2, 0, self.length)

    @property
    def last(self) -> Tensor | None:
        """The last row (..., 1, c), None before the first."""
        return None if self._buffer is None or not self.length else self._buffer.narrow(-2, self.length - 1, 1)

    def select(self, index: Tensor) -> None:
        """Keep and reorder batch rows."""
        if self._buffer is not None:
            self._buffer = self._buffer[index]

    def crop(self, length: int) -> None:
        """Forget all but the first `length` rows."""
        self.length = min(self.length, length)

    def copy(self) -> "GrowingRows":
        """The same rows under a new name."""
        return copy(self)

    @property
    def nbytes(self) -> int:
        return 0 if self._buffer is None else self._buffer.nbytes


class FixedRows:
    """Rows in a buffer of `room` places that is handed out whole, so that no shape and no number of a program changes
    while they grow: what a compiled one wants. The view hides places that are not taken yet."""

    def __init__(self, room: int) -> None:
        self.room = room
        self._buffer: Tensor | None = None
        self._length: Tensor | None = None  # (1,)

    def append(self, rows: Tensor) -> Tensor:
        """All places, the new rows in those that come next."""
        if self._buffer is None or self._length is None:
            self._buffer = rows.new_zeros(*rows.shape[:-2], self.room, rows.shape[-1])
            self._length = torch.zeros(1, dtype=torch.long, device=rows.device)
        places = self._length + torch.arange(rows.shape[-2], device=rows.device)
        if torch.is_grad_enabled() and (rows.requires_grad or self._buffer.requires_grad):
            self._buffer = self._buffer.index_copy(-2, places, rows)
        else:
            self._buffer.index_copy_(-2, places, rows)
        self._length.add_(rows.shape[-2])
        return self._buffer

    @property
    def rows(self) -> Tensor:
        """All places."""
        assert self._buffer is not None
        return self._buffer

    @property
    def last(self) -> Tensor | None:
        """The last row (..., 1, c), None before the first call; of no rows yet it is whatever stands in front."""
        if self._buffer is None or self._length is None:
            return None
        return self._buffer.index_select(-2, (self._length - 1).clamp_min(0))

    def select(self, index: Tensor) -> None:
        """Keep and reorder batch rows."""
        if self._buffer is not None:
            self._buffer = self._buffer[index]

    def crop(self, length: int) -> None:
        """Forget all but the first `length` rows."""
        if self._length is not None:
            self._length.clamp_max_(length)

    def copy(self) -> "FixedRows":
        """The same rows under a new name."""
        other = copy(self)
        other._length = None if self._length is None else self._length.clone()
        return other

    @property
    def nbytes(self) -> int:
        return 0 if self._buffer is None else self._buffer.nbytes


class LastRow:
    """The last row alone, however many there were: of a constant size, and without a way back."""

    def __init__(self) -> None:
        self.last: Tensor | None = None  # (..., 1, c)

    def append(self, rows: Tensor) -> Tensor:
        """The new rows; of those before, nothing is left."""
        # of its own, so that the others are let go, and in one form, so that a compiled program knows it again
        self.last = rows[..., -1:, :].clone(memory_format=torch.contiguous_format)
        return rows

    def select(self, index: Tensor) -> None:
        """Keep and reorder batch rows."""
        if self.last is not None:
            self.last = self.last[index]

    def crop(self, length: int) -> None:
        """There is no row but the last."""
        if self.last is not None:
            raise InputError("what remembers the last token only cannot forget it; take the text in anew")

    def copy(self) -> "LastRow":
        """The same row under a new name."""
        return copy(self)

    @property
    def nbytes(self) -> int:
        return 0 if self.last is None else self.last.nbytes


Rows = GrowingRows | FixedRows


def rows_of(room: int | None) -> Rows:
    """Rows that grow, or a buffer of a fixed room for them."""
    return GrowingRows() if room is None else FixedRows(room)


def fixed(memory: Memory, room: int) -> Memory:
    """An empty memory of the same kind that takes `room` columns from the start."""
    if not hasattr(memory, "fixed"):
        raise InputError(f"{type(memory).__name__} has no form of a fixed size; use a cache that grows")
    return memory.fixed(room)
