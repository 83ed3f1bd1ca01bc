"""The tables beside the ranking: effects of factors, their interactions, and what a change to a parent does."""

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sympformer import tables
from sympformer.studies.results import NOT_SHOWN, Difference, Effect, Results
from sympformer.studies.results.tables import NONE, probability, with_interval, with_spread
from sympformer.tables import Head

if TYPE_CHECKING:
    from rich.table import Table

TAIL = [Head("difference [95 %]"), Head("verdict", True), Head("p (Holm)"), Head("verdict (Holm)", True)]
LONG = ("verdict", "p (Holm)", "loss")  # columns that a console has no room for
FIGURES = ("difference", "low", "high", "verdict", "p", "p_holm", "verdict_holm")  # of a CSV's lines


@dataclass(frozen=True)
class Sheet:
    """A table: its file's name, title, a sentence on how to read it, the readable cells, and all figures for a CSV."""

    name: str
    title: str
    reading: str
    heads: list[Head]
    rows: list[list[str]]
    names: list[str]  # of the CSV's columns before FIGURES
    lines: list[list[Any]]

    def markdown(self) -> str:
        """For a README."""
        return tables.markdown_table(self.heads, self.rows)

    def terminal(self) -> "Table":
        """For a console: without what the others hold in more detail."""
        from rich.markup import escape

        kept = [i for i, head in enumerate(self.heads) if head.text not in LONG]
        cells = [[escape(row[i]) for i in kept] for row in self.rows]
        return tables.terminal_table(self.title, [self.heads[i] for i in kept], cells)

    def csv(self) -> str:
        """For other programs."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerows([[*self.names, *FIGURES], *self.lines])
        return text.getvalue()


def sheets(results: Results) -> list[Sheet]:
    """Those that the comparison has."""
    found = []
    if results.effects:
        found.append(_effects("effects", "Effects of the factors", EFFECTS, results.effects))
    if results.interactions:
        found.append(_effects("interactions", "Interactions of two factors", INTERACTIONS, results.interactions))
    if any(model.parent is not None for model in results.models):
        found.append(_ablation(results))
    return found


EFFECTS = (
    "Each level against its factor's first: the mean difference over all pairs of cells that differ in that alone, "
    "seed by seed; lower is better. Pairs with a cell that is refused, has no figures or failed its audit are left out."
)
INTERACTIONS = (
    "How much more two levels do together than each by itself: the difference of the first factor's levels at the "
    "second factor's level, minus the same at the second factor's first level; below zero the two help each other."
)
ABLATION = "Each model beside the one it is a change of: the options that differ, and the difference paired by seed."


def _effects(name: str, title: str, reading: str, effects: Sequence[Effect]) -> Sheet:
    heads = [Head("factor", True), Head("level", True), Head("against", True), Head("pairs"), *TAIL]
    rows = [
        [*_words(one), f"{one.pairs} of {one.possible}", *_tail(one.difference, len(one.factors) > 1)]
        for one in effects
    ]  # fmt: skip
    lines = [[*_words(one), one.pairs, one.possible, *_figures(one.difference)] for one in effects]
    return Sheet(name, title, reading, heads, rows, ["factor", "level", "against", "pairs", "possible"], lines)


def _words(effect: Effect) -> list[str]:
    return [" x ".join(effect.factors), ", ".join(effect.levels), ", ".join(effect.against)]


def _ablation(results: Results) -> Sheet:
    """The models with a parent, and the parents of those that have none themselves, in the order of the config."""
    parents = {model.parent for model in results.models}
    chosen = [model for model in results.models if model.parent is not None or model.name in parents]
    heads = [Head("model", True), Head("parent", True), Head("change", True, wrap=True), Head("loss"), *TAIL]
    rows, lines = [], []
    for m in chosen:
        figure, changes = results.metric_of(m), "; ".join(m.changes)
        rows.append([m.name, m.parent or NONE, changes or NONE, with_spread(figure), *_tail(m.to_parent)])
        mean = "" if figure is None else figure.mean
        lines.append([m.name, m.parent or "", changes, mean, *_figures(m.to_parent)])
    names = ["model", "parent", "change", "figure"]
    return Sheet("ablation", "Changes to a parent", ABLATION, heads, rows, names, lines)


def _tail(found: Difference | None, together: bool = False) -> list[str]:
    if found is None:
        return [NONE] * len(TAIL)
    words = [
        f"{verdict} together" if together and verdict != NOT_SHOWN else verdict
        for verdict in (found.verdict, found.settled)
    ]
    return [with_interval(found), words[0], probability(found.p_holm), words[1]]


def _figures(found: Difference | None) -> list[Any]:
    values = [""] * len(FIGURES) if found is None else [found.mean, *(getattr(found, name) for name in FIGURES[1:])]
    return ["" if value is None else value for value in values]
