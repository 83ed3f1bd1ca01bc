"""How a model looks in every plot of a comparison: colour by family, dashes by preset, marker by integrator.

Where several models would look alike, the first does so; its twins have colours and markers of their own.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from sympformer.studies.results import ModelResult, Results

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

UNITS = {"loss": "nats per token", "bits_per_byte": "bits per byte"}
State = Literal["ranked", "failed audit", "not audited", "no figures"]


@dataclass(frozen=True)
class Family:
    """Models that share a colour."""

    key: str
    label: str
    colour: str


# Told apart by every kind of colour vision. Each, and the ink, has a contrast of at least 3 to white and to near-black:
# a picture without a background is readable on both. A test measures both claims.
FAMILIES = {
    family.key: family
    for family in (
        Family("gpt", "GPT", "#cf68c0"),
        Family("yuriiformer", "YuriiFormer", "#c94b18"),
        Family("softmax", "SympFormer, softmax", "#3b5ddc"),
        Family("linear", "linear attention", "#22a57a"),
    )
}
# of the first twin in a comparison, the second, and so on; the lists differ in length, so pairs come late
TWIN_COLOURS = {"twin-1": "#a27f00", "twin-2": "#178f9c", "twin-3": "#8b6be0", "twin-4": "#7b8a2b", "twin-5": "#d1527f"}
TWIN_MARKERS = ("s", "^", "D", "v", "P", "X", "*")
INK, FAINT, UNRANKED = "#6c7680", "#8f979f", "#868e97"
FAILED_DASHES, PAPER_DASHES = (0, (1, 1.6)), (0, (4, 1.8))
MARKERS = {
    "plain-euler": "o",
    "presymp-euler": "s",
    "exp-euler": "^",
    "ab2": "D",
    "etd-ab2": "v",
    "yuriiformer": "X",
    "streams": "P",
}
SMALL, NORMAL = 8.0, 9.0
WIDTH = 10.0  # inches; 9-point text then is 12 pixels high on a page of 960
TYPEFACES = "system-ui, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif"


def family_of(model: ModelResult) -> Family:
    """By the variant, or by the architecture where a model was given by its options."""
    if model.variant.startswith("linear"):
        return FAMILIES["linear"]
    if model.variant in ("gpt", "streams", "softmax-baseline"):  # streams: the control of a classical block
        return FAMILIES["gpt"]
    return FAMILIES["yuriiformer" if model.variant.endswith("yuriiformer") else "softmax"]


def twin_of(results: Results, model: ModelResult) -> int:
    """0 for the first ranked model of its look; the others are counted, all together, in a factorial look by look."""
    ranked = [m for m in results.models if state_of(results, m) == "ranked"]
    if model not in ranked:
        return 0
    looks = [(m.variant, m.preset == "paper") for m in ranked]
    place = ranked.index(model)
    twins = [i for i, look in enumerate(looks[: place + 1]) if look in looks[:i]]
    if results.factors:
        twins = [i for i in twins if looks[i] == looks[place]]
    return len(twins) if place in twins else 0


def look_of(results: Results, model: ModelResult) -> tuple[str, str]:
    """The name of a model's colour, in the page's style sheet too, and the colour.

    Cells of a factorial are all twins: there the colour is the dynamics', and markers tell the cells.
    """
    twin = twin_of(results, model)
    if not twin or results.factors:
        return family_of(model).key, family_of(model).colour
    return list(TWIN_COLOURS.items())[(twin - 1) % len(TWIN_COLOURS)]


def scored_split(results: Results) -> str:
    """The data that the losses come from: test, or for single runs without one, validation."""
    return str(results.data.get("scored", "test"))


def state_of(results: Results, model: ModelResult) -> State:
    """Whether a model may stand in a ranking, and if not, why."""
    if results.metric_of(model) is None:
        return "no figures"
    if model.audit is None:
        return "not audited"
    return "ranked" if model.passed else "failed audit"


def label_of(results: Results, model: ModelResult) -> str:
    """Its name, with a word where it has no rank; matplotlib must not read a formula between dollar signs."""
    state = state_of(results, model)
    name = model.name.replace("$", r"\$")
    return name if state == "ranked" else f"{name} ({state})"


def line_style(results: Results, model: ModelResult) -> dict[str, Any]:
    """Colour, dashes and width of a model's line; the baseline is drawn heavier."""
    if state_of(results, model) != "ranked":
        return {"color": UNRANKED, "ls": FAILED_DASHES, "lw": 1.2, "zorder": 1.5}
    heavy = model.name == results.baseline
    dashes: Any = PAPER_DASHES if model.preset == "paper" else "-"
    return {"color": look_of(results, model)[1], "ls": dashes, "lw": 2.4 if heavy else 1.3, "zorder": 3 if heavy else 2}


