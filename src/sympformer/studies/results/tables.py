"""The results as tables, each one list of columns: terminal, Markdown, LaTeX, CSV and the page are loops over it."""

import csv
import io
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
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
    struck: frozenset[str] = frozenset()  # models that failed their audit
    bold: str | None = None

    def heads(self, short: bool = False) -> list[Column]:
        """The readable columns."""
        return [column for column in self.columns if column.head and (column.short or not short)]

    def is_struck(self, row: Any) -> bool:
        return getattr(row, "name", None) in self.struck

    def is_bold(self, row: Any) -> bool:
        return self.bold is not None and getattr(row, "name", None) == self.bold


def tables_of(results: Results) -> list[Table]:
    """All that the comparison has; the first is the ranking."""
    struck = frozenset(model.name for model in results.models if results.state(model) == "failed audit")
    mains, pairs = ([e for e in results.effects if len(e.factors) == n] for n in (1, 2))
    parents = {model.parent for model in results.models} - {None}
    changed = [model for model in results.models if model.parent is not None or model.name in parents]
    title = f"{results.title}: {results.budget}, seeds {', '.join(map(str, results.seeds))}"
    ranking = Table("table", title, "", columns(results), results.ranked(), struck, results.baseline)
    rest = [
        Table("effects", "Effects of the factors", EFFECTS, effect_columns(), mains),
        Table("interactions", "Interactions of two factors", INTERACTIONS, effect_columns(), pairs),
        Table("ablation", "Changes to a parent", CHANGES, change_columns(results), changed, struck),
        Table("rates", "Learning rates", RATES, rate_columns(results), results.ranked(), struck),
    ]
    return [ranking, *(table for table in rest if table.rows)]


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
    return [*_figures(results), *_against(results), *_beside(results), *_costs(results)]


def _figures(results: Results) -> Iterator[Column]:
    yield Column("#", lambda m: (str(m.rank or NONE), (m.rank,)), ("rank",), short=True, title="rank")
    yield Column("model", lambda m: (m.name, (m.name,)), ("model",), words=True, short=True)
    yield Column("", lambda m: ("", (m.variant, m.preset, m.parent)), ("variant", "preset", "parent"))
    yield Column(
        f"{results.scored} loss", lambda m: _spread(m.last), ("loss", "loss_sd"), short=True,
        title="nats per token, last weights",
    )  # fmt: skip
    yield Column("best", lambda m: _spread(m.best), ("best_loss", "best_loss_sd"), title="loss of the best weights")
    yield Column("bits/byte", lambda m: _spread(m.bits_per_byte), ("bits_per_byte", "bits_per_byte_sd"))


def _against(results: Results) -> Iterator[Column]:
    if results.baseline is None:
        return
    yield Column(
        f"minus {results.against} [95 %]",
        lambda m: _difference(m.difference, results.role(m) or NONE),
        ("difference", "low", "high", "p"),
        short=True,
    )
    yield from _verdicts(results.corrected, lambda m, alone: verdict(results, m, m.difference, results.against, alone),
                         lambda m: m.difference)  # fmt: skip
    whose = "its" if results.against == results.baseline else f"{results.baseline}'s"
    yield Column(
        f"tokens to {whose} loss",
        lambda m: (_reach(results, m, m.tokens_to_baseline), (m.tokens_to_baseline, m.reached)),
        ("tokens_to_baseline", "reached"),
        title="to the baseline's last validation loss",
    )
    yield Column(
        f"s to {whose} loss",
        lambda m: (_reach(results, m, m.seconds_to_baseline), (m.seconds_to_baseline,)),
        ("seconds_to_baseline",),
        title="the same in seconds, at the measured speed",
    )


def _verdicts(
    corrected: bool, words: Callable[[Any, bool], str], difference: Callable[[Any], Difference | None]
) -> Iterator[Column]:
    """What an interval says by itself, and where there is a family, what stays of it."""

    def p_holm(row: Any) -> Cell:
        p = getattr(difference(row), "p_holm", None)
        return probability(p), (p,)

    def saying(alone: bool) -> Callable[[Any], Cell]:
        return lambda row: ((said := words(row, alone)), (None if said == NONE else said.removesuffix(" together"),))

    yield Column("verdict", saying(True), ("verdict",), words=True, short=not corrected, title="of this interval alone")
    if corrected:
        yield Column("p (Holm)", p_holm, ("p_holm",))
        yield Column(
            "verdict (Holm)", saying(False), ("verdict_holm",), words=True, short=True,
            title="after Holm's correction for all differences of the family",
        )  # fmt: skip


