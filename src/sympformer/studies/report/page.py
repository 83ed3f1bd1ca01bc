"""The report as one page: no other file, no network, readable on a phone, light and dark."""

from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

from sympformer.atomic import write_file
from sympformer.errors import InputError
from sympformer.studies.report import sections
from sympformer.studies.report.markup import Html, joined, tag
from sympformer.studies.report.ranking_table import ranking_table
from sympformer.studies.report.sentences import compared, reasons, verdict
from sympformer.studies.results import Results
from sympformer.studies.results.plots import Picture, pictures

# The browser itself refuses to load anything, whatever the page should come to hold.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"

Drawn = Sequence[Picture]
SECTIONS = {
    "figures": "Figures",
    "plots": "Plots",
    "rates": "Learning rates",
    "samples": "Samples",
    "audits": "Audits",
    "notes": "Notes",
    "origin": "Origin",
}


def write_report(results: Results, file: Path, drawn: Drawn | None = None) -> None:
    """Write the report of a comparison as one HTML file. A folder that cannot be made is found before the work."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        write_file(file, page(results, drawn))
    except OSError as error:
        raise InputError(f"cannot write the report {file}: {error.strerror or error}") from error


def page(results: Results, drawn: Drawn | None = None) -> Html:
    """The whole page. drawn: its plots, where they are drawn already."""
    body = _body(results, pictures(results) if drawn is None else drawn)
    return joined([Html("<!doctype html>\n"), tag("html", _head(results), body, lang="en"), "\n"])


def _head(results: Results) -> Html:
    return tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=POLICY),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", results.title),
        tag("style", _asset("style.css")),
    )


def _body(results: Results, drawn: Drawn) -> Html:
    links = [tag("a", title, href=f"#{name}") for name, title in SECTIONS.items()]
    theme = tag("button", "Light / dark", type="button", id="theme")
    header = tag(
        "header",
        tag("h1", results.title),
        tag("p", verdict(results), class_="verdict"),
        tag("p", " ".join(reasons(results)), class_="reasons") if reasons(results) else "",
        tag("p", " ".join(compared(results)), class_="compared"),
        tag("nav", *links, theme, aria_label="Sections"),
    )
    contents = {"figures": ranking_table(results), "plots": sections.plots(drawn)} | {
        section.__name__: section(results)
        for section in (sections.rates, sections.samples, sections.audits, sections.notes, sections.origin)
    }
    parts = [tag("section", tag("h2", title), contents[name], id=name) for name, title in SECTIONS.items()]
    return tag("body", header, tag("main", *parts), tag("script", _asset("script.js")))


def _asset(name: str) -> Html:
    return Html(files("sympformer.studies.report").joinpath(name).read_text(encoding="utf-8"))
