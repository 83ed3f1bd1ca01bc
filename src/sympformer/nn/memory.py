"""What a layer remembers of a text's earlier tokens: rows that grow, the last row alone, or a sum."""

from copy import copy

import torch
from torch import Tensor

from sympformer.errors import InputError


class Rows:
    """Rows (..., t, c) that grow along t, in a buffer that doubles, so that appending costs O(1) on average."""

    def __init__(self) -> None:
        self.buffer: Tensor | None = None
        self.length = 0

    def append(self, rows: Tensor) -> Tensor:
        """All rows so far, the new ones last."""
        *lead, new, c = rows.shape
        need = self.length + new
        if torch.is_grad_enabled() and (rows.requires_grad or getattr(self.buffer, "requires_grad", False)):
            # rows that a backward pass may need are never written over
            self.buffer = rows if self.buffer is None else torch.cat((self.rows, rows), -2)
        else:
            if self.buffer is None or self.buffer.shape[-2] < need:
                bigger = rows.new_empty(*lead, max(64, 2 * need), c)
                if self.buffer is not None:
                    bigger[..., : self.length, :] = self.rows
                self.buffer = bigger
            self.buffer.narrow(-2, self.length, new).copy_(rows)  # slices by index cost several times as much
        self.length = need
        return self.rows

    @property
    def rows(self) -> Tensor:
        assert self.buffer is not None
        return self.buffer.narrow(-2, 0, self.length)

    @property
    def last(self) -> Tensor | None:
        """The last row (..., 1, c), None before the first."""
        return None if self.buffer is None or not self.length else self.buffer.narrow(-2, self.length - 1, 1)


class LastRow(Rows):
    """The last row alone, however many there were: of a constant size, and without a way back."""

    def append(self, rows: Tensor) -> Tensor:
        self.buffer, self.length = rows[..., -1:, :].clone(), 1  # of its own, so that the others are let go
        return rows


class Memory:
    """What a layer keeps of the tokens before the present ones: rows by name, and the sum that linear attention reads.

    croppable: whether single tokens can be forgotten. Where they cannot, of neighbours the last row alone is kept, so
    that a memory of a constant size stays one.
    """

    def __init__(self, croppable: bool) -> None:
        self.croppable = croppable
        self.kept: dict[str, Rows] = {}
        self.state: Tensor | None = None  # (B, H, d, d)

    def rows(self, name: str) -> Rows:
        """The rows of that name, of all tokens."""
        return self.kept.setdefault(name, Rows())

    def beside(self, name: str) -> Rows:
        """The rows of that name, or the last of them where tokens cannot be forgotten."""
        return self.kept.setdefault(name, Rows() if self.croppable else LastRow())

    def select(self, index: Tensor) -> None:
        """Keep and reorder batch rows. Replaces tensors, changes none."""
        for rows in self.kept.values():
            rows.buffer = None if rows.buffer is None else rows.buffer[index]
        self.state = None if self.state is None else self.state[index]

    def copy(self) -> "Memory":
        """The same memory under a new name, for `select` to cut down."""
        other = copy(self)
        other.kept = {name: copy(rows) for name, rows in self.kept.items()}
        return other

    def crop(self, length: int) -> None:
        """Forget all but the first `length` tokens; raise where that cannot be done."""
        if not self.croppable and (self.kept or self.state is not None):
            raise InputError("the state of linear attention cannot forget single tokens; start anew from the text")
        for rows in self.kept.values():
            rows.length = min(rows.length, length)

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        held = [rows.buffer for rows in self.kept.values()] + [self.state]
        return sum(tensor.nbytes for tensor in held if tensor is not None)
