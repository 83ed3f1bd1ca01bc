"""Tables for people, from one set of heads and rows: on a terminal, or as Markdown."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.table import Table


@dataclass(frozen=True)
class Head:
    """The head of a column. left: words, which stand at the left; figures stand at the right. wrap: in narrow ones."""

    text: str
    left: bool = False
    wrap: bool = False


def terminal_table(
    title: str, heads: Sequence[Head], rows: Iterable[Sequence[str]], styles: Iterable[str | None] = ()
) -> "Table":
    """For a console. Cells may hold rich's markup, the title is plain. styles: of every row, where rows differ."""
    from rich.markup import escape
    from rich.table import Column, Table

    columns = [Column(h.text, justify="left" if h.left else "right", no_wrap=not h.wrap) for h in heads]
    table = Table(*columns, title=escape(title), title_justify="left")
    of_rows = list(styles)
    for i, cells in enumerate(rows):
        table.add_row(*cells, style=of_rows[i] if of_rows else None)
    return table


def markdown_table(heads: Sequence[Head], rows: Iterable[Iterable[str]]) -> str:
    """For a README: a line for the heads, one that aligns, one a row."""
    lines = [_pipes(head.text for head in heads), _pipes("---" if head.left else "--:" for head in heads)]
    return "\n".join([*lines, *map(_pipes, rows)]) + "\n"


def _pipes(cells: Iterable[str]) -> str:
    return "| " + " | ".join(" ".join(cell.split()).replace("|", "\\|") for cell in cells) + " |"
