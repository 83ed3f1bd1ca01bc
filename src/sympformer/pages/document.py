"""A page as one file: no other file, no network, readable on a phone, light and dark."""

from collections.abc import Callable, Iterable, Sequence
from importlib.resources import files
from pathlib import Path

from sympformer.atomic import write_file
from sympformer.errors import InputError
from sympformer.pages.markup import Html, joined, tag

# The browser itself refuses to load anything, whatever the page should come to hold.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"


def document(title: str, *body: object, styles: Sequence[Html] = (), scripts: Iterable[Html] = ()) -> Html:
    """The whole page. The common look comes before `styles`, the theme button's script before `scripts`."""
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=POLICY),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", title),
        tag("style", asset(__package__, "base.css"), *styles),
    )
    programs = [tag("script", script) for script in (asset(__package__, "theme.js"), *scripts)]
    whole = tag("html", head, tag("body", *body, *programs), lang="en")
    return joined([Html("<!doctype html>\n"), whole, "\n"])


def theme_button() -> Html:
    """Light or dark: as the system has it, until this is pressed. Every page has one, at the end of its `nav`."""
    return tag("button", "Light / dark", type="button", id="theme")


def asset(package: str, name: str) -> Html:
    """A style sheet or a script of ours, from beside the code of a package."""
    return Html(files(package).joinpath(name).read_text(encoding="utf-8"))


def write_page(file: Path, make: Callable[[], Html], what: str) -> None:
    """Write a page whole or not at all. A folder that cannot be made is found before the work; what: "the report"."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        write_file(file, make())
    except OSError as error:
        raise InputError(f"cannot write {what} {file}: {error.strerror or error}") from error
