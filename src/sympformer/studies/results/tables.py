"""The results as tables, each one list of columns: terminal, Markdown, LaTeX, CSV and the page are loops over it."""

import csv
import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from sympformer import tables
from sympformer.studies.results.results import NOT_SHOWN, Difference, Effect, ModelResult, Results, Spread
from sympformer.tables import Head

if TYPE_CHECKING:
    from rich.table import Table as RichTable

NONE = "-"
Cell = tuple[str, tuple[Any, ...]]  # how it reads, and its figures in full


@dataclass(frozen=True)
class Column:
    """A column: its head, what a row's cell says, and how a CSV names its figures; the first of them sorts."""

    head: str  # empty: figures for the CSV alone
    cell: Callable[[Any], Cell]
    names: tuple[str, ...]
    words: bool = False  # at the left; figures stand at the right
    short: bool = False  # where there is little room too
    wrap: bool = False
    title: str | None = None  # what the head means


@dataclass(frozen=True)
class Table:
    """Rows, which are models or effects, with their columns. name: of its files; reading: a sentence on how to."""

    name: str
    title: str
    reading: str
    columns: list[Column]
    rows: Sequence[Any]
    marks: Mapping[str, str]  # models: "struck" for a failed audit, "baseline"

    def heads(self, short: bool = False) -> list[Column]:
        """The readable columns."""
        return [column for column in self.columns if column.head and (column.short or not short)]

    def mark(self, row: Any) -> str | None:
        return self.marks.get(getattr(row, "name", ""))


def tables_of(results: Results) -> list[Table]:
    """All that the comparison has; the first is the ranking."""
    marks = {model.name: "baseline" for model in results.models if model.name == results.baseline}
    marks |= {model.name: "struck" for model in results.models if results.state(model) == "failed audit"}
    mains, pairs = ([e for e in results.effects if len(e.factors) == n] for n in (1, 2))
    parents = {model.parent for model in results.models} - {None}
    changed = [model for model in results.models if model.parent is not None or model.name in parents]
    title = f"{results.title}: {results.budget}, seeds {', '.join(map(str, results.seeds))}"
    found: list[tuple[str, str, str, list[Column], Sequence[Any]]] = [
        ("table", title, "", columns(results), results.ranked()),
        ("effects", "Effects of the factors", EFFECTS, effect_columns(results), mains),
        ("interactions", "Interactions of two factors", INTERACTIONS, effect_columns(results), pairs),
        ("ablation", "Changes to a parent", CHANGES, change_columns(results), changed),
        ("rates", "Learning rates", RATES, rate_columns(results), results.ranked()),
    ]
    return [Table(*parts, marks) for parts in found if parts[-1]]


EFFECTS = (
    "Each level against its factor's first: the mean difference over all pairs of cells that differ in that alone, "
    "seed by seed; lower is better. Pairs with a cell that is refused, has no figures or failed its audit are left out."
)
INTERACTIONS = (
    "How much more two levels do together than each by itself: the difference of the first factor's levels at the "
    "second factor's level, minus the same at the second factor's first level; below zero the two help each other."
)
CHANGES = "Each model beside the one it is a change of: the options that differ, and the difference paired by seed."
RATES = "Validation loss after the short runs that choose the rate; a model with one rate was given it."


# --- the columns


def columns(results: Results) -> list[Column]:
    """The columns of the ranking. Those for a baseline, probes and others' figures are there where those are."""
    scored = f"{results.scored} loss"
    own_lengths = len({model.tokens for model in results.models if model.tokens}) > 1
    return [
        Column("#", lambda m: (str(m.rank or NONE), (m.rank,)), ("rank",), short=True, title="rank"),
        _words("model", lambda m: m.name, short=True),
        Column("", lambda m: ("", (m.variant, m.preset, m.parent)), ("variant", "preset", "parent")),
        _spread(scored, "loss", lambda m: m.last, short=True, title="nats per token, last weights"),
        _spread("best", "best_loss", lambda m: m.best, title="loss of the best weights"),
        _spread("bits/byte", "bits_per_byte", lambda m: m.bits_per_byte),
        *(_against(results) if results.baseline is not None else ()),
        *_beside(results),
        _number("rate", "lr", form="g"),
        *([_number("tokens a run", "tokens")] if own_lengths else []),
        _number("parameters", "parameters"),
        _number("passes a layer", "passes_a_layer", form="g", title="kernel passes"),
        _number("tokens/s", "tokens_per_second", short=True),
        _number("s a run", "seconds"),
        _number("MB a step", "memory_mb"),
        *_probes(results),
        _words("code" if results.mixed_code else "", lambda m: ", ".join(m.code), "code", short=True),
        _words("audit", lambda m: m.audit and ("passed" if m.passed else "failed"), short=True),
    ]


