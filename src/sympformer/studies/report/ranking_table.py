"""The tables of the report: one row a model, sortable by any column."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import groupby

from sympformer.pages.markup import Html, joined, tag
from sympformer.studies.report.figures import NONE, interval, number, percent, plain, signed, spread
from sympformer.studies.results import ModelResult, Results, Spread
from sympformer.studies.results.plot_style import look_of, scored_split, state_of
from sympformer.studies.results.tables import probability

Key = float | str | None  # what a column sorts by; None: nothing there, always last


@dataclass(frozen=True)
class Column:
    """A column: the group it stands in, its head, and what a model's cell shows and sorts by."""

    group: str
    head: str
    cell: Callable[[ModelResult], tuple[object, Key]]
    kind: str = "figure"  # or "words"
    title: str | None = None  # the head in full


def ranking_table(results: Results) -> Html:
    """What decides, in a table that fits a laptop's screen; below it everything else that was measured."""
    rest = tag(
        "details", tag("summary", "More figures"), _table(results, list(_more(results)), "More figures"), open=True
    )
    return joined([_table(results, list(_columns(results)), "Figures"), rest])


def _table(results: Results, columns: list[Column], what: str) -> Html:
    """Ranked models in a part that sorts; the others below it, where they stay."""
    ranked = [model for model in results.ranked() if model.rank is not None]
    others = [model for model in results.ranked() if model.rank is None]
    bodies = [
        tag("tbody", *(_row(results, columns, model) for model in models), class_=name)
        for name, models in (("ranked", ranked), ("unranked", others))
        if models
    ]
    table = tag("table", _head(columns), *bodies, class_="sortable")
    label = f"{what} of every model; a button in each column head sorts"
    return tag("div", table, class_="wide", tabindex="0", role="region", aria_label=label)


def _names(results: Results) -> Iterator[Column]:
    yield Column("", "#", lambda m: (m.rank or NONE, m.rank), title="rank")
    yield Column("", "model", lambda m: (name_of(results, m), m.name), "words")


def _columns(results: Results) -> Iterator[Column]:
    """What the ranking and the reading are about."""
    yield from _names(results)
    data = f"{scored_split(results)} data"
    yield Column(data, "loss", lambda m: _spread(m.last), title="nats per token, last weights")
    yield Column(data, "bits/byte", lambda m: _spread(m.bits_per_byte))
    if results.baseline is not None:
        against = f"minus {results.against}"
        yield Column(against, "difference [95 %]", lambda m: _difference(results, m))
        yield Column(
            against,
            "verdict (Holm)" if results.corrected else "verdict",
            lambda m: _verdict(results, m),
            "words",
            "after Holm's correction for all differences of the family" if results.corrected else None,
        )
        to = f"to {results.baseline}'s final loss"
        yield Column(to, "tokens", lambda m: _reach(results, m, m.tokens_to_baseline))
        yield Column(
            to, "s", lambda m: _reach(results, m, m.seconds_to_baseline), title="seconds at the measured speed"
        )
    yield Column("", "tokens/s", lambda m: (number(m.tokens_per_second, 0), m.tokens_per_second))
    yield Column("", "audit", _audit, "words")


def _more(results: Results) -> Iterator[Column]:
    yield from _names(results)
    yield Column(f"{scored_split(results)} data", "best", lambda m: _spread(m.best), title="loss of the best weights")
    if results.corrected:
        against = f"minus {results.against}, p"
        yield Column(against, "alone", lambda m: _p(m, "p"), title="two-sided, of this difference by itself")
        yield Column(against, "Holm", lambda m: _p(m, "p_holm"), title="after Holm's correction for the family")
    if results.own_lengths:
        yield Column("cost", "tokens", lambda m: (number(m.tokens, 0), m.tokens), title="training tokens of a run")
    yield Column("cost", "parameters", lambda m: (number(m.parameters, 0), m.parameters))
    yield Column(
        "cost", "passes", lambda m: (plain(m.passes_a_layer), m.passes_a_layer), title="kernel passes a layer, counted"
    )
    yield Column("cost", "MB", lambda m: (number(m.memory_mb, 0), m.memory_mb), title="memory of a training step")
    for probe in dict.fromkeys(name for model in results.models for name in model.probes):
        yield Column("probes, % right", probe, lambda m, probe=probe: _probe(m, probe), title=_chance(results, probe))  # type: ignore[misc]
    if results.mixed_code:
        yield Column("", "code", lambda m: (", ".join(m.code) or NONE, ", ".join(m.code) or None), "words")


