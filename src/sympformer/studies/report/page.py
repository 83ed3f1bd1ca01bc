"""The report as one page: no other file, no network, readable on a phone, light and dark."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from sympformer.pages.document import asset, document, theme_button, write_page
from sympformer.pages.markup import Html, joined, tag
from sympformer.studies.report import sections
from sympformer.studies.report.ranking_table import ranking_table
from sympformer.studies.report.sentences import compared, reasons, verdict
from sympformer.studies.results import Results
from sympformer.studies.results.plots import Picture, pictures

Drawn = Sequence[Picture]
Links = Mapping[str, str]  # model -> a page beside the report
SECTIONS = {
    "figures": "Figures",
    "effects": "Effects",
    "ablation": "Ablation",
    "plots": "Plots",
    "rates": "Learning rates",
    "samples": "Samples",
    "audits": "Audits",
    "notes": "Notes",
    "origin": "Origin",
}


def write_report(results: Results, file: Path, drawn: Drawn | None = None, links: Links | None = None) -> None:
    """Write the report of a comparison as one HTML file."""
    write_page(file, lambda: page(results, drawn, links), "the report")


def page(results: Results, drawn: Drawn | None = None, links: Links | None = None) -> Html:
    """The whole page. drawn: its plots, where they are drawn already. links: pages of models at work, if any."""
    body = _body(results, pictures(results) if drawn is None else drawn, links or {})
    style, script = asset(__package__, "style.css"), asset(__package__, "script.js")
    return document(results.title, *body, styles=[style], scripts=[script])


def _body(results: Results, drawn: Drawn, pages: Links) -> list[Html]:
    contents = {"figures": ranking_table(results), "plots": sections.plots(drawn)} | {
        section.__name__: section(results)
        for section in (
            sections.effects, sections.ablation, sections.rates, sections.samples, sections.audits, sections.notes,
            sections.origin,
        )
    }  # fmt: skip
    shown = {name: title for name, title in SECTIONS.items() if contents[name]}
    links = [tag("a", title, href=f"#{name}") for name, title in shown.items()]
    watched = [tag("a", name, href=file) for name, file in pages.items()]
    header = tag(
        "header",
        tag("h1", results.title),
        tag("p", verdict(results), class_="verdict"),
        tag("p", " ".join(reasons(results)), class_="reasons") if reasons(results) else "",
        tag("p", " ".join(compared(results)), class_="compared"),
        tag("p", "Watch their tokens move: ", joined(watched, ", "), ".") if watched else "",
        tag("nav", *links, theme_button(), aria_label="Sections"),
    )
    parts = [tag("section", tag("h2", title), contents[name], id=name) for name, title in shown.items()]
    return [header, tag("main", *parts)]