def _against(results: Results) -> Iterator[Column]:
    who, whose = results.against, "its" if results.against == results.baseline else f"{results.baseline}'s"
    yield from _judged(results, f"minus {who} [95 %]", lambda m: m.difference, lambda m: who, results.corrected)

    def reach(names: tuple[str, ...], model: ModelResult) -> Cell:
        """Where only some seeds arrive there is no mean; how many did is said instead."""
        figures = tuple(getattr(model, name) for name in names)
        partly = f"{model.reached} of {len(results.seeds)} seeds" if 0 < model.reached < len(results.seeds) else NONE
        return (partly if figures[0] is None else f"{figures[0]:,.0f}"), figures

    for head, names in (("tokens", ("tokens_to_baseline", "reached")), ("s", ("seconds_to_baseline",))):
        yield Column(f"{head} to {whose} loss", partial(reach, names), names, title="the baseline's last, validation")


def _judged(
    results: Results,
    head: str,
    difference: Callable[[Any], Difference | None],
    other: Callable[[Any], str | None] = lambda row: None,
    corrected: bool = True,
) -> Iterator[Column]:
    """A difference to another model with its interval, what that says alone, and what its family leaves of it."""

    def interval(row: Any) -> Cell:
        found = difference(row)
        if found is None:
            itself = isinstance(row, ModelResult) and other(row) == results.against and results.role(row)
            return itself or NONE, (None,) * 4
        bounds = "" if found.low is None else f" [{found.low:+.3f}, {found.high:+.3f}]"
        return f"{found.mean:+.3f}{bounds}", (found.mean, found.low, found.high, found.p)

    def p_holm(row: Any) -> Cell:
        p = getattr(difference(row), "p_holm", None)
        return (NONE if p is None else "< 0.001" if p < 0.001 else f"{p:.3f}"), (p,)

    def said(alone: bool) -> Callable[[Any], str]:
        return lambda row: verdict(results, row, difference(row), other(row), alone)

    yield Column(head, interval, ("difference", "low", "high", "p"), short=True)
    yield _words("verdict", said(alone=True), short=not corrected)
    if corrected:
        yield Column("p (Holm)", p_holm, ("p_holm",), title="after Holm's correction for the whole family")
        yield _words("verdict (Holm)", said(alone=False), "verdict_holm", short=True)


def _beside(results: Results) -> Iterator[Column]:
    """Others' figures, and the validation losses that they are to be read with."""
    for i, which in enumerate(("last", "best") if results.beside else ()):
        read = partial(lambda i, m: m.validation and m.validation[i], i)
        yield _number(f"{which}, validation", f"validation_{which}", read, ".3f")
    for head, figures in results.beside.items():
        form = ".3f" if max(map(abs, figures.values()), default=0) < 100 else ",.1f"
        yield _number(head, head, partial(lambda figures, m: figures.get(m.name), figures), form)


def _probes(results: Results) -> Iterator[Column]:
    for name, probe in {name: probe for model in results.models for name, probe in model.probes.items()}.items():
        read = partial(lambda name, m: m.probes[name].accuracy.mean if name in m.probes else None, name)
        guess = f"{probe.items} items; guessing gives {100 * probe.chance:.0f} %"
        yield _number(name, f"probe_{name}", read, ".0%", title=guess)


def effect_columns(results: Results) -> list[Column]:
    """Of a factorial's effects, of one factor or of two."""
    pairs = ("pairs", "possible")
    return [
        _words("factor", lambda e: " x ".join(e.factors), short=True),
        _words("level", lambda e: ", ".join(e.levels), short=True),
        _words("against", lambda e: ", ".join(e.against), short=True),
        Column("pairs", lambda e: (f"{e.pairs} of {e.possible}", (e.pairs, e.possible)), pairs, short=True),
        *_judged(results, "difference [95 %]", lambda e: e.difference),
    ]


def change_columns(results: Results) -> list[Column]:
    """Of models beside the one that each is a change of."""
    return [
        _words("model", lambda m: m.name, short=True),
        _words("parent", lambda m: m.parent, short=True),
        _words("change", lambda m: "; ".join(m.changes), short=True, wrap=True),
        _spread("loss", "figure", results.metric_of),
        *_judged(results, "difference [95 %]", lambda m: m.to_parent, lambda m: m.parent),
    ]


def rate_columns(results: Results) -> list[Column]:
    """Of the learning rates that were tried; "diverged" where the loss left the finite numbers."""

    def cell(rate: str, model: ModelResult) -> Cell:
        chosen = model.lr is not None and float(rate) == model.lr
        if rate not in model.rates:
            return ("given" if chosen else ""), (None,)
        loss = model.rates[rate]
        return ("diverged" if loss is None else f"{loss:.3f}{' *' if chosen else ''}"), (loss,)

    tried = sorted({rate for model in results.models for rate in model.rates}, key=float)
    return [
        _words("model", lambda m: m.name),
        *(Column(rate, partial(cell, rate), (rate,)) for rate in tried),
        _number("rate (*)", "lr", form="g"),
        _words("variant", lambda m: m.variant),
        _words("preset", lambda m: m.preset),
    ]


