"""The plots of a comparison: the ranking, loss on the way of training, and what the layers learned.

matplotlib is imported inside the functions, so that importing this module stays light. Figures are made without
pyplot: nothing global is touched, nothing is left open. Backgrounds are transparent, text is a neutral grey, and every
colour has a contrast of at least 3 to white and to near-black: a picture is readable on both. A test measures it.
"""

import io
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from sympformer.studies.results.results import NOT_SHOWN, ModelResult, Results, State

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Against = Literal["tokens", "seconds", "kernel passes"]

COLOURS = ("#3b5ddc", "#c94b18", "#22a57a", "#cf68c0", "#a27f00", "#178f9c", "#8b6be0", "#7b8a2b", "#d1527f")
MARKERS = ("o", "s", "^", "D", "v", "X", "P", "*")
INK, FAINT, UNRANKED = "#6c7680", "#8f979f", "#868e97"
SMALL, NORMAL = 8.0, 9.0
WIDTH = 10.0  # inches; 9-point text then is 12 pixels high on a page of 960
LABEL = 0.16  # inches a label needs
TYPEFACES = "system-ui, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif"
UNITS = {"loss": "nats per token", "bits_per_byte": "bits per byte"}
X_LABELS: dict[Against, str] = {
    "tokens": "training tokens",
    "seconds": "training time, s (tokens by the measured tokens/s, so that a busy machine does not decide)",
    "kernel passes": "kernel passes (forward passes by layers by passes a layer)",
}
SCALARS = {
    "h_x": "step size h_x",
    "h_y": "step size h_y",
    "alpha": "damping alpha",
    "momentum_rms": "momentum, root mean square",
}


@dataclass(frozen=True)
class Picture:
    """A figure with its file name, heading and caption."""

    name: str
    heading: str
    caption: str
    figure: "Figure"

    @cached_property
    def svg(self) -> str:
        """As SVG: text stays text, nothing depends on the day it was made."""
        from matplotlib import rc_context

        file = io.StringIO()
        nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
        with rc_context({"svg.fonttype": "none", "svg.hashsalt": "sympformer"}):
            self.figure.savefig(file, format="svg", transparent=True, metadata=nothing)
        return re.sub(r"font-family: [^;]*", f"font-family: {TYPEFACES}", file.getvalue())


def style(results: Results, model: ModelResult) -> dict[str, Any]:
    """How a model looks in every plot: a cycle of colours, then of markers; grey without a rank, heavy the baseline."""
    if results.state(model) != "ranked":
        return {"color": UNRANKED, "marker": "o", "ls": (0, (1, 1.6)), "lw": 1.2, "zorder": 1.5}
    place = [one.name for one in results.models if results.state(one) == "ranked"].index(model.name)
    turn, heavy = place // len(COLOURS), model.name == results.baseline
    return {
        "color": COLOURS[place % len(COLOURS)],
        "marker": MARKERS[turn % len(MARKERS)],
        "ls": ["-", (0, (5, 1.5)), (0, (1.5, 1))][turn % 3],
        "lw": 2.4 if heavy else 1.3,
        "zorder": 3 if heavy else 2,
    }


def pictures(results: Results) -> list[Picture]:
    """All plots that the results have figures for."""

    def named(words: str, *states: State) -> str:
        names = [model.name for model in results.models if results.state(model) in states]
        return f" {words}: {', '.join(names)}." if names else ""

    made: list[Picture] = []
    missing, unranked = named("No figures", "no figures"), named("Not ranked", "failed audit", "not audited")
    if named("Ranked", "ranked"):
        pale = "no difference is shown after Holm's correction" if results.corrected else "the interval contains zero"
        seen = f"Dots: means over the seeds; strokes: seeds; bars: 95 % intervals, paired by seed, pale where {pale}."
        made.append(Picture("ranking", "Ranking", seen + unranked + missing, ranking(results)))
    for against in X_LABELS:
        if drawn := curves(results, against):
            seen = f"Means of {len(drawn)} models over the seeds; bands: from the best seed to the worst."
            name, heading = f"loss-{against.replace(' ', '-')}", f"Loss against {against}"
            made.append(Picture(name, heading, seen + missing, loss(results, against)))
    if any(name in row for model in results.models for row in model.layers for name in SCALARS):
        seen = "At the end of training, first seed, by depth."
        made.append(Picture("layers", "What the layers learned", seen + missing, layers(results)))
    return made


# --- ranking


