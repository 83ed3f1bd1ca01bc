"""The results as tables: for the terminal, CSV, Markdown and LaTeX, all from the same rows."""

import csv
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sympformer import tables
from sympformer.studies.results import Difference, ModelResult, Results, Spread
from sympformer.studies.results.plot_style import scored_split
from sympformer.tables import Head

if TYPE_CHECKING:
    from rich.table import Table

NONE = "-"
PUBLISHED = ("last", "best", "seconds")  # what may stand beside our figures


@dataclass(frozen=True)
class Column:
    """A column of the readable tables: its head and how a model's cell reads."""

    head: str
    cell: Callable[[Results, ModelResult], str]
    left: bool = False
    short: bool = False  # in the narrow table of the terminal too


def columns(results: Results) -> list[Column]:
    """The columns of a comparison. Those for a baseline or probes are there where the comparison has them."""
    chosen = [
        Column("#", lambda r, m: str(m.rank or NONE), short=True),
        Column("model", lambda r, m: m.name, left=True, short=True),
        Column(f"{scored_split(results)} loss", lambda r, m: with_spread(m.last), short=True),
        Column("best", lambda r, m: with_spread(m.best)),
        Column("bits/byte", lambda r, m: with_spread(m.bits_per_byte)),
    ]
    if results.baseline is not None:
        whose = "its" if results.against == results.baseline else f"{results.baseline}'s"
        chosen += [
            Column(f"minus {results.against} [95 %]", _difference, short=True),
            Column("verdict", lambda r, m: _verdict(m, "verdict"), left=True, short=not results.corrected),
        ]
        if results.corrected:
            chosen += [
                Column("p (Holm)", lambda r, m: probability(m.difference.p_holm if m.difference else None)),
                Column("verdict (Holm)", lambda r, m: _verdict(m, "settled"), left=True, short=True),
            ]
        chosen += [
            Column(f"tokens to {whose} loss", lambda r, m: _count(m.tokens_to_baseline)),
            Column(f"s to {whose} loss", lambda r, m: _count(m.seconds_to_baseline)),
        ]
    if results.published:
        chosen += [
            Column("last, validation", lambda r, m: _validation(m, 0)),
            Column("last, published", lambda r, m: _published(r, m, "last")),
            Column("best, validation", lambda r, m: _validation(m, 1)),
            Column("best, published", lambda r, m: _published(r, m, "best")),
            Column("s, published", lambda r, m: _published(r, m, "seconds")),
        ]
    chosen += [
        Column("rate", lambda r, m: NONE if m.lr is None else f"{m.lr:g}"),
        *([Column("tokens a run", lambda r, m: _count(m.tokens))] if results.own_lengths else []),
        Column("parameters", lambda r, m: f"{m.parameters:,}"),
        Column("passes a layer", lambda r, m: NONE if m.passes_a_layer is None else f"{m.passes_a_layer:g}"),
        Column("tokens/s", lambda r, m: _count(m.tokens_per_second), short=True),
        Column("s a run", lambda r, m: _count(m.seconds)),
        Column("MB a step", lambda r, m: _count(m.memory_mb)),
    ]
    for name in dict.fromkeys(probe for model in results.models for probe in model.probes):
        chosen.append(Column(name, lambda r, m, name=name: _probe(m, name)))  # type: ignore[misc]
    if results.mixed_code:
        chosen.append(Column("code", lambda r, m: ", ".join(m.code), left=True, short=True))
    return [*chosen, Column("audit", _audit, short=True)]


def with_spread(figure: Spread | None) -> str:
    """Mean and standard deviation over the seeds."""
    if figure is None:
        return NONE
    return f"{figure.mean:.3f}" + ("" if figure.sd is None else f" ± {figure.sd:.3f}")


def _difference(results: Results, model: ModelResult) -> str:
    found = model.difference
    if found is None:
        return results.role(model) or NONE
    return with_interval(found)


def with_interval(found: Difference) -> str:
    """A difference and its 95 % interval."""
    return f"{found.mean:+.3f}" + ("" if found.low is None else f" [{found.low:+.3f}, {found.high:+.3f}]")


def probability(p: float | None) -> str:
    """As many places as a reader looks at."""
    return NONE if p is None else "< 0.001" if p < 0.001 else f"{p:.3f}"


def _verdict(model: ModelResult, which: str) -> str:
    if model.diverged:
        return "diverged"
    return NONE if model.difference is None else str(getattr(model.difference, which))


def _audit(results: Results, model: ModelResult) -> str:
    return NONE if model.audit is None else "passed" if model.passed else "FAILED"


def _validation(model: ModelResult, which: int) -> str:
    return NONE if model.validation is None else f"{model.validation[which]:.3f}"


def _published(results: Results, model: ModelResult, what: str) -> str:
    figure = results.published.get(model.name, {}).get(what)
    return NONE if figure is None else f"{figure:,.1f}" if what == "seconds" else f"{figure:.3f}"