# --- the cells


def verdict(
    results: Results, row: ModelResult | Effect, found: Difference | None, other: str | None, alone: bool
) -> str:
    """Of a difference, in words; why there is none where a model, or the other, may not stand in a ranking."""
    said = "" if found is None else found.alone if alone else found.verdict
    if isinstance(row, Effect):
        return f"{said} together" if len(row.factors) > 1 and said not in ("", NOT_SHOWN) else said
    if row.diverged or not said:
        return "diverged" if row.diverged else ""
    states = {one.name: results.state(one) for one in results.models if one.name in (row.name, other)}
    if states[row.name] != "ranked":
        return states[row.name]
    measure = states.get(other or "", "ranked")
    return said if measure == "ranked" else f"{other}: {measure}"


def _words(head: str, read: Callable[[Any], str | None], name: str = "", **more: Any) -> Column:
    """Words at the left; a CSV has them too, without the "together" of an interaction."""

    def cell(row: Any) -> Cell:
        said = read(row) or ""
        return ("FAILED" if said == "failed" else said) or NONE, (said.removesuffix(" together"),)

    return Column(head, cell, (name or head,), words=True, **more)


def _number(
    head: str, name: str, read: Callable[[Any], float | None] | None = None, form: str = ",.0f", **more: Any
) -> Column:
    """A figure: an attribute of that name, or what is read."""

    def cell(row: Any) -> Cell:
        value = getattr(row, name) if read is None else read(row)
        return NONE if value is None else f"{value:{form}}".replace("%", " %"), (value,)

    return Column(head, cell, (name,), **more)


def _spread(head: str, name: str, read: Callable[[Any], Spread | None], **more: Any) -> Column:
    """Mean and standard deviation over the seeds."""

    def cell(row: Any) -> Cell:
        if (figure := read(row)) is None:
            return NONE, (None, None)
        return f"{figure.mean:.3f}" + ("" if figure.sd is None else f" ± {figure.sd:.3f}"), (figure.mean, figure.sd)

    return Column(head, cell, (name, f"{name}_sd"), **more)


# --- the forms


def _readable(
    table: Table, struck: str = "{}", escape: Callable[[str], str] = str, short: bool = False
) -> tuple[list[Head], list[list[str]]]:
    """Heads, and cells as people read them. struck: how a cell of a struck row is written."""
    chosen = table.heads(short)
    cells = [
        [(struck if table.mark(row) == "struck" else "{}").format(escape(column.cell(row)[0])) for column in chosen]
        for row in table.rows
    ]
    return [Head(column.head, column.words, column.wrap) for column in chosen], cells


def terminal(table: Table) -> "RichTable":
    """For a console: the columns that matter most, as many as a hundred characters hold."""
    from rich.markup import escape

    styles = [{"struck": "strike", "baseline": "bold"}.get(table.mark(row) or "") for row in table.rows]
    return tables.terminal_table(table.title, *_readable(table, escape=escape, short=True), styles)


def markdown(table: Table) -> str:
    """For a README."""
    return tables.markdown_table(*_readable(table, "~~{}~~"))


TEX = {"\\": r"\textbackslash{}", "±": r"$\pm$", "<": "$<$", ">": "$>$", "→": r"$\to$", "~": r"\textasciitilde{}"}
TEX |= {"^": r"\textasciicircum{}"} | {character: f"\\{character}" for character in "%#_&${}"}


def latex(table: Table) -> str:
    """For a paper: a tabular for the package booktabs, rows struck out with \\sout of ulem."""

    def escape(cell: str) -> str:
        return "".join(TEX.get(character, character) for character in cell)

    heads, cells = _readable(table, "\\sout{{{}}}", escape)
    first, *lines = (" & ".join(row) + r" \\" for row in ([escape(head.text) for head in heads], *cells))
    opening = f"\\begin{{tabular}}{{{''.join('l' if head.left else 'r' for head in heads)}}}"
    needs = "% needs \\usepackage{booktabs} and, for struck rows, \\usepackage[normalem]{ulem}"
    whole = (needs, opening, "\\toprule", first, "\\midrule", *lines, "\\bottomrule", "\\end{tabular}\n")
    return "\n".join(whole)


def as_csv(table: Table) -> str:
    """Every figure in full, one line a row, for other programs."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([name for column in table.columns for name in column.names])
    writer.writerows([figure for column in table.columns for figure in column.cell(row)[1]] for row in table.rows)
    return text.getvalue()
