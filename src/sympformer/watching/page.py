"""Models at work on one text, as one page: trajectories, lens, physics by depth. The script draws, from values only."""

from collections.abc import Sequence
from typing import Any

from sympformer.pages import Html, asset, data_island, document, tag, theme_button
from sympformer.watching.scene import BY_LAYER, BY_STAGE, SCALARS, Subject, scene

AXES = {
    "shared": "principal axes of all stages",
    "own": "principal axes of each stage",
    "tokens": "directions of two tokens",
}
SHOWN = {"momenta": "momenta", "lines": "attention", "trails": "trails", "names": "names"}
NO_LENS = "This model's guesses cannot be read off its states."
MOST_TEXT = 300  # characters of the text above the page
QUANTITIES = BY_STAGE | BY_LAYER | SCALARS


def page(subjects: Sequence[Subject], text: str, notes: Sequence[str] = ()) -> Html:
    """The whole page. notes: what a reader should know, such as what was left out."""
    *others, last = [subject.name for subject in subjects]
    title = f"{', '.join(others)}{' and ' if others else ''}{last} at work"
    scenes = [scene(subject) for subject in subjects]
    parts = [
        _header(title, text, [*notes, *(f"{s.name}: {s.note}" for s in subjects if s.note)]),
        tag("main", _controls(), _models(subjects), _physics(scenes), id="main"),
        data_island("scene", {"models": scenes, "quantities": QUANTITIES}),
    ]
    scripts = [asset(__package__, name) for name in ("models.js", "space.js", "charts.js")]
    return document(title, *parts, styles=[asset(__package__, "style.css")], scripts=scripts)


def _header(title: str, text: str, notes: list[str]) -> Html:
    line = "".join(c if c.isprintable() else " " for c in text)  # nothing in it turns the line round
    line = line if len(line) <= MOST_TEXT else f"{line[:MOST_TEXT]} …"
    links = tag("a", "Trajectories", href="#models"), tag("a", "Physics by depth", href="#physics")
    return tag(
        "header",
        tag("h1", title),
        tag("p", "The text: ", tag("q", tag("bdi", line))),
        tag("ul", *(tag("li", note) for note in notes), class_="notes") if notes else "",
        tag("nav", *links, theme_button(), aria_label="Sections"),
    )


def _controls() -> Html:
    """One slider for all models, what to draw, and the tokens as buttons."""
    slider = tag("input", type="range", id="depth", min=0, max=1, value=0, step=1, aria_label="Depth")
    axes = tag("select", *(tag("option", words, value=name) for name, words in AXES.items()), id="axes")
    two = [tag("select", id=f"token-{name}", aria_label=f"Token of the {place} axis")
           for name, place in (("a", "first"), ("b", "second"))]  # fmt: skip
    boxes = [
        tag("label", tag("input", type="checkbox", id=name, checked=name != "names"), words)
        for name, words in SHOWN.items()
    ]
    choices = [tag("label", "Axes ", axes), tag("span", *two, id="pair", hidden=True), *boxes]
    return tag(
        "section",
        tag("div", tag("button", "Play", type="button", id="play", aria_pressed="false"), slider,
            tag("output", id="stage", for_="depth"), class_="row"),
        tag("div", *choices, class_="row choices"),
        tag("div", id="texts"),
        tag("p", id="said", role="status"),
        class_="controls",
        aria_label="Controls",
    )  # fmt: skip


def _models(subjects: Sequence[Subject]) -> Html:
    """A card a model; the script fills them."""
    cards = [
        tag(
            "article",
            tag("h3", tag("span", class_=f"dot {subject.family}"), tag("bdi", subject.name), " ",
                tag("small", class_="stage")),
            tag("div", class_="space"),
            tag("p", class_="axes-note"),
            tag("dl", class_="numbers"),
            tag("p", "" if subject.record.lens else NO_LENS, class_="guess"),
            tag("div", class_="wide lens", tabindex="0", role="region", aria_label=f"Guesses of {subject.name}"),
            class_="card model",
        )
        for subject in subjects
    ]  # fmt: skip
    how = (
        "Every token is a particle. Faint lines are the tokens' ways so far, the chosen token's way is drawn in full, "
        "attention halves solid, MLP halves dashed; arrows are momenta; grey lines are the chosen token's attention "
        "row (mean over heads, shares of at least 1 %), dashed where a weight is negative. Point at a token or choose "
        "it in the text. Below: its figures (energies, cosine and z where its layer starts), and the next token as "
        "the model would guess it at every stage, read off by its own final norm and head."
    )
    heading = tag("h2", "Trajectories and lens", id="models")
    return tag("section", heading, tag("p", how), tag("div", *cards, class_="models"))


def _physics(scenes: Sequence[dict[str, Any]]) -> Html:
    """Energies in words, the charts (drawn by the script), and every figure as a table."""
    energies = [tag("li", tag("bdi", model["name"]), f": {model['hamiltonian']}") for model in scenes]
    intro = (
        "Means over the tokens of the text. Energies, z and the cosine are taken where a layer starts, at its "
        "normalised positions; sizes, rank and clusters at every stage."
    )
    tables = [tag("details", tag("summary", f"All figures of {model['name']}"), _table(model)) for model in scenes]
    return tag(
        "section", tag("h2", "Physics by depth", id="physics"), tag("p", intro), tag("ul", *energies),
        tag("div", id="legend"), tag("div", id="charts"), *tables,
    )  # fmt: skip


def _table(model: dict[str, Any]) -> Html:
    """A row a stage; what is known by layer stands where the layer starts."""
    curves, layer_at = model["curves"], {s: k for k, s in enumerate(model["starts"])}
    heads = [tag("th", QUANTITIES[name], scope="col", class_="figure") for name in curves]

    def cell(name: str, s: int) -> Html:
        place = s if name in BY_STAGE else layer_at.get(s)
        value = None if place is None else curves[name][place]
        return tag("td", "" if value is None else f"{value:.4g}", class_="figure")

    rows = [
        tag("tr", tag("th", stage, scope="row"), *(cell(name, s) for name in curves))
        for s, stage in enumerate(model["stages"])
    ]
    head = tag("thead", tag("tr", tag("th", "stage", scope="col"), *heads))
    return tag("div", tag("table", head, tag("tbody", *rows)), class_="wide", tabindex="0")