def _count(value: float | None) -> str:
    return NONE if value is None else f"{value:,.0f}"


def _probe(model: ModelResult, name: str) -> str:
    probe = model.probes.get(name)
    return NONE if probe is None else f"{100 * probe.accuracy.mean:.0f} %"


def rows(results: Results, chosen: Sequence[Column] | None = None) -> list[tuple[ModelResult, list[str]]]:
    """The readable cells of every model, ranked ones first, in the chosen columns (all of them)."""
    chosen = columns(results) if chosen is None else chosen
    return [(model, [column.cell(results, model) for column in chosen]) for model in results.ranked()]


def struck(model: ModelResult) -> bool:
    """Whether a model is listed but struck out: its audit failed."""
    return model.audit is not None and not model.passed


def _heads(chosen: Sequence[Column]) -> list[Head]:
    return [Head(column.head, column.left) for column in chosen]


def terminal_table(results: Results) -> "Table":
    """For a console: the columns that matter most, as many as a hundred characters hold."""
    from rich.markup import escape

    chosen = [column for column in columns(results) if column.short]
    title = f"{results.title}: {results.budget}, seeds {', '.join(map(str, results.seeds))}"
    found = rows(results, chosen)
    styles = ["strike" if struck(m) else "bold" if m.name == results.baseline else None for m, _ in found]
    return tables.terminal_table(title, _heads(chosen), [list(map(escape, cells)) for _, cells in found], styles)


def markdown_table(results: Results) -> str:
    """For a README."""
    cells = [[f"~~{c}~~" for c in of_model] if struck(m) else of_model for m, of_model in rows(results)]
    return tables.markdown_table(_heads(columns(results)), cells)


def latex_table(results: Results) -> str:
    """For a paper: a tabular for the package booktabs, rows struck out with \\sout of ulem."""
    chosen = columns(results)
    lines = [
        "% needs \\usepackage{booktabs} and, for struck rows, \\usepackage[normalem]{ulem}",
        f"\\begin{{tabular}}{{{''.join('l' if c.left else 'r' for c in chosen)}}}",
        "\\toprule",
        " & ".join(_latex(c.head) for c in chosen) + r" \\",
        "\\midrule",
    ]
    for model, cells in rows(results):
        lines.append(" & ".join(f"\\sout{{{_latex(c)}}}" if struck(model) else _latex(c) for c in cells) + r" \\")
    return "\n".join([*lines, "\\bottomrule", "\\end{tabular}"]) + "\n"


def _latex(text: str) -> str:
    for plain, escaped in (("\\", r"\textbackslash{}"), ("%", r"\%"), ("#", r"\#"), ("_", r"\_"), ("&", r"\&"),
                           ("±", r"$\pm$"), ("<", "$<$")):  # fmt: skip
        text = text.replace(plain, escaped)
    return text


def csv_table(results: Results) -> str:
    """Every figure in full, one line a model, for other programs."""
    names = ("loss", "loss_sd", "best_loss", "best_loss_sd", "bits_per_byte", "bits_per_byte_sd")
    probes = list(dict.fromkeys(probe for model in results.models for probe in model.probes))
    beside = ["validation_last", "validation_best", *(f"published_{what}" for what in PUBLISHED)]
    beside = beside if results.published else []
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(
        ["rank", "model", "variant", "preset", "lr", *names, "difference", "low", "high", "verdict", "p", "p_holm",
         "verdict_holm", "parent", "parameters",
         "passes_a_layer", "tokens_per_second", "seconds", "memory_mb", "tokens_to_baseline", "seconds_to_baseline",
         "reached", *(f"probe_{name}" for name in probes), "audit", "code", *beside]
    )  # fmt: skip
    for m in results.ranked():
        tested = ("mean", "low", "high", "verdict", "p", "p_holm", "verdict_holm")
        spreads = [value for s in (m.last, m.best, m.bits_per_byte) for value in ((s.mean, s.sd) if s else ("", ""))]
        d, own = m.difference, results.published.get(m.name, {})
        writer.writerow(
            [m.rank or "", m.name, m.variant, m.preset or "", _blank(m.lr), *map(_blank, spreads),
             *(_blank(getattr(d, name, None)) for name in tested), m.parent or "", m.parameters,
             *map(_blank, (m.passes_a_layer, m.tokens_per_second, m.seconds, m.memory_mb, m.tokens_to_baseline,
             m.seconds_to_baseline)), m.reached,
             *(m.probes[name].accuracy.mean if name in m.probes else "" for name in probes),
             "" if m.audit is None else "passed" if m.passed else "failed", ", ".join(m.code),
             *([*(m.validation or ("", "")), *(own.get(what, "") for what in PUBLISHED)] if beside else ())]
        )  # fmt: skip
    return text.getvalue()


def _blank(value: Any) -> Any:
    return "" if value is None else value
