"""What every HTML page of ours shares: one file that asks no network for anything, light and dark, and markup that
cannot be broken by what stands in it."""

import html
import json
from collections.abc import Callable, Iterable, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from sympformer.errors import InputError
from sympformer.files import write

# The browser itself refuses to load anything, whatever the page should come to hold.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"
VOID = {"meta", "br", "hr", "input", "img"}


class Html(str):
    """Text that is markup already; whatever else stands in a page is escaped."""

    __slots__ = ()


def escaped(child: object) -> Html:
    """As markup: itself if it is, otherwise its text, escaped."""
    return child if isinstance(child, Html) else Html(html.escape(str(child)))


def joined(children: Iterable[object], between: str = "") -> Html:
    """One after the other."""
    return Html(between.join(escaped(child) for child in children))


def tag(name: str, /, *children: object, **attributes: Any) -> Html:
    """An element. None and False leave an attribute out, True gives it no value; class_ is class, data_x is data-x."""
    parts = [name]
    for key, value in attributes.items():
        if value is None or value is False:
            continue
        key = key.rstrip("_").replace("_", "-")
        parts.append(key if value is True else f'{key}="{html.escape(str(value))}"')
    opening = f"<{' '.join(parts)}>"
    return Html(opening if name in VOID else f"{opening}{joined(children)}</{name}>")


def data_island(name: str, value: object) -> Html:
    """A value that a page's script reads with JSON.parse, from the element of that id; no text in it ends that."""
    text = json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return tag("script", Html(text), type="application/json", id=name)


def document(title: str, *body: object, styles: Sequence[Html] = (), scripts: Iterable[Html] = ()) -> Html:
    """The whole page. The common look comes before `styles`, its script before `scripts`."""
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=POLICY),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", title),
        tag("style", asset(__package__, "base.css"), *styles),
    )
    programs = [tag("script", script) for script in (asset(__package__, "base.js"), *scripts)]
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
    except OSError as error:
        raise InputError(f"cannot write {what} {file}: {error.strerror or error}") from error
    write(file, make())