def _beside(results: Results) -> Iterator[Column]:
    """Others' figures, and the validation losses that they are to be read with."""
    if results.beside:
        for i, which in enumerate(("last", "best")):
            yield Column(
                f"{which}, validation",
                lambda m, i=i: _number(m.validation and m.validation[i], ".3f"),  # type: ignore[misc]
                (f"validation_{which}",),
            )
    for head, figures in results.beside.items():
        places = ".3f" if max(map(abs, figures.values()), default=0) < 100 else ",.1f"
        yield Column(
            head, lambda m, of=figures, places=places: _number(of.get(m.name), places), (head,)  # type: ignore[misc]
        )  # fmt: skip


def _costs(results: Results) -> Iterator[Column]:
    yield Column("rate", lambda m: _number(m.lr, "g"), ("lr",))
    if len({model.tokens for model in results.models if model.tokens}) > 1:
        yield Column("tokens a run", lambda m: _number(m.tokens), ("tokens",))
    yield Column("parameters", lambda m: _number(m.parameters), ("parameters",))
    yield Column("passes a layer", lambda m: _number(m.passes_a_layer, "g"), ("passes_a_layer",), title="kernel passes")
    yield Column("tokens/s", lambda m: _number(m.tokens_per_second), ("tokens_per_second",), short=True)
    yield Column("s a run", lambda m: _number(m.seconds), ("seconds",))
    yield Column("MB a step", lambda m: _number(m.memory_mb), ("memory_mb",))
    found = {name: probe for model in results.models for name, probe in model.probes.items()}
    for name, probe in found.items():
        guess = f"{probe.items} items; guessing gives {100 * probe.chance:.0f} %"
        yield Column(name, lambda m, name=name: _probe(m, name), (f"probe_{name}",), title=guess)  # type: ignore[misc]
    yield Column("code" if results.mixed_code else "", _code, ("code",), words=True, short=True)
    yield Column("audit", _audit, ("audit",), words=True, short=True)


def effect_columns() -> list[Column]:
    """Of a factorial's effects, of one factor or of two."""

    def words(effect: Effect, alone: bool) -> str:
        said = _said(effect.difference, alone)
        return f"{said} together" if len(effect.factors) > 1 and said not in (NONE, NOT_SHOWN) else said

    def listed(names: list[str], between: str = ", ") -> Cell:
        return (text := between.join(names)), (text,)

    return [
        Column("factor", lambda e: listed(e.factors, " x "), ("factor",), words=True, short=True),
        Column("level", lambda e: listed(e.levels), ("level",), words=True, short=True),
        Column("against", lambda e: listed(e.against), ("against",), words=True, short=True),
        Column("pairs", lambda e: (f"{e.pairs} of {e.possible}", (e.pairs, e.possible)), ("pairs", "possible"),
               short=True),
        *_tail(words, lambda e: e.difference),
    ]  # fmt: skip


def change_columns(results: Results) -> list[Column]:
    """Of models beside the one that each is a change of."""
    return [
        Column("model", lambda m: (m.name, (m.name,)), ("model",), words=True, short=True),
        Column("parent", lambda m: (m.parent or NONE, (m.parent,)), ("parent",), words=True, short=True),
        Column("change", lambda m: ("; ".join(m.changes) or NONE, ("; ".join(m.changes),)), ("change",),
               words=True, short=True, wrap=True),
        Column("loss", lambda m: _spread(results.metric_of(m)), ("figure", "figure_sd")),
        *_tail(lambda m, alone: verdict(results, m, m.to_parent, m.parent, alone), lambda m: m.to_parent),
    ]  # fmt: skip


def _tail(words: Callable[[Any, bool], str], difference: Callable[[Any], Difference | None]) -> Iterator[Column]:
    names = ("difference", "low", "high", "p")
    yield Column("difference [95 %]", lambda row: _difference(difference(row), NONE), names, short=True)
    yield from _verdicts(True, words, difference)


def rate_columns(results: Results) -> list[Column]:
    """Of the learning rates that were tried; "diverged" where the loss left the finite numbers."""
    tried = sorted({rate for model in results.models for rate in model.rates}, key=float)

    def cell(model: ModelResult, rate: str) -> Cell:
        chosen = model.lr is not None and float(rate) == model.lr
        if rate not in model.rates:
            return ("given" if chosen else ""), (None,)
        loss = model.rates[rate]
        return ("diverged" if loss is None else f"{loss:.3f}{' *' if chosen else ''}"), (loss,)

    return [
        Column("model", lambda m: (m.name, (m.name,)), ("model",), words=True),
        *(Column(rate, lambda m, rate=rate: cell(m, rate), (rate,)) for rate in tried),  # type: ignore[misc]
        Column("rate (*)", lambda m: _number(m.lr, "g"), ("lr",)),
        Column("variant", lambda m: (m.variant, (m.variant,)), ("variant",), words=True),
        Column("preset", lambda m: (m.preset or NONE, (m.preset,)), ("preset",), words=True),
    ]


# --- the cells


