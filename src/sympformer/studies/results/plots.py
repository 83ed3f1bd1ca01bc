"""The plots of a comparison: loss curves, the ranking, and what the layers learned.

matplotlib is imported inside the functions, so that importing this module stays light. Figures are made without
pyplot: nothing global is touched, nothing is left open. Backgrounds are transparent, text is a neutral grey.
"""

import io
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sympformer.atomic import staged_files
from sympformer.progress import steps_with_progress
from sympformer.studies.results import NOT_SHOWN, ModelResult, Results
from sympformer.studies.results.loss_plots import X_LABELS, Against, drawn_curves, loss_curves, worth_drawing
from sympformer.studies.results.plot_style import (
    INK,
    NORMAL,
    SMALL,
    TYPEFACES,
    UNITS,
    blank_figure,
    gid_of,
    label_of,
    left_out,
    line_style,
    look_of,
    marker_of,
    scored_split,
    state_of,
    tidy,
    twin_marker,
    unranked,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

DPI = 160
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
        """Its SVG, written once: a file of its own and the report take the same."""
        return svg_text(self.figure)


def pictures(results: Results) -> list[Picture]:
    """All plots that the results have figures for."""
    made: list[Picture] = []
    if any(state_of(results, model) == "ranked" for model in results.models):
        made.append(Picture("ranking", "Ranking", _ranking_caption(results), ranking(results)))
    for against in X_LABELS:
        if worth_drawing(results, against):
            name, heading = f"loss-{against.replace(' ', '-')}", f"Validation loss against {against}"
            made.append(Picture(name, heading, _curves_caption(results, against), loss_curves(results, against)))
    if any(name in row for model in results.models for row in model.layers for name in SCALARS):
        caption = f"At the end of training, first seed, by depth. {left_out(results)}"
        made.append(Picture("layers", "What the layers learned", caption, layers(results)))
    return made


def write_plots(drawn: Sequence[Picture], folder: Path) -> list[Path]:
    """Write every plot as .svg (transparent) and .png (on white) into a folder; all of them or none."""
    with staged_files(folder) as work:
        for i in steps_with_progress(len(drawn), "plotting"):
            (work / f"{drawn[i].name}.svg").write_text(drawn[i].svg, encoding="utf-8")
            drawn[i].figure.savefig(work / f"{drawn[i].name}.png", dpi=DPI, facecolor="white")
    return [folder / f"{picture.name}.{suffix}" for picture in drawn for suffix in ("svg", "png")]


def svg_text(figure: "Figure") -> str:
    """A figure as SVG: text stays text, nothing depends on the day it was made."""
    from matplotlib import rc_context

    file = io.StringIO()
    nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "sympformer"}):
        figure.savefig(file, format="svg", transparent=True, metadata=nothing)
    return re.sub(r"font-family: [^;]*", f"font-family: {TYPEFACES}", file.getvalue())


def _curves_caption(results: Results, against: Against) -> str:
    seeds = "Mean over the seeds; the band reaches from the best seed to the worst." if len(results.seeds) > 1 else ""
    drawn = {curve.model.name for curve in drawn_curves(results, against)}
    rest = [m.name for m in results.models if m.name not in drawn and state_of(results, m) != "no figures"]
    unplaced = f"Not drawn, as their {against} are not known: {', '.join(rest)}." if rest else ""
    return " ".join(part for part in (seeds, unplaced, left_out(results)) if part)


# --- ranking


def ranking(results: Results) -> "Figure":
    """Every seed and the mean on test data, best at the top; beside it the difference to the baseline."""
    models = [model for model in results.ranked() if state_of(results, model) == "ranked"]
    paired = any(model.difference is not None for model in models)
    figure, [left, *right] = blank_figure(height=0.95 + 0.24 * len(models), columns=2 if paired else 1)
    for row, model in enumerate(models):
        _figure_row(left, results, model, row)
        for beside in right:
            _difference_row(beside, results, model, row)
    reference = next((m for m in models if m.name == results.against), None)
    if reference is not None and (baseline := results.metric_of(reference)) is not None:
        left.axvline(baseline.mean, color=look_of(results, reference)[1], lw=0.9, alpha=0.7, zorder=1)
    left.set_xlabel(f"{scored_split(results)} data, {UNITS[results.metric]}")
    left.set_yticks(
        range(len(models)), [f"{label_of(results, m)}\N{EN SPACE}{m.rank:\N{FIGURE SPACE}>2}" for m in models]
    )
    for beside in right:
        beside.axvline(0, color=INK, lw=0.9, alpha=0.7, zorder=1)
        beside.set_xlabel(f"minus {results.against}{', 95 % interval' if len(results.seeds) > 1 else ''}")
        beside.set_yticks(range(len(models)), [])
    for one in (left, *right):
        one.set_ylim(len(models) - 0.4, -0.6)
        tidy(one)
        one.tick_params(axis="y", length=0)
        one.spines["left"].set_visible(False)
    _colour_names(left, results, models)
    return figure


