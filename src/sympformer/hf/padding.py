"""Where the tokens of a padded batch are. A row may be padded before its text, after it, or both; never inside."""

from typing import NamedTuple

import torch
from torch import Tensor

from sympformer.errors import InputError


class Span(NamedTuple):
    """A row's tokens among the columns of a batch: `n` of them from column `first` on."""

    first: int
    n: int


def spans_of(mask: Tensor) -> list[Span] | None:
    """The span of every row of a mask (B, T) of ones and zeros; None when nothing is padding."""
    real = mask != 0
    if bool(real.all()):
        return None
    count = real.sum(1)
    first = real.int().argmax(1)  # 0 for a row without a token
    last = real.shape[1] - 1 - real.flip(1).int().argmax(1)
    inside = (count > 0) & (last - first + 1 != count)
    if bool(inside.any()):
        raise padding_inside(int(inside.int().argmax()))
    return [Span(*pair) for pair in zip(first.tolist(), count.tolist(), strict=True)]


def padding_inside(row: int) -> InputError:
    """The error for a row whose text has padding in its middle."""
    return InputError(
        f"row {row} of the batch has padding inside its text; put all padding before the text"
        " (padding_side = 'left', the one for generation) or all of it after"
    )


def by_span(spans: list[Span]) -> dict[Span, list[int]]:
    """The rows that share a span, for spans that hold a token."""
    rows: dict[Span, list[int]] = {}
    for row, span in enumerate(spans):
        if span.n:
            rows.setdefault(span, []).append(row)
    return rows


class Aligned:
    """A padded batch with every text moved to column 0, for models in which no token sees a later one."""

    def __init__(self, spans: list[Span], T: int, device: torch.device) -> None:
        first = torch.tensor([span.first for span in spans], device=device).unsqueeze(1)  # (B, 1)
        count = torch.tensor([span.n for span in spans], device=device).unsqueeze(1)
        longest = max(1, *(span.n for span in spans))
        self.source = (first + torch.arange(longest, device=device)).clamp(max=T - 1)  # (B, longest)
        place = torch.arange(T, device=device) - first  # (B, T): a column's place in the text
        self.real = (place >= 0) & (place < count)
        self.place = place.clamp(0, longest - 1)

    def align(self, ids: Tensor) -> Tensor:
        """Token ids (B, T) -> (B, longest); behind a shorter text stands anything, which nothing earlier sees."""
        return ids.gather(1, self.source)

    def restore(self, hidden: Tensor) -> Tensor:
        """(B, longest, d) -> (B, T, d), zero at padding."""
        spread = hidden.gather(1, self.place.unsqueeze(-1).expand(-1, -1, hidden.shape[-1]))
        return spread.masked_fill(~self.real.unsqueeze(-1), 0)
