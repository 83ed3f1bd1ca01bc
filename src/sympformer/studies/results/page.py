"""The page of a comparison: one HTML file that needs nothing else, readable on a phone, light and dark. Beside it the
tables and plots as files of their own."""

import base64
import json
from collections.abc import Iterator, Sequence
from itertools import product, zip_longest
from pathlib import Path
from typing import Any

import yaml

from sympformer.files import tidy, write
from sympformer.pages import Html, document, joined, tag, theme_button, write_page
from sympformer.progress import steps_with_progress
from sympformer.studies.results import tables
from sympformer.studies.results.plots import UNITS, X_LABELS, Picture, pictures, style
from sympformer.studies.results.results import FILE, NOT_SHOWN, ModelResult, Results
from sympformer.studies.results.tables import Column, Table, tables_of

PAGE = "report.html"
DASH = "\N{EN DASH}"
PLOTS = ("ranking", *(f"loss-{against.replace(' ', '-')}" for against in X_LABELS), "layers")
OURS = [*product(("table", "effects", "interactions", "ablation", "rates"), ("csv", "md", "tex"))]
OURS += product(PLOTS, ("svg", "png"))
MOODS = {"better": "better", NOT_SHOWN: "same", "passed": "same"} | dict.fromkeys(
    ("worse", "diverged", "FAILED", "failed audit", "not audited"), "worse"
)


def write_all(results: Results, folder: Path) -> Path:
    """Write results.json, tables, plots and the page; returns the page's path. Those of an earlier result go."""
    contents: dict[str, str | bytes] = {FILE: results.to_json()}
    for table in tables_of(results):
        forms = {"csv": tables.as_csv, "md": tables.markdown, "tex": tables.latex}
        contents |= {f"{table.name}.{end}": form(table) for end, form in forms.items()}
    drawn = pictures(results)
    for i in steps_with_progress(len(drawn), "plotting"):
        contents |= {f"{drawn[i].name}.svg": drawn[i].svg, f"{drawn[i].name}.png": drawn[i].png}
    contents[PAGE] = page(results, drawn)
    folder.mkdir(parents=True, exist_ok=True)
    tidy(folder)
    for name in {".".join(parts) for parts in OURS} - contents.keys():
        (folder / name).unlink(missing_ok=True)
    for name, content in contents.items():
        write(folder / name, content)
    return folder / PAGE


def write_report(results: Results, file: Path) -> None:
    write_page(file, lambda: page(results, pictures(results)), "the report")


def show(results: Results, samples: bool = False) -> None:
    """The tables on the terminal, with the notes; samples: a text of every model too."""
    from rich.console import Console

    console = Console(highlight=False)
    wide = console if console.is_terminal else Console(highlight=False, width=160)
    for table in tables_of(results):
        if table.heads(short=True):
            wide.print(tables.terminal(table))
    for note in results.notes:
        console.print(f"- {note}", markup=False)
    for model in results.ranked() if samples else ():
        for sample in model.samples[:1]:
            console.print(f"\n{model.name}:", style="bold", markup=False)
            console.print(sample["text"], markup=False)


def page(results: Results, drawn: Sequence[Picture]) -> Html:
    first, *others = tables_of(results)
    notes = [*results.notes, *(f"{model.name}: {why}" for model in results.models for why in model.diverged if why)]
    rest = [*first.heads()[:2], *(column for column in first.heads() if not column.short)]
    more = tag("details", tag("summary", "More figures"), _table(results, first, rest), open=True)
    parts = {
        "Figures": joined([_table(results, first, first.heads(short=True)), more]),
        **{table.title: _table(results, table, table.heads()) for table in others},
        "Plots": joined(map(_plot, drawn)),
        "Samples": _samples(results),
        "Audits": joined(_audits(results)),
        "Notes": tag("ul", *(tag("li", note) for note in notes)) if notes else "",
        "Origin": _origin(results),
    }
    shown = {title: part for title, part in parts.items() if part}
    ids = {title: title.lower().replace(" ", "-") for title in shown}
    header = tag(
        "header",
        tag("h1", results.title),
        tag("p", verdict(results), class_="verdict"),
        tag("p", first.title, class_="compared"),
        tag("nav", *(tag("a", title, href=f"#{ids[title]}") for title in shown), theme_button(), aria_label="Sections"),
    )
    sections = [tag("section", tag("h2", title), part, id=ids[title]) for title, part in shown.items()]
    return document(results.title, header, tag("main", *sections))


def verdict(results: Results) -> Html:
    """The outcome in two sentences: the best model, and how the others do beside the reference."""
    ranked = [model for model in results.ranked() if model.rank is not None]
    if not ranked:
        return Html("No model has a figure that counts.")
    best, measure = ranked[0], next((model for model in results.models if model.name == results.against), None)
    opening = ["Best is ", tag("strong", best.name), f" with {results.mean(best):.3f} {UNITS[results.metric]}"]
    if measure is None:
        return joined([*opening, "."])
    if (state := results.state(measure)) != "ranked":
        return joined([*opening, f". {measure.name} is no measure for the others ({state})."])
    found = best.difference
    gap = f", the {results.role(best)} itself" if best is measure else ""
    if found is not None:
        interval = "" if found.low is None else _minus(f" (95 % interval {found.low:+.3f} to {found.high:+.3f})")
        gap = f", {abs(found.mean):.3f} {'below' if found.mean < 0 else 'above'} {measure.name}{interval}"
    said = [tables.verdict(results, m, m.difference, measure.name, alone=False) for m in ranked if m.difference]
    better, worse, same = (said.count(words) for words in ("better", "worse", NOT_SHOWN))
    after = ", after Holm's correction" if results.corrected else ""
    counts = f" Of {len(said)} others {better} are better than {measure.name}, {worse} worse; {same} show no difference"
    return joined([*opening, gap, ".", f"{counts}{after}." if said else ""])


