"""The report as one page: no other file, no network, readable on a phone, light and dark."""

from collections.abc import Callable
from importlib.resources import files
from pathlib import Path

from sympformer.atomic import write_file
from sympformer.errors import InputError
from sympformer.experiments.compare.results import Results
from sympformer.experiments.report import sections
from sympformer.experiments.report.markup import Html, joined, tag
from sympformer.experiments.report.ranking_table import ranking_table
from sympformer.experiments.report.words import compared, verdict

# The browser itself refuses to load anything, whatever the page should come to hold.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"

SECTIONS: dict[str, tuple[str, Callable[[Results], Html]]] = {
    "figures": ("Figures", ranking_table),
    "plots": ("Plots", sections.plots),
    "rates": ("Learning rates", sections.rates),
    "samples": ("Samples", sections.samples),
    "audits": ("Audits", sections.audits),
    "notes": ("Notes", sections.notes),
    "origin": ("Origin", lambda results: joined([sections.environment(results), sections.config(results)])),
}


def write_report(results: Results, file: Path) -> None:
    """Write the report of a comparison as one HTML file. A folder that cannot be made is found before the work."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        write_file(file, page(results))
    except OSError as error:
        raise InputError(f"cannot write the report {file}: {error.strerror or error}") from error


def page(results: Results) -> Html:
    """The whole page."""
    return joined([Html("<!doctype html>\n"), tag("html", _head(results), _body(results), lang="en"), "\n"])


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


def _body(results: Results) -> Html:
    links = [tag("a", title, href=f"#{name}") for name, (title, _) in SECTIONS.items()]
    theme = tag("button", "Light / dark", type="button", id="theme")
    header = tag(
        "header",
        tag("h1", results.title),
        tag("p", verdict(results), class_="verdict"),
        tag("p", " ".join(compared(results)), class_="compared"),
        tag("nav", *links, theme, aria_label="Sections"),
    )
    parts = [tag("section", tag("h2", title), make(results), id=name) for name, (title, make) in SECTIONS.items()]
    return tag("body", header, tag("main", *parts), tag("script", _asset("script.js")))


def _asset(name: str) -> Html:
    return Html(files("sympformer.experiments.report").joinpath(name).read_text(encoding="utf-8"))
