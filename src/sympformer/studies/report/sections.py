"""The parts of the report below the table: plots, learning rates, samples, audits, notes, origin."""

import json
from collections.abc import Iterable, Sequence
from itertools import zip_longest
from typing import Any

import yaml

from sympformer.pages.markup import Html, joined, tag
from sympformer.progress import steps_with_progress
from sympformer.studies.report.figures import MINUS, NONE, counted, number, scientific
from sympformer.studies.report.plot_markup import inline_svg
from sympformer.studies.report.ranking_table import name_of
from sympformer.studies.results import NOT_SHOWN, ModelResult, Results
from sympformer.studies.results.plot_style import state_of
from sympformer.studies.results.plots import Picture
from sympformer.studies.results.sheets import Sheet, sheets


def plots(drawn: Sequence[Picture]) -> Html:
    """Every plot with its caption."""
    return joined(
        tag(
            "figure",
            tag("h3", drawn[i].heading),
            tag("div", inline_svg(drawn[i].svg, drawn[i].name, drawn[i].heading), class_="wide plot", tabindex="0"),
            tag("figcaption", drawn[i].caption),
        )
        for i in steps_with_progress(len(drawn), "drawing")
    )


def effects(results: Results) -> Html:
    """What the levels of a factorial's factors do, and two of them together; nothing where there are none."""
    return joined(_sheet(sheet) for sheet in sheets(results) if sheet.name != "ablation")


def ablation(results: Results) -> Html:
    """Every change to a parent; nothing where no model names one."""
    return joined(_sheet(sheet) for sheet in sheets(results) if sheet.name == "ablation")


def _sheet(sheet: Sheet) -> Html:
    kinds = ["words" if head.left else "figure" for head in sheet.heads]
    heads = [tag("th", head.text, scope="col", class_=kind) for head, kind in zip(sheet.heads, kinds, strict=True)]
    rows = [tag("tr", *map(_sheet_cell, cells, kinds)) for cells in sheet.rows]
    table = tag("table", tag("thead", tag("tr", *heads)), tag("tbody", *rows))
    return joined([tag("h3", sheet.title), tag("p", sheet.reading), tag("div", table, class_="wide", tabindex="0")])


def _sheet_cell(text: str, kind: str) -> Html:
    verdict = text.removesuffix(" together")
    shown: object = NONE if text == "-" else text.replace("-", MINUS) if kind == "figure" else text
    if kind == "words" and verdict in ("better", "worse", NOT_SHOWN):
        shown = tag("span", text, class_="same" if verdict == NOT_SHOWN else verdict)
    return tag("td", shown, class_=kind)


def rates(results: Results) -> Html:
    """Validation loss at every learning rate that was tried, the chosen one marked."""
    tried = sorted({rate for model in results.models for rate in model.rates}, key=float)
    heads = ["model", *(tried or ["rate"]), "variant", "preset"]
    words = ("model", "variant", "preset")
    head = tag("tr", *(tag("th", h, scope="col", class_="words" if h in words else "figure") for h in heads))
    rows = [tag("tr", *_rate_cells(results, model, tried)) for model in results.ranked()]
    intro = "Validation loss after the short runs that choose the rate; the chosen rate is marked."
    return joined(
        [
            tag("p", intro if tried else "Each model was given its learning rate; none was chosen."),
            tag("div", tag("table", tag("thead", head), tag("tbody", *rows)), class_="wide", tabindex="0"),
        ]
    )


def _rate_cells(results: Results, model: ModelResult, tried: list[str]) -> list[Html]:
    figures = [_rate_cell(model, rate) for rate in tried]
    if not tried:
        figures = [tag("td", NONE if model.lr is None else f"{model.lr:g}", class_="figure")]
    return [
        tag("th", name_of(results, model), scope="row", class_="words"),
        *figures,
        tag("td", model.variant, class_="words first"),
        tag("td", model.preset or NONE, class_="words"),
    ]


def _rate_cell(model: ModelResult, rate: str) -> Html:
    """The loss at a rate; a model with a rate of its own shows nothing but "given" there."""
    chosen = model.lr is not None and float(rate) == model.lr
    if rate not in model.rates:
        return tag("td", "given" if chosen else "", class_="figure")
    loss = model.rates[rate]
    if loss is None:
        return tag("td", "diverged", class_="figure worse")
    return tag("td", tag("mark", number(loss), title="chosen") if chosen else number(loss), class_="figure")


