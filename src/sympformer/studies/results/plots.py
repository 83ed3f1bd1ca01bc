"""The plots of a comparison: the ranking, loss on the way of training, and what the layers learned.

Figures are made without pyplot: nothing global is touched, nothing is left open. Backgrounds are transparent, and every
colour has a contrast of at least 3 to white and to near-black: a picture is readable on both.
"""

import io
import math
import re
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean
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

    @property
    def png(self) -> bytes:
        file = io.BytesIO()
        self.figure.savefig(file, format="png", dpi=160, facecolor="white")
        return file.getvalue()


def style(results: Results, model: ModelResult) -> dict[str, Any]:
    """How a model looks in every plot: a cycle of colours, then of markers; grey without a rank, heavy the baseline."""
    if results.state(model) != "ranked":
        return {"color": UNRANKED, "marker": "o", "ls": (0, (1, 1.6)), "lw": 1.2, "zorder": 1.5}
    place = [one.name for one in results.models if results.state(one) == "ranked"].index(model.name)
    turn, heavy = place // len(COLOURS), model.name == results.baseline
    return {
        "color": COLOURS[place % len(COLOURS)],
        "marker": MARKERS[turn % len(MARKERS)],
        "ls": ("-", (0, (5, 1.5)), (0, (1.5, 1)))[turn % 3],
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
        if drawn := scales_of(results, against):
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


def scales_of(results: Results, against: Against) -> dict[str, float]:
    """What a token is on the axis, for every model with curves; none where it would repeat the plot against tokens."""
    found: dict[str, float] = {}
    for model in results.models:
        speed = model.tokens_per_second
        scales = {"tokens": 1.0, "seconds": 1 / speed if speed else None, "kernel passes": model.passes_a_token}
        scale = scales[against]
        if scale is not None and model.curves and results.state(model) != "no figures":
            found[model.name] = scale
    alike = len({round(scale, 12) for scale in found.values()}) <= 1
    return {} if against == "kernel passes" and alike else found


def loss(results: Results, against: Against = "tokens") -> "Figure":
    """A line a model, the best first in the legend: training loss, with validation as markers, or validation alone."""
    scales = scales_of(results, against)
    models = [model for model in results.models if model.name in scales]
    figure, [axis] = _blank(max(4.6, 0.5 + LABEL * len(models)))
    lines, ends, late = {}, {}, []
    for model in models:
        lines[model.name], seeds = _curve(axis, results, model, scales[model.name])
        ends[model.name] = fmean(seeds[-1])
        if results.state(model) == "ranked" or not any(results.state(one) == "ranked" for one in models):
            late += [value for row in seeds[(len(seeds) - 1) // 5 :] for value in row]
    # where the models part: the first fifth of training, steep and alike, leaves the frame at the top
    room = 0.04 * (max(late) - min(late)) or 0.1
    axis.set(xlabel=X_LABELS[against], xlim=(0, None), ylim=(min(late) - room, max(late) + room))
    trained = any(curve.train_loss for model in models for curve in model.curves)
    what = "training loss (lines), validation (markers), nats" if trained else "validation loss, nats per token"
    axis.set_ylabel(what)
    axis.xaxis.set_major_formatter(lambda x, _: f"{x / 1e6:g} M" if x >= 1e5 else f"{x:,.0f}")
    _tidy(axis)
    _legend(figure, results, {name: lines[name] for name in sorted(ends, key=lambda name: ends[name])})
    return figure


def _curve(axis: "Axes", results: Results, model: ModelResult, scale: float) -> tuple[Any, list[tuple[float, ...]]]:
    """Draws means over the seeds and their range; returns the line, and validation losses place by place."""
    look, one = style(results, model), model.curves[0]
    line = {name: look[name] for name in ("color", "ls", "lw", "zorder")} | {"label": model.name}
    seeds = list(zip(*(curve.loss for curve in model.curves), strict=False))
    trained = list(map(fmean, zip(*(curve.train_loss for curve in model.curves), strict=False)))
    xs, means = [scale * n for n in one.tokens[: len(seeds)]], list(map(fmean, seeds))
    if trained:
        drawn = axis.plot([scale * n for n in one.train_tokens[: len(trained)]], trained, alpha=0.7, **line)
        axis.plot(xs, means, ls="none", marker=look["marker"], ms=3, color=look["color"], zorder=4)
    else:
        drawn = axis.plot(xs, means, marker=look["marker"], ms=3 if len(xs) > 1 else 5, **line)
    if len(results.seeds) > 1 and results.state(model) == "ranked":
        low, high = list(map(min, seeds)), list(map(max, seeds))
        axis.fill_between(xs, low, high, color=look["color"], alpha=0.13, lw=0, zorder=1)
    return drawn[0], seeds


# --- layers


def layers(results: Results) -> "Figure":
    """Step sizes, damping and momentum by depth: a panel a quantity, a line a model."""
    from matplotlib.ticker import MaxNLocator

    models = [model for model in results.ranked() if results.state(model) != "no figures"]
    panels = [name for name in SCALARS if any(name in row for model in models for row in model.layers)]
    rows = math.ceil(len(panels) / 2)
    figure, axes = _blank(max(2.6 * rows + 0.3, 0.5 + LABEL * len(models)), columns=2, rows=rows)
    handles: dict[str, Any] = {}
    for axis, name in zip(axes, panels, strict=False):
        for model in models:
            if points := [(k, row[name]) for k, row in enumerate(model.layers, start=1) if name in row]:
                look = style(results, model) | {"ms": 3.6, "lw": 1.1, "label": model.name}
                handles[model.name] = axis.plot(*zip(*points, strict=True), **look)[0]
        values = [row[name] for model in models for row in model.layers if name in row]
        axis.set_title(SCALARS[name], fontsize=NORMAL, color=INK, loc="left")
        if min(values) > 0 and max(values) > 8 * min(values):
            axis.set_yscale("log")
        axis.xaxis.set_major_locator(MaxNLocator(integer=True))
        axis.set_xlabel("layer")
        _tidy(axis)
    for axis in axes[len(panels) :]:
        axis.set_visible(False)
    _legend(figure, results, {model.name: handles[model.name] for model in models if model.name in handles})
    return figure


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


def _legend(figure: "Figure", results: Results, lines: dict[str, Any]) -> None:
    """Names beside the axes, in this order, with what keeps a model from a rank."""
    states = {model.name: results.state(model) for model in results.models}
    labels = [_plain(name) + ("" if states[name] == "ranked" else f" ({states[name]})") for name in lines]
    legend = figure.legend(
        handles=list(lines.values()), labels=labels, loc="outside right upper", frameon=False, fontsize=SMALL,
        labelcolor=INK, handlelength=3.4, alignment="left",
    )  # fmt: skip
    for text, name in zip(legend.get_texts(), lines, strict=True):
        text.set_fontweight("bold" if name == results.baseline else "normal")


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