def name_of(results: Results, model: ModelResult) -> Html:
    """A model's name beside its colour; struck out where its audit failed."""
    state = state_of(results, model)
    dot = tag("i", class_=f"dot {look_of(results, model)[0]}{' hollow' if model.preset == 'paper' else ''}")
    return joined([dot, tag("s", model.name) if state == "failed audit" else model.name])


def _spread(figure: Spread | None) -> tuple[object, Key]:
    return spread(figure), None if figure is None else figure.mean


def _difference(results: Results, model: ModelResult) -> tuple[object, Key]:
    found = model.difference
    if found is None:
        return (results.role(model) or NONE), (0.0 if model.name == results.against else None)
    return joined([signed(found.mean), tag("small", interval(found))], " "), found.mean


def _verdict(results: Results, model: ModelResult) -> tuple[object, Key]:
    if model.diverged:
        return tag("span", "diverged", class_="worse", title="; ".join(model.diverged)), "diverged"
    if model.difference is None:
        return NONE, None
    if (state := state_of(results, model)) != "ranked":
        return tag("span", state, class_="worse"), state
    words = model.difference.settled
    return tag("span", words, class_=words if words in ("better", "worse") else "same"), words


def _p(model: ModelResult, which: str) -> tuple[object, Key]:
    p = None if model.difference is None else getattr(model.difference, which)
    return (NONE if p is None else probability(p)), p


def _reach(results: Results, model: ModelResult, value: float | None) -> tuple[object, Key]:
    """Where only some seeds arrive there is no mean; how many did is said instead."""
    if value is not None:
        return number(value, 0), value
    partly = f"{model.reached} of {len(results.seeds)} seeds"
    return (tag("small", partly) if model.reached else NONE), None


def _probe(model: ModelResult, name: str) -> tuple[object, Key]:
    probe = model.probes.get(name)
    return (NONE, None) if probe is None else (percent(probe.accuracy.mean), probe.accuracy.mean)


def _chance(results: Results, name: str) -> str:
    probe = next(model.probes[name] for model in results.models if name in model.probes)
    return f"{probe.items} items; guessing gives {percent(probe.chance)} %"


def _audit(model: ModelResult) -> tuple[object, Key]:
    if model.audit is None:
        return NONE, None
    words = "passed" if model.passed else "failed"
    return tag("span", words, class_="same" if model.passed else "worse"), words


def _head(columns: list[Column]) -> Html:
    groups = [
        tag(
            "th",
            group,
            colspan=len(list(members)),
            scope="colgroup" if group else None,
            class_="group" if group else None,
        )
        for group, members in groupby(columns, key=lambda column: column.group)
    ]
    heads = [
        tag(
            "th",
            tag("button", column.head, type="button", title=column.title),
            scope="col",
            class_=column.kind + (" first" if _opens(columns, i) else ""),
            aria_sort="ascending" if i == 0 else "none",
        )
        for i, column in enumerate(columns)
    ]
    return tag("thead", tag("tr", *groups, class_="groups"), tag("tr", *heads))


def _opens(columns: list[Column], i: int) -> bool:
    """Whether a column is the first of its group."""
    return i > 1 and columns[i].group != columns[i - 1].group


def _row(results: Results, columns: list[Column], model: ModelResult) -> Html:
    cells = []
    for i, column in enumerate(columns):
        shown, key = column.cell(model)
        kind = column.kind + (" first" if _opens(columns, i) else "")
        name = "th" if column.head == "model" else "td"
        cells.append(
            tag(name, shown, class_=kind, data_sort="" if key is None else key, scope="row" if name == "th" else None)
        )
    classes = ["baseline"] if model.name == results.baseline else []
    classes += ["struck"] if state_of(results, model) == "failed audit" else []
    return tag("tr", *cells, class_=" ".join(classes) or None, data_model=results.models.index(model))