def samples(results: Results) -> Html:
    """What the models write, side by side; the first draw on show, further ones behind a click."""
    models = [model for model in results.ranked() if model.samples]
    grids = [
        [_card(results, model, sample) for model, sample in zip(models, draw, strict=True) if sample is not None]
        for draw in zip_longest(*(model.samples for model in models))
    ]
    if not grids:
        return tag("p", "There are no samples.")
    first, *others = [tag("div", *cards, class_="cards") for cards in grids]
    further = [tag("details", tag("summary", f"Draw {k}"), grid) for k, grid in enumerate(others, start=2)]
    return joined([tag("p", "The same prompt and the same draws for every model; first seed."), first, *further])


def _card(results: Results, model: ModelResult, sample: dict[str, str]) -> Html:
    prompt, text = sample["prompt"], sample["text"]
    rest = text.removeprefix(prompt) if text.startswith(prompt) else f" {text}"
    state = state_of(results, model)
    note = "" if state == "ranked" else joined([" ", tag("small", state)])
    return tag("article", tag("h4", name_of(results, model), note), tag("p", tag("b", prompt), rest), class_="card")


def audits(results: Results) -> Html:
    """The rows of every model's audit; failed ones are open."""
    found = [model for model in results.ranked() if model.audit is not None]
    missing = [model.name for model in results.models if model.audit is None]
    parts: list[Html] = [_audit(results, model) for model in sorted(found, key=lambda model: model.passed)]
    if missing:
        parts.append(tag("p", f"Not audited: {', '.join(missing)}."))
    intro = (
        "Every trained model is tested for information from the future: later tokens must not move earlier logits. "
        "Shown is the worst of the seeds."
    )
    return joined([tag("p", intro), *parts])


def _audit(results: Results, model: ModelResult) -> Html:
    audit: dict[str, Any] = model.audit or {}
    rows = audit["rows"]
    tried = [float(row["deviation"]) for row in rows if row["deviation"] is not None]
    outcome = tag("span", "passed" if model.passed else "failed", class_="same" if model.passed else "worse")
    largest = f", largest deviation {scientific(max(tried))}" if tried else ""
    head = tag(
        "summary", name_of(results, model), ": ", outcome, tag("small", f" {counted(len(tried), 'check')}{largest}")
    )
    heads = ("check", "weights", "deviation", "allowed", "first position", "result", "note")
    figures = ("deviation", "allowed", "first position")
    top = tag("tr", *(tag("th", h, scope="col", class_="figure" if h in figures else "words") for h in heads))
    body = [tag("tr", *_audit_cells(row)) for row in rows]
    table = tag("div", tag("table", tag("thead", top), tag("tbody", *body)), class_="wide", tabindex="0")
    return tag("details", head, table, open=not model.passed)


def _audit_cells(row: dict[str, Any]) -> Iterable[Html]:
    result = "not tried" if row["deviation"] is None else "passed" if row["passed"] else "failed"
    position = row.get("first_position")
    yield tag("td", row["check"], class_="words")
    yield tag("td", row["weights"], class_="words")
    yield tag("td", scientific(row["deviation"]), class_="figure")
    yield tag("td", scientific(row["tolerance"]), class_="figure")
    yield tag("td", NONE if position is None else position, class_="figure")
    yield tag("td", tag("span", result, class_="worse" if result == "failed" else "same"), class_="words")
    yield tag("td", row.get("note", ""), class_="words")


def notes(results: Results) -> Html:
    """What a reader should know before believing the figures."""
    troubles = [f"{model.name}: {why}" for model in results.models for why in model.diverged if why]
    return tag("ul", *(tag("li", note) for note in [*results.notes, *troubles]))


def _recipe(results: Results) -> Html:
    """The comparison's config, as YAML."""
    plain = json.loads(json.dumps(results.config))  # as results.json has it: no tuples
    text = yaml.safe_dump(plain, sort_keys=False, allow_unicode=True)
    return tag("details", tag("summary", "Configuration"), tag("pre", tag("code", text), tabindex="0"))


def origin(results: Results) -> Html:
    """Where, on what and from which recipe the results were made."""
    entries = [
        joined([tag("dt", key), tag("dd", value if isinstance(value, str) else json.dumps(value))])
        for key, value in {**results.environment, "data": results.data}.items()
    ]
    return joined([tag("dl", *entries), _recipe(results)])
