"""`sympformer play`: one page in which a flow of particles runs live, to be touched. Opens from a file.

$ sympformer play --out play.html

The mathematics is flows.js beside this file, the eyes are pictures.js, the hands playground.js. A test holds the
mathematics equal to `sympformer.flows`.
"""

from pathlib import Path

from sympformer.pages import Html, asset, document, tag, theme_button, write_page

# name -> title, the sentence below the choice
SYSTEMS = {
    "linear": (
        "linear attention",
        "The kernel is x'A x, the potential the bowl x'B x / 2. All particles gather at zero.",
    ),
    "softmax_own": (
        "softmax attention, form “own”",
        "Every particle follows its own Hamiltonian, those it sees held fixed. The energy has no lower end:"
        " particles run away and gather in directions.",
    ),
    "softmax_paper": (
        "softmax attention, form “paper”",
        "The force of the whole Hamiltonian, as the paper writes it. The energy has no lower end.",
    ),
    "quadratic": ("harmonic oscillators", "No interaction: every particle swings by itself in the bowl x'A x / 2."),
    "stein": (
        "Stein flow, Gaussian kernel",
        "A curved valley with the eigenvalues and the angle of A. Particles carry their neighbours along, as far as"
        " the kernel reaches.",
    ),
}
# name -> title; the table of schemes in the page is that of flows.js, in its order
INTEGRATORS = {
    "etd_ab2": "ETD-AB-2",
    "ab2": "AB-2",
    "exp_euler": "exponential Euler",
    "symplectic_euler": "symplectic Euler",
    "presymp_euler": "presymplectic Euler",
    "plain_euler": "plain Euler, own factor (k-1)/(k+2)",
    "nesterov": "Nesterov's scheme, own factor",
    "rk4": "Runge-Kutta 4, four evaluations a step",
    "gradient_flow": "first order, no momentum",
}
DAMPINGS = {"nesterov": "r / t", "constant": "m", "log-linear": "r / t + m"}

# id -> label, least, largest, step, value
Range = tuple[str, float, float, float, float]
MATRICES: dict[str, Range] = {
    "a1": ("A, first eigenvalue", -2, 2, 0.01, 1.0),
    "a2": ("A, second eigenvalue", -2, 2, 0.01, 0.3),
    "aa": ("A, angle in degrees", -90, 90, 1, 30),
    "b1": ("B, first eigenvalue", 0.05, 2, 0.01, 1.0),
    "b2": ("B, second eigenvalue", 0.05, 2, 0.01, 0.1),
    "ba": ("B, angle in degrees", -90, 90, 1, 0),
    "length": ("length of the kernel", 0.1, 4, 0.05, 1.0),
}
MOTION: dict[str, Range] = {
    "r": ("r", 0, 10, 0.1, 3.0),
    "m": ("m", 0, 3, 0.01, 0.3),
    "h": ("step", 0.005, 1, 0.005, 0.25),
    "h1": ("step of the first-order flow", 0.005, 1, 0.005, 0.25),
}
START: dict[str, Range] = {
    "n": ("particles", 2, 256, 1, 48),
    "seed": ("start, a number for the draw", 0, 999, 1, 1),
    "speed": ("steps a second", 1, 240, 1, 30),
}

LEAD = (
    "Tokens are particles, attention is the force between them, momentum carries them. The blue ones move with"
    " momentum, the others by the first-order flow that a classical attention layer follows, from the same start."
)
HELP = (
    "Drag a particle, or choose it and use the arrow keys: it goes where you put it, at rest, in both pictures. Space"
    " starts and stops. While stopped, the address holds what you see; while running, only the settings: copy it to"
    " share it."
)


def play(out: Path = Path("play.html")) -> None:
    """Write a page in which a flow of particles runs live: choose the system and the scheme, drag particles.

    Args:
        out: The HTML file; it needs no other file and no network.
    """
    write_page(out, page, "the page")
    print(f"Written: {out}")