def _figure_row(axis: "Axes", results: Results, model: ModelResult, row: int) -> None:
    figure = results.metric_of(model)
    assert figure is not None  # only ranked models come here
    colour, marker = look_of(results, model)[1], twin_marker(results, model, "o")
    gid = gid_of(results, model)
    axis.plot(figure.values, [row] * len(figure.values), "|", ms=8, mew=1, color=colour, alpha=0.65, gid=f"{gid}-seeds")
    axis.plot(
        figure.mean, row, marker, ms=6, mec=colour, mfc=_fill(model, colour), mew=1.4, zorder=3, gid=f"{gid}-mean"
    )


def _difference_row(axis: "Axes", results: Results, model: ModelResult, row: int) -> None:
    found = model.difference
    if found is None:
        return
    colour, marker = look_of(results, model)[1], twin_marker(results, model, "o")
    gid = gid_of(results, model)
    if found.low is not None and found.high is not None:
        pale = 0.55 if found.settled == NOT_SHOWN else 1.0
        axis.plot(
            [found.low, found.high], [row, row], lw=1.8, color=colour, alpha=pale, solid_capstyle="butt",
            gid=f"{gid}-interval",
        )  # fmt: skip
    fill = _fill(model, colour)
    axis.plot(found.mean, row, marker, ms=5, mec=colour, mfc=fill, mew=1.4, zorder=3, gid=f"{gid}-difference")


def _fill(model: ModelResult, colour: str) -> str:
    """Hollow for the preset "paper", the dashes of this plot."""
    return "none" if model.preset == "paper" else colour


def _colour_names(axis: "Axes", results: Results, models: list[ModelResult]) -> None:
    for label, model in zip(axis.get_yticklabels(), models, strict=True):
        label.set(color=look_of(results, model)[1], weight="bold" if model.name == results.baseline else "normal")


def _ranking_caption(results: Results) -> str:
    seeds = "Dots are means over the seeds, strokes the seeds" if len(results.seeds) > 1 else "One seed"
    pale = "no difference is shown after Holm's correction" if results.corrected else "the interval contains zero"
    interval = f"; at the right the difference paired by seed, pale where {pale}"
    paired = any(model.difference is not None and model.difference.low is not None for model in results.models)
    hollow = " Hollow: preset “paper”." if any(model.preset == "paper" for model in results.models) else ""
    return " ".join(f"{seeds}{interval if paired else ''}.{hollow} {unranked(results)} {left_out(results)}".split())


# --- layers


def layers(results: Results) -> "Figure":
    """Step sizes, damping and momentum by depth: a panel a quantity, a line a model."""
    models = [model for model in results.ranked() if state_of(results, model) != "no figures"]
    panels = {name: label for name, label in SCALARS.items() if any(name in row for m in models for row in m.layers)}
    rows = math.ceil(len(panels) / 2)
    figure, axes = blank_figure(height=2.6 * rows + 0.3, columns=2, rows=rows)
    handles: dict[str, Any] = {}
    for axis, (name, label) in zip(axes, panels.items(), strict=False):
        for model in models:
            depths = [k for k, row in enumerate(model.layers, start=1) if name in row]
            values = [model.layers[k - 1][name] for k in depths]
            if depths:
                style = line_style(results, model) | {"marker": marker_of(results, model), "ms": 3.6, "lw": 1.1}
                style["mfc"] = "none" if model.preset == "paper" else style["color"]
                gid = f"{gid_of(results, model)}-{name}"
                handles[label_of(results, model)] = axis.plot(depths, values, gid=gid, **style)[0]
        _depth_axis(axis, label, [row[name] for model in models for row in model.layers if name in row])
    for axis in axes[len(panels) :]:
        axis.set_visible(False)
    ordered = [label for model in models if (label := label_of(results, model)) in handles]
    figure.legend(
        handles=[handles[label] for label in ordered], labels=ordered, loc="outside right upper", frameon=False,
        fontsize=SMALL, labelcolor=INK, handlelength=3.4, alignment="left",
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
    tidy(axis)
