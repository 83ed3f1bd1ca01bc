"""What softmax attention remembers of a text: keys and values of every token."""

from dataclasses import dataclass, field
from typing import ClassVar

from torch import Tensor

from sympformer.nn.attention.memory import FixedRows, GrowingRows, Rows, rows_of
from sympformer.nn.attention.queries import per_query


@dataclass
class PairMemory:
    """Keys and values of all tokens so far, and what else their kernel sums: memory grows with the context."""

    croppable: ClassVar[bool] = True
    pairs: Rows = field(default_factory=GrowingRows)  # (B, 2G, t, d/H): keys of all G groups, then values
    beside: list[Rows] = field(default_factory=list)  # (B, H or G, t, .), one for every time a layer asks for it
    asked: int = 0  # such questions so far at the present tokens
    room: int | None = None  # columns from the start, where memory may not grow

    def fixed(self, room: int) -> "PairMemory":
        return PairMemory(FixedRows(room), room=room)

    def remember(self, qkv: Tensor, n_head: int, n_group: int) -> tuple[Tensor, Tensor, Tensor]:
        """(B, T, (H + 2G) d/H) -> queries of the present tokens, keys and values of these and all before, by head.

        Keys and values are kept once a group, and come (B, H, ., d/H) as the queries do.
        """
        B, T, width = qkv.shape
        self.asked = 0
        n = n_head + 2 * n_group
        # (B, H + 2G, T, d/H), for one token without a transposition
        parts = qkv.view(B, n, 1, width // n) if T == 1 else qkv.view(B, T, n, -1).transpose(1, 2)
        q, pairs = parts.split_with_sizes((n_head, 2 * n_group), 1)
        k, v = self.pairs.append(pairs).chunk(2, 1)
        return q, per_query(k, n_head), per_query(v, n_head)

    def remember_beside(self, rows: Tensor) -> Tensor:
        """Rows of the present tokens (rho, say) -> rows of these and all before, at the same question."""
        if self.asked == len(self.beside):
            self.beside.append(rows_of(self.room))
        kept = self.beside[self.asked]
        self.asked += 1
        return kept.append(rows)

    def select(self, index: Tensor) -> None:
        for rows in (self.pairs, *self.beside):
            rows.select(index)

    def copy(self) -> "PairMemory":
        return PairMemory(self.pairs.copy(), [rows.copy() for rows in self.beside], room=self.room)

    def crop(self, length: int) -> None:
        for rows in (self.pairs, *self.beside):
            rows.crop(length)

    @property
    def nbytes(self) -> int:
        return sum(rows.nbytes for rows in (self.pairs, *self.beside))