def page() -> Html:
    """The whole page."""
    title = "A flow of particles"
    header = tag(
        "header",
        tag("h1", title),
        tag("p", LEAD, class_="compared"),
        tag("nav", *_buttons(), theme_button(), aria_label="Run"),
    )
    body = tag("main", _pictures(), _controls())
    scripts = [asset(__package__, name) for name in ("flows.js", "pictures.js", "playground.js")]
    return document(title, header, body, styles=[asset(__package__, "style.css")], scripts=scripts)


def _buttons() -> list[Html]:
    names = {"run": "Start", "step": "One step", "again": "From the start", "draw": "New start", "copy": "Copy link"}
    return [tag("button", text, type="button", id=name, class_="go") for name, text in names.items()]


def _pictures() -> Html:
    views = [
        _canvas("view-0", "With momentum", "Positions of the particles that move with momentum.", "Tab, arrow keys"),
        _canvas("view-1", "First order", "Positions of the particles of the first-order flow.", "Tab, arrow keys"),
        _canvas("energy", "Energy against kernel evaluations", "Two falling lines, one for each flow."),
        _canvas("phase", "Position and momentum of the chosen particle", "A curve for each of the two coordinates."),
    ]
    rows = ["time", "kernel evaluations", "energy", "kinetic energy", "clusters"]
    columns = [tag("th", name, class_="figure") for name in ("momentum", "first order")]
    head = tag("thead", tag("tr", tag("th"), *columns))
    cells = [
        tag("tr", tag("th", row), *(tag("td", class_="figure", id=f"{row.split()[0]}-{i}") for i in (0, 1)))
        for row in rows
    ]
    figures = tag("table", head, tag("tbody", *cells), id="numbers")
    note = tag("p", "Clusters: groups of particles, each closer to another than a thirtieth of the picture's width.")
    said = tag("p", role="status", id="said")
    return tag("section", said, *views, tag("div", figures, note, class_="numbers"), class_="pictures")


def _canvas(name: str, title: str, described: str, keys: str | None = None) -> Html:
    canvas = tag(
        "canvas", id=name, role="img", aria_label=f"{title}. {described}", tabindex="0" if keys else None, title=keys
    )
    return tag("figure", tag("h2", title, id=f"{name}-title"), canvas, class_=f"view {name}")


def _controls() -> Html:
    systems, motion = {name: title for name, (title, _) in SYSTEMS.items()}, map(_slider, MOTION)
    groups = [
        ("System", _choice("system", "system", systems), _about(), *map(_slider, MATRICES)),
        ("Motion", _choice("integrator", "scheme", INTEGRATORS), _choice("damping", "damping", DAMPINGS), *motion),
        ("Start", *map(_slider, START), _number("chosen", "chosen particle")),
    ]
    return tag(
        "form",
        *(tag("fieldset", tag("legend", name), *parts) for name, *parts in groups),
        tag("p", HELP),
        id="controls",
        autocomplete="off",
    )


def _about() -> Html:
    texts = [tag("p", text, data_system=name, hidden=True) for name, (_, text) in SYSTEMS.items()]
    return tag("div", *texts, id="about")


def _choice(name: str, label: str, options: dict[str, str]) -> Html:
    parts = [tag("option", title, value=value) for value, title in options.items()]
    return tag("label", tag("span", label), tag("select", *parts, name=name, id=name), class_="choice")


def _slider(name: str) -> Html:
    label, least, largest, step, value = (MATRICES | MOTION | START)[name]
    field = tag("input", type="range", name=name, id=name, min=least, max=largest, step=step, value=value)
    shown = tag("output", value, id=f"{name}-value")
    return tag("label", tag("span", label), field, shown, class_="slider", id=f"{name}-row")


def _number(name: str, label: str) -> Html:
    field = tag("input", type="number", name=name, id=name, min=1, max=256, step=1, value=1)
    return tag("label", tag("span", label), field, class_="choice")