def verdict(results: Results, model: ModelResult, found: Difference | None, other: str | None, alone: bool) -> str:
    """Of one model's difference to another: none where either may not stand in a ranking."""
    if model.diverged:
        return "diverged"
    if found is None:
        return NONE
    for one in results.models:
        if one.name in (model.name, other) and (state := results.state(one)) != "ranked":
            return state if one is model else f"{other}: {state}"
    return _said(found, alone)


def _said(found: Difference | None, alone: bool) -> str:
    return NONE if found is None else found.alone if alone else found.verdict


def _spread(figure: Spread | None) -> Cell:
    """Mean and standard deviation over the seeds."""
    if figure is None:
        return NONE, (None, None)
    return f"{figure.mean:.3f}" + ("" if figure.sd is None else f" ± {figure.sd:.3f}"), (figure.mean, figure.sd)


def _difference(found: Difference | None, otherwise: str) -> Cell:
    """A difference and its 95 % interval."""
    if found is None:
        return otherwise, (None,) * 4
    interval = "" if found.low is None else f" [{found.low:+.3f}, {found.high:+.3f}]"
    return f"{found.mean:+.3f}{interval}", (found.mean, found.low, found.high, found.p)


def probability(p: float | None) -> str:
    """As many places as a reader looks at."""
    return NONE if p is None else "< 0.001" if p < 0.001 else f"{p:.3f}"


def _reach(results: Results, model: ModelResult, value: float | None) -> str:
    """Where only some seeds arrive there is no mean; how many did is said instead."""
    partly = f"{model.reached} of {len(results.seeds)} seeds"
    return f"{value:,.0f}" if value is not None else partly if 0 < model.reached < len(results.seeds) else NONE


def _number(value: float | None, form: str = ",.0f") -> Cell:
    return NONE if value is None else f"{value:{form}}", (value,)


def _probe(model: ModelResult, name: str) -> Cell:
    share = model.probes[name].accuracy.mean if name in model.probes else None
    return NONE if share is None else f"{100 * share:.0f} %", (share,)


def _code(model: ModelResult) -> Cell:
    return ", ".join(model.code) or NONE, (", ".join(model.code),)


def _audit(model: ModelResult) -> Cell:
    if model.audit is None:
        return NONE, (None,)
    return ("passed", ("passed",)) if model.passed else ("FAILED", ("failed",))


# --- the forms


def readable(table: Table, chosen: Sequence[Column]) -> list[list[str]]:
    """The cells as people read them."""
    return [[column.cell(row)[0] for column in chosen] for row in table.rows]


def terminal(table: Table) -> "RichTable":
    """For a console: the columns that matter most, as many as a hundred characters hold."""
    from rich.markup import escape

    chosen = table.heads(short=True)
    cells = [list(map(escape, row)) for row in readable(table, chosen)]
    styles = ["strike" if table.is_struck(row) else "bold" if table.is_bold(row) else None for row in table.rows]
    return tables.terminal_table(table.title, _heads(chosen), cells, styles)


def markdown(table: Table) -> str:
    """For a README."""
    chosen = table.heads()
    cells = readable(table, chosen)
    rows = [[f"~~{c}~~" for c in of] if table.is_struck(row) else of for row, of in zip(table.rows, cells, strict=True)]
    return tables.markdown_table(_heads(chosen), rows)


def _heads(chosen: Sequence[Column]) -> list[Head]:
    return [Head(column.head, column.words, column.wrap) for column in chosen]


def latex(table: Table) -> str:
    """For a paper: a tabular for the package booktabs, rows struck out with \\sout of ulem."""
    chosen = table.heads()
    lines = [
        "% needs \\usepackage{booktabs} and, for struck rows, \\usepackage[normalem]{ulem}",
        f"\\begin{{tabular}}{{{''.join('l' if c.words else 'r' for c in chosen)}}}",
        "\\toprule",
        " & ".join(_tex(c.head) for c in chosen) + r" \\",
        "\\midrule",
    ]
    for row, cells in zip(table.rows, readable(table, chosen), strict=True):
        lines.append(" & ".join(f"\\sout{{{_tex(c)}}}" if table.is_struck(row) else _tex(c) for c in cells) + r" \\")
    return "\n".join([*lines, "\\bottomrule", "\\end{tabular}"]) + "\n"


TEX = {"\\": r"\textbackslash{}", "±": r"$\pm$", "<": "$<$", ">": "$>$", "→": r"$\to$", "~": r"\textasciitilde{}"}
TEX |= {"^": r"\textasciicircum{}"} | {character: f"\\{character}" for character in "%#_&${}"}


def _tex(text: str) -> str:
    return "".join(TEX.get(character, character) for character in text)


def as_csv(table: Table) -> str:
    """Every figure in full, one line a row, for other programs."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([name for column in table.columns for name in column.names])
    writer.writerows([figure for column in table.columns for figure in column.cell(row)[1]] for row in table.rows)
    return text.getvalue()