def ranking(results: Results) -> "Figure":
    """Every seed and the mean on test data, best at the top; beside it the difference to the baseline."""
    models = [model for model in results.ranked() if results.state(model) == "ranked"]
    paired = any(model.difference is not None for model in models)
    figure, [left, *right] = _blank(0.95 + 0.24 * len(models), columns=2 if paired else 1)
    for row, model in enumerate(models):
        look, figures, found = style(results, model), results.metric_of(model), model.difference
        dot = {"color": look["color"], "marker": look["marker"], "ms": 6, "zorder": 3, "label": model.name}
        for value in figures.values if figures else ():
            left.plot(value, row, "|", ms=8, mew=1, color=look["color"], alpha=0.65)
        left.plot(results.mean(model), row, **dot)
        if model.name == results.against:
            left.axvline(results.mean(model), color=look["color"], lw=0.9, alpha=0.7, zorder=1)
        for beside in right:
            if found is not None and found.low is not None and found.high is not None:
                pale = 0.55 if found.verdict == NOT_SHOWN else 1.0
                ends = [found.low, found.high]
                beside.plot(ends, [row, row], lw=1.8, color=look["color"], alpha=pale, solid_capstyle="butt")
            if found is not None:
                beside.plot(found.mean, row, **dot)
    left.set_xlabel(f"{results.scored} data, {UNITS[results.metric]}")
    for beside in right:
        beside.axvline(0, color=INK, lw=0.9, alpha=0.7, zorder=1)
        beside.set_xlabel(f"minus {_plain(results.against or '')}{', 95 % interval' if len(results.seeds) > 1 else ''}")
    for axis in (left, *right):
        names = [f"{_plain(m.name)}\N{EN SPACE}{m.rank:\N{FIGURE SPACE}>2}" if axis is left else "" for m in models]
        axis.set_yticks(range(len(models)), names)
        axis.set_ylim(len(models) - 0.4, -0.6)
        _tidy(axis)
        axis.tick_params(axis="y", length=0)
        axis.spines["left"].set_visible(False)
    for label, model in zip(left.get_yticklabels(), models, strict=True):
        label.set(color=style(results, model)["color"], weight="bold" if model.name == results.baseline else "normal")
    return figure


# --- loss on the way


@dataclass(frozen=True)
class Drawn:
    """A model's curves: places on the x axis, the mean loss at each, and the best and worst seed."""

    model: ModelResult
    xs: list[float]
    losses: list[list[float]]  # of all seeds, place by place
    train: tuple[list[float], list[float]] | None  # the training loss, where it was kept

    @property
    def mean(self) -> list[float]:
        return [sum(row) / len(row) for row in self.losses]


def curves(results: Results, against: Against) -> list[Drawn]:
    """The models with a place on the axis; none where it would show what the plot against tokens does."""
    scales = {
        model.name: {
            "tokens": 1.0,
            "seconds": 1 / model.tokens_per_second if model.tokens_per_second else None,
            "kernel passes": model.passes_a_token,
        }[against]
        for model in results.models
    }
    found = [
        _drawn(model, scale)
        for model in results.models
        if results.state(model) != "no figures" and model.curves and (scale := scales[model.name]) is not None
    ]
    alike = len({round(scales[one.model.name] or 0, 12) for one in found}) <= 1
    return [] if against == "kernel passes" and alike else found


def _drawn(model: ModelResult, scale: float) -> Drawn:
    length = min(len(curve.loss) for curve in model.curves)
    trained = min(len(curve.train_loss) for curve in model.curves)
    means = [sum(curve.train_loss[k] for curve in model.curves) / len(model.curves) for k in range(trained)]
    return Drawn(
        model,
        [scale * tokens for tokens in model.curves[0].tokens[:length]],
        [[curve.loss[k] for curve in model.curves] for k in range(length)],
        ([scale * tokens for tokens in model.curves[0].train_tokens[:trained]], means) if trained else None,
    )


def loss(results: Results, against: Against = "tokens") -> "Figure":
    """A line a model, labelled at its end: the training loss, with validation as markers, or validation alone."""
    drawn = curves(results, against)
    height = max(4.6, 1.3 + LABEL * len(drawn))
    figure, [axis] = _blank(height)
    for one in drawn:
        look = style(results, one.model)
        line = {name: look[name] for name in ("color", "ls", "lw", "zorder")} | {"label": one.model.name}
        if one.train:
            axis.plot(*one.train, alpha=0.7, **line)
            axis.plot(one.xs, one.mean, ls="none", marker=look["marker"], ms=3, color=look["color"], zorder=4)
        else:
            axis.plot(one.xs, one.mean, marker=look["marker"], ms=3 if len(one.xs) > 1 else 5, **line)
        if len(results.seeds) > 1 and results.state(one.model) == "ranked":
            low, high = [min(row) for row in one.losses], [max(row) for row in one.losses]
            axis.fill_between(one.xs, low, high, color=look["color"], alpha=0.13, lw=0, zorder=1)
    _limits(axis, results, drawn)
    axis.set_xlabel(X_LABELS[against])
    lines = any(one.train for one in drawn)
    axis.set_ylabel("training loss (lines), validation (markers), nats" if lines else "validation loss, nats per token")
    axis.xaxis.set_major_formatter(lambda x, _: f"{x / 1e6:g} M" if x >= 1e5 else f"{x:,.0f}")
    _tidy(axis)
    _end_labels(axis, results, drawn, LABEL / (height - 1.1))
    return figure