# --- tables


def _table(results: Results, table: Table, columns: Sequence[Column]) -> Html:
    """Rows with a rank, or of no model, in a part that sorts; models without one below it, where they stay."""
    heads = [
        tag(
            "th", tag("button", column.head, type="button", title=column.title), scope="col",
            class_="words" if column.words else "figure", aria_sort="none",
        )
        for column in columns
    ]  # fmt: skip
    parts = {"ranked": [], "unranked": []}  # type: dict[str, list[Html]]
    for row in table.rows:
        state = results.state(row) if isinstance(row, ModelResult) else "ranked"
        parts["ranked" if state == "ranked" else "unranked"].append(_row(results, table, row, columns))
    bodies = [tag("tbody", *rows, class_=name) for name, rows in parts.items() if rows]
    whole = tag("table", tag("thead", tag("tr", *heads)), *bodies, class_="sortable")
    box = tag("div", whole, class_="wide", tabindex="0", role="region", aria_label=f"{table.title}; heads sort")
    return joined([tag("p", table.reading) if table.reading else "", box])


def _row(results: Results, table: Table, row: Any, columns: Sequence[Column]) -> Html:
    cells = []
    for column in columns:
        text, figures = column.cell(row)
        key = "" if figures[0] is None else figures[0]
        kind = "words wrap" if column.wrap else "words" if column.words else "figure"
        if column.head == "model":
            cells.append(tag("th", name_of(results, row), class_=kind, data_sort=key, scope="row"))
        else:
            cells.append(tag("td", _shown(text, column.words), class_=kind, data_sort=key))
    return tag("tr", *cells, class_=table.mark(row))


def _shown(text: str, words: bool) -> object:
    """With true minus signs and a dash for nothing; verdicts in their colours."""
    if text == tables.NONE:
        return DASH
    mood = MOODS.get(text.removesuffix(" together"))
    return tag("span", text, class_=mood) if mood else text if words else _minus(text)


def _minus(text: str) -> str:
    return text.replace("-", "\N{MINUS SIGN}")


def name_of(results: Results, model: ModelResult) -> Html:
    """A model's name beside its colour; struck out where its audit failed."""
    dot = tag("i", class_="dot", style=f"color:{style(results, model)['color']}")
    return joined([dot, tag("s", model.name) if results.state(model) == "failed audit" else model.name])


# --- the other parts


def _plot(picture: Picture) -> Html:
    data = base64.b64encode(picture.svg.encode()).decode()
    image = tag("img", src=f"data:image/svg+xml;base64,{data}", alt=picture.heading)
    box = tag("div", image, class_="wide plot", tabindex="0")
    return tag("figure", tag("h3", picture.heading), box, tag("figcaption", picture.caption))


def _samples(results: Results) -> Html:
    """What the models write, side by side; the first draw on show, further ones behind a click."""
    models = [model for model in results.ranked() if model.samples]
    grids = []
    for draw in zip_longest(*(model.samples for model in models)):
        cards = [_card(results, *pair) for pair in zip(models, draw, strict=True) if pair[1] is not None]
        grids.append(tag("div", *cards, class_="cards"))
    further = [tag("details", tag("summary", f"Draw {k}"), grid) for k, grid in enumerate(grids[1:], start=2)]
    return joined([*grids[:1], *further])


def _card(results: Results, model: ModelResult, sample: dict[str, str]) -> Html:
    prompt, text, state = sample["prompt"], sample["text"], results.state(model)
    rest = text.removeprefix(prompt) if text.startswith(prompt) else f" {text}"
    note = "" if state == "ranked" else tag("small", f" {state}")
    return tag("article", tag("h4", name_of(results, model), note), tag("p", tag("b", prompt), rest), class_="card")


def _audits(results: Results) -> Iterator[Html]:
    """The checks of every model for information from the future, worst of the seeds; failed ones first and open."""
    heads = tag(
        "tr", *(tag("th", head) for head in ("check", "weights", "deviation", "allowed", "first", "result", ""))
    )
    for model in sorted(results.ranked(), key=lambda model: model.passed):
        outcome = "not audited" if model.audit is None else "passed" if model.passed else "FAILED"
        head = tag("summary", name_of(results, model), ": ", tag("span", outcome, class_=MOODS[outcome]))
        rows = []
        for row in (model.audit or {"rows": []})["rows"]:
            result = "not tried" if row["deviation"] is None else "passed" if row["passed"] else "FAILED"
            figures = [None if row[key] is None else f"{float(row[key]):.1e}" for key in ("deviation", "tolerance")]
            cells = [row["check"], row["weights"], *figures, row.get("first_position"), result, row.get("note")]
            rows.append(tag("tr", *(tag("td", DASH if one is None else _shown(str(one), True)) for one in cells)))
        table = tag("table", tag("thead", heads), tag("tbody", *rows))
        yield tag("details", head, tag("div", table, class_="wide", tabindex="0"), open=outcome == "FAILED")


def _origin(results: Results) -> Html:
    """Where, on what and from which recipe the results were made."""
    facts = {**results.environment, "data": results.data}
    entries = [
        tag("dt", key) + tag("dd", value if isinstance(value, str) else json.dumps(value))
        for key, value in facts.items()
    ]
    plain = json.loads(json.dumps(results.config))  # as results.json has it: no tuples
    text = yaml.safe_dump(plain, sort_keys=False, allow_unicode=True)
    recipe = tag("details", tag("summary", "Configuration"), tag("pre", tag("code", text), tabindex="0"))
    return joined([tag("dl", *map(Html, entries)), recipe])