def marker_of(results: Results, model: ModelResult) -> str:
    """By the variant's integrator; a twin has its own."""
    return twin_marker(results, model, MARKERS.get(model.variant.split("-", 1)[-1], "o"))


def twin_marker(results: Results, model: ModelResult, otherwise: str) -> str:
    """The marker of a twin, and for the others what they have without it."""
    twin, free = twin_of(results, model), [marker for marker in TWIN_MARKERS if marker != otherwise]
    return free[(twin - 1) % len(free)] if twin else otherwise


def left_out(results: Results) -> str:
    """A sentence on the models that no plot shows; empty where there are none."""
    names = [model.name for model in results.models if state_of(results, model) == "no figures"]
    return f"Not drawn, as there are no figures: {', '.join(names)}." if names else ""


def unranked(results: Results) -> str:
    """A sentence on the models that have figures and no rank; empty where there are none."""
    states = {model.name: state_of(results, model) for model in results.models}
    names = [f"{name} ({state})" for name, state in states.items() if state in ("failed audit", "not audited")]
    return f"Not ranked: {', '.join(names)}." if names else ""


def keys_of(results: Results, models: Sequence[ModelResult]) -> list[Any]:
    """Handles of a legend: the families that occur, then what dashes and dots mean."""
    from matplotlib.lines import Line2D

    ranked = [model for model in models if state_of(results, model) == "ranked"]
    present = {family_of(model).key for model in ranked}
    keys = [Line2D([], [], color=f.colour, lw=2.2, label=f.label) for f in FAMILIES.values() if f.key in present]
    if any(model.preset == "paper" for model in ranked):
        keys.append(Line2D([], [], color=INK, lw=1.4, ls=PAPER_DASHES, label="preset “paper”"))
    if len(ranked) < len(models):
        keys.append(Line2D([], [], color=UNRANKED, lw=1.4, ls=FAILED_DASHES, label="not ranked"))
    return keys


def blank_figure(height: float, columns: int = 1, rows: int = 1) -> tuple["Figure", list["Axes"]]:
    """A transparent figure of the common width, and its axes."""
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    figure = Figure(figsize=(WIDTH, height), layout=ConstrainedLayoutEngine(w_pad=0.06, h_pad=0.05))
    figure.patch.set_alpha(0)
    return figure, figure.subplots(rows, columns, squeeze=False).ravel().tolist()


def gid_of(results: Results, model: ModelResult) -> str:
    """What all parts of a model's drawing have in their SVG id, the same in every plot."""
    return f"model-{results.models.index(model)}"


def tidy(axis: "Axes") -> None:
    """Quiet axes: no frame at the top and right, a faint grid, small neutral figures."""
    axis.set_facecolor("none")
    axis.spines[["top", "right"]].set_visible(False)
    axis.spines[["left", "bottom"]].set_color(FAINT)
    axis.spines[["left", "bottom"]].set_linewidth(0.7)
    axis.tick_params(which="both", colors=INK, labelsize=SMALL, width=0.6, length=3)
    axis.xaxis.label.set(color=INK, fontsize=NORMAL)
    axis.yaxis.label.set(color=INK, fontsize=NORMAL)
    axis.grid(axis="y", color=FAINT, alpha=0.22, lw=0.6)
    axis.set_axisbelow(True)


def spread_out(wanted: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Places for labels: in the order of the wanted ones, near them, at least `gap` apart, from low to high.

    Where there is no room for all, they keep equal distances over the whole range.
    """
    n = len(wanted)
    gap = min(gap, (high - low) / max(n - 1, 1))
    order = sorted(range(n), key=lambda i: wanted[i])
    asked = [min(max(wanted[i], low), high) for i in order]
    upward, downward = list(asked), list(asked)
    for k in range(1, n):
        upward[k] = max(upward[k], upward[k - 1] + gap)
        downward[n - 1 - k] = min(downward[n - 1 - k], downward[n - k] - gap)
    # Both keep the gaps, so their mean does; it leaves a crowd where it was.
    places = [(up + down) / 2 for up, down in zip(upward, downward, strict=True)]
    for k in range(n):
        places[k] = max(places[k], low + k * gap)
    for k in range(n):
        places[n - 1 - k] = min(places[n - 1 - k], high - k * gap)
    return [places[order.index(i)] for i in range(n)]