def _limits(axis: "Axes", results: Results, drawn: list[Drawn]) -> None:
    """Show where the models part: the first fifth of training, steep and alike, leaves the frame at the top."""
    ranked = [one for one in drawn if results.state(one.model) == "ranked"] or drawn
    late = [loss for one in ranked for row in one.losses[(len(one.losses) - 1) // 5 :] for loss in row]
    low, high = min(late), max(late)
    room = 0.04 * (high - low) or 0.1
    axis.set_ylim(low - room, high + room)
    axis.set_xlim(0, max(one.xs[-1] for one in drawn))


def _end_labels(axis: "Axes", results: Results, drawn: list[Drawn], share: float) -> None:
    """Names at the right, moved apart, each with a thin line to the end of its curve.

    share: what a label needs of the height.
    """
    (low, high), right = axis.get_ylim(), axis.get_xlim()[1]
    ends = [one.mean[-1] for one in drawn]
    places = spread_out(ends, share * (high - low), low, high)
    for one, y, place in zip(drawn, ends, places, strict=True):
        colour, state = style(results, one.model)["color"], results.state(one.model)
        if low <= y <= high:
            bend = [one.xs[-1], right * 1.006, right * 1.03]
            axis.plot(bend, [y, y, place], color=colour, lw=0.5, alpha=0.6, zorder=1, clip_on=False)
        name = _plain(one.model.name) + ("" if state == "ranked" else f" ({state})")
        outside = " ↓" if y < low else " ↑" if y > high else ""
        weight = "bold" if one.model.name == results.baseline else "normal"
        axis.text(right * 1.036, place, name + outside, color=colour, fontsize=SMALL, va="center", weight=weight)


def spread_out(wanted: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Places for labels: in the order of the wanted ones, near them, at least `gap` apart, from low to high.

    Where there is no room for all, they keep equal distances over the whole range.
    """
    gap = min(gap, (high - low) / max(len(wanted) - 1, 1))
    order = sorted(range(len(wanted)), key=lambda i: wanted[i])
    places, floor, roof = [0.0] * len(wanted), low, high
    for i in order:  # each above the last one
        places[i] = max(wanted[i], floor)
        floor = places[i] + gap
    for i in reversed(order):  # and down again, where they left the range
        places[i] = min(places[i], roof)
        roof = places[i] - gap
    return places


# --- layers


def layers(results: Results) -> "Figure":
    """Step sizes, damping and momentum by depth: a panel a quantity, a line a model."""
    models = [model for model in results.ranked() if results.state(model) != "no figures"]
    panels = {name: label for name, label in SCALARS.items() if any(name in row for m in models for row in m.layers)}
    rows = math.ceil(len(panels) / 2)
    figure, axes = _blank(max(2.6 * rows + 0.3, 0.5 + LABEL * len(models)), columns=2, rows=rows)
    handles: dict[str, Any] = {}
    for axis, (name, label) in zip(axes, panels.items(), strict=False):
        for model in models:
            if points := [(k, row[name]) for k, row in enumerate(model.layers, start=1) if name in row]:
                look = style(results, model) | {"ms": 3.6, "lw": 1.1, "label": model.name}
                handles[model.name] = axis.plot(*zip(*points, strict=True), **look)[0]
        _depth_axis(axis, label, [row[name] for model in models for row in model.layers if name in row])
    for axis in axes[len(panels) :]:
        axis.set_visible(False)
    shown = [model for model in models if model.name in handles]
    figure.legend(
        handles=[handles[model.name] for model in shown], labels=[_plain(model.name) for model in shown],
        loc="outside right upper", frameon=False, fontsize=SMALL, labelcolor=INK, handlelength=3.4, alignment="left",
    )  # fmt: skip
    return figure


def _depth_axis(axis: "Axes", label: str, values: list[float]) -> None:
    from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator

    axis.set_title(label, fontsize=NORMAL, color=INK, loc="left")
    if min(values) > 0 and max(values) > 8 * min(values):
        axis.set_yscale("log")
        few_decades = max(values) < 1000 * min(values)
        axis.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if few_decades else (1,)))
        axis.yaxis.set_minor_locator(NullLocator())
        axis.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    axis.set_xlabel("layer")
    _tidy(axis)


# --- axes


def _plain(name: str) -> str:
    """A name that matplotlib does not read as a formula between dollar signs."""
    return name.replace("$", r"\$")


def _blank(height: float, columns: int = 1, rows: int = 1) -> tuple["Figure", list["Axes"]]:
    """A transparent figure of the common width, and its axes."""
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    figure = Figure(figsize=(WIDTH, height), layout=ConstrainedLayoutEngine(w_pad=0.06, h_pad=0.05))
    figure.patch.set_alpha(0)
    return figure, figure.subplots(rows, columns, squeeze=False).ravel().tolist()


def _tidy(axis: "Axes") -> None:
    """Quiet axes: no frame at the top and right, a faint grid, small neutral figures."""
    axis.set_facecolor("none")
    axis.spines[["top", "right"]].set_visible(False)
    axis.spines[["left", "bottom"]].set(color=FAINT, linewidth=0.7)
    axis.tick_params(which="both", colors=INK, labelsize=SMALL, width=0.6, length=3)
    axis.xaxis.label.set(color=INK, fontsize=NORMAL)
    axis.yaxis.label.set(color=INK, fontsize=NORMAL)
    axis.grid(axis="y", color=FAINT, alpha=0.22, lw=0.6)
    axis.set_axisbelow(True)
