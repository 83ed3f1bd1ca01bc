"""Plots as a part of the page."""

import re
from xml.etree import ElementTree

from sympformer.pages.markup import Html
from sympformer.studies.results.plot_style import FAINT, FAMILIES, INK, TYPEFACES, UNRANKED

# colours of the plots -> names in the pages' base.css, where they are lighter on dark
COLOURS = {INK: "--ink-2", FAINT: "--faint", UNRANKED: "--ink-3"} | {
    family.colour: f"--{family.key}" for family in FAMILIES.values()
}
MODEL = re.compile(r"model-(\d+)-")


def inline_svg(svg: str, name: str, description: str) -> Html:
    """A matplotlib figure's SVG as an element: its colours follow the page's, its ids are its own.

    name: prefix of its ids. Parts of model i get the classes "model m<i>".
    """
    root = ElementTree.fromstring(svg)
    for parent in list(root.iter()):
        for child in list(parent):
            if _local(child.tag) in ("metadata", "style"):  # matplotlib's style sheet would reach the whole page
                parent.remove(child)
    for element in root.iter():
        element.tag = _local(element.tag)
        attributes = dict(_attribute(_local(key), value, name) for key, value in element.attrib.items())
        element.attrib.clear()
        element.attrib.update(attributes)
        element.text, element.tail = _without_blanks(element.text), _without_blanks(element.tail)
    for key in ("width", "height", "version"):
        del root.attrib[key]
    root.attrib.update({"role": "img", "aria-label": description})
    return Html(ElementTree.tostring(root, encoding="unicode"))


def _local(name: str) -> str:
    """A name without its namespace: inside HTML, SVG needs none."""
    return name.rsplit("}", 1)[-1]


def _without_blanks(text: str | None) -> str | None:
    return text if text and text.strip() else None


def _attribute(key: str, value: str, name: str) -> tuple[str, str]:
    """An attribute in the page: ids get a prefix, ids of models become classes, styles take the page's."""
    if key == "id":
        model = MODEL.match(value)
        return ("class", f"model m{model.group(1)}") if model else ("id", f"{name}-{value}")
    if key == "href":
        return key, f"#{name}-{value.removeprefix('#')}"
    if key == "clip-path":
        return key, value.replace("url(#", f"url(#{name}-")
    if key == "d":
        return key, " ".join(value.split())
    if key == "style":
        value = value.replace(TYPEFACES, "var(--type)")
        for colour, variable in COLOURS.items():
            value = value.replace(colour, f"var({variable})")
    return key, value
