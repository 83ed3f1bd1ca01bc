"""HTML that cannot be broken by what stands in it: whatever is not `Html` is escaped."""

import html
import json
from collections.abc import Iterable
from typing import Any

VOID = {"meta", "br", "hr", "input"}


class Html(str):
    """Text that is markup already."""

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
