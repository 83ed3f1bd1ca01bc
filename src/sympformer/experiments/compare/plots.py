"""The plots of a comparison: loss curves, the ranking, and what the layers learned.

matplotlib is imported inside the functions, so that importing this module stays light. Figures are made without
pyplot: nothing global is touched, nothing is left open. Backgrounds are transparent, text is a neutral grey.
"""

import io
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from sympformer.experiments.compare.plan import CompareConfig
from sympformer.experiments.compare.plot_style import (
    FAINT,
    INK,
    NORMAL,
    SMALL,
    TYPEFACES,
    family_of,
    keys_of,
    label_of,
    left_out,
    line_style,
    marker_of,
    spread_out,
    state_of,
    tidy,
    unranked,
)
from sympformer.experiments.compare.results import Curve, ModelResult, Results
from sympformer.progress import steps_with_progress
from sympformer.staging import staged_files
from sympformer.training.config import TrainConfig
from sympformer.training.model_choice import choose_model

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Against = Literal["tokens", "seconds", "oracle calls"]

DPI = 160
WIDTH = 10.0  # inches; 9-point text then is 12 pixels high on a page of 960
UNITS = {"loss": "nats per token", "bits_per_byte": "bits per byte"}
X_LABELS: dict[Against, str] = {
    "tokens": "training tokens",
    "seconds": "training time, s (tokens by the measured tokens/s, so that a busy machine does not decide)",
    "oracle calls": "oracle calls (forward passes × layers × kernel evaluations a layer)",
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


def pictures(results: Results) -> list[Picture]:
    """All plots that the results have figures for."""
    out = left_out(results)
    made: list[Picture] = []
    if any(state_of(results, model) == "ranked" for model in results.models):
        made.append(Picture("ranking", "Ranking", _ranking_caption(results), ranking(results)))
    for against in X_LABELS:
        if curves := _curves(results, against):
            caption = f"Mean over the seeds; the band reaches from the best seed to the worst. {out}"
            heading = f"Validation loss against {against}"
            made.append(Picture(f"loss-{against.replace(' ', '-')}", heading, caption, _draw(results, against, curves)))
    if any(name in row for model in results.models for row in model.layers for name in SCALARS):
        caption = f"At the end of training, first seed, by depth. {out}"
        made.append(Picture("layers", "What the layers learned", caption, layers(results)))
    return made


def write_plots(results: Results, folder: Path) -> list[Path]:
    """Write every plot as .svg (transparent) and .png (on white) into a folder; all of them or none."""
    drawn = pictures(results)
    with staged_files(folder) as work:
        for i in steps_with_progress(len(drawn), "plotting"):
            (work / f"{drawn[i].name}.svg").write_text(svg_text(drawn[i].figure), encoding="utf-8")
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


# --- loss curves


def loss_curves(results: Results, against: Against = "tokens") -> "Figure":
    """Validation loss on the way, a line a model, labelled at its end."""
    return _draw(results, against, _curves(results, against))


def oracle_calls_per_token(results: Results, model: ModelResult) -> float | None:
    """Kernel evaluations by training tokens: a forward pass makes some in every layer; None without its config."""
    config = results.config
    if model.name in config.get("models", {}):
        comparison = CompareConfig.from_dict(config)
        options, training = comparison.model_options(model.name), comparison.common
    elif model.name in config:  # runs side by side, each with a config of its own
        training = TrainConfig.from_dict(config[model.name])
        options = training.model
    else:
        return None
    cfg = choose_model(options)
    return model.oracle_calls * cfg.n_layer / (training.batch_size * cfg.block_size)


def _curves(results: Results, against: Against) -> list[tuple[ModelResult, list[float], list[Curve]]]:
    """The models to draw, with the places of their evaluations on the x axis."""
    chosen = []
    for model in results.models:
        scale = _scale(results, model, against)
        if state_of(results, model) != "no figures" and model.curves and scale is not None:
            length = min(len(curve.loss) for curve in model.curves)
            chosen.append((model, [scale * tokens for tokens in model.curves[0].tokens[:length]], model.curves))
    return chosen


def _scale(results: Results, model: ModelResult, against: Against) -> float | None:
    if against == "tokens":
        return 1.0
    if against == "seconds":
        return 1 / model.tokens_per_second if model.tokens_per_second else None
    return oracle_calls_per_token(results, model)


def _draw(results: Results, against: Against, chosen: list[tuple[ModelResult, list[float], list[Curve]]]) -> "Figure":
    figure, [axis] = _figure(height=max(4.6, 1.3 + 0.16 * len(chosen)))
    ends: dict[str, tuple[float, float]] = {}
    for model, xs, curves in chosen:
        rows = [[curve.loss[k] for curve in curves] for k in range(len(xs))]
        mean = [sum(row) / len(row) for row in rows]
        style = line_style(results, model)
        gid = _gid(results, model)
        axis.plot(xs, mean, gid=f"{gid}-line", marker="o" if len(xs) == 1 else "", ms=4, **style)
        if len(curves) > 1 and state_of(results, model) == "ranked":
            low, high = [min(row) for row in rows], [max(row) for row in rows]
            axis.fill_between(xs, low, high, color=style["color"], alpha=0.13, lw=0, zorder=1, gid=f"{gid}-band")
        ends[model.name] = (xs[-1], mean[-1])
    _limits(axis, results, chosen)
    axis.set_xlabel(X_LABELS[against])
    axis.set_ylabel("validation loss, nats per token")
    axis.xaxis.set_major_formatter(_thousands)
    tidy(axis)
    _end_labels(axis, results, ends)
    figure.legend(
        handles=keys_of(results, [model for model, _, _ in chosen]), ncols=6, loc="outside upper left",
        frameon=False, fontsize=SMALL, labelcolor=INK, handlelength=2.2, columnspacing=1.6,
    )  # fmt: skip
    return figure


def _limits(axis: "Axes", results: Results, chosen: list[tuple[ModelResult, list[float], list[Curve]]]) -> None:
    """Show where the models part: the first fifth of training, steep and alike, leaves the frame at the top."""
    ranked = [row for row in chosen if state_of(results, row[0]) == "ranked"] or chosen
    losses = [c.loss for _, _, curves in ranked for c in curves]
    late = [loss for values in losses for loss in values[(len(values) - 1) // 5 :]]
    low, high = min(late), max(late)
    room = 0.04 * (high - low) or 0.1
    axis.set_ylim(low - room, high + room)
    axis.set_xlim(0, max(xs[-1] for _, xs, _ in chosen))


def _end_labels(axis: "Axes", results: Results, ends: Mapping[str, tuple[float, float]]) -> None:
    """Names at the right, moved apart, each with a thin line to the end of its curve."""
    low, high = axis.get_ylim()
    right = axis.get_xlim()[1]
    by_name = {model.name: model for model in results.models}
    gap = (high - low) * 0.16 / (axis.figure.get_figheight() - 1.1)  # inches a label needs
    places = spread_out([y for _, y in ends.values()], gap, low, high)
    for (name, (x, y)), place in zip(ends.items(), places, strict=True):
        model = by_name[name]
        colour = line_style(results, model)["color"]
        gid = _gid(results, model)
        if low <= y <= high:
            bend = [x, right * 1.006, right * 1.03]
            thin: dict[str, Any] = {"color": colour, "lw": 0.5, "alpha": 0.6, "zorder": 1, "clip_on": False}
            axis.plot(bend, [y, y, place], gid=f"{gid}-leader", **thin)
        outside = " ↓" if y < low else " ↑" if y > high else ""
        axis.text(
            right * 1.036, place, label_of(results, model) + outside, color=colour, fontsize=SMALL, va="center",
            weight="bold" if name == results.baseline else "normal", gid=f"{gid}-label",
        )  # fmt: skip


# --- ranking


def ranking(results: Results) -> "Figure":
    """Every seed and the mean on test data, best at the top; beside it the difference to the baseline."""
    models = [model for model in results.ranked() if state_of(results, model) == "ranked"]
    paired = any(model.difference is not None for model in models)
    figure, [left, *right] = _figure(height=0.95 + 0.24 * len(models), columns=2 if paired else 1)
    for row, model in enumerate(models):
        _figure_row(left, results, model, row)
        for beside in right:
            _difference_row(beside, results, model, row)
    reference = next((m for m in models if m.name == results.baseline), None)
    if reference is not None and (baseline := results.metric_of(reference)) is not None:
        left.axvline(baseline.mean, color=family_of(reference).colour, lw=0.9, alpha=0.7, zorder=1)
    left.set_xlabel(f"{results.data.get('scored', 'test')} data, {UNITS[results.metric]}")
    left.set_yticks(range(len(models)), [f"{m.name}  {m.rank:\N{FIGURE SPACE}>2}" for m in models])
    for beside in right:
        beside.axvline(0, color=INK, lw=0.9, alpha=0.7, zorder=1)
        beside.set_xlabel(f"minus {results.baseline}, 95 % interval")
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
    colour = family_of(model).colour
    gid = _gid(results, model)
    axis.plot(figure.values, [row] * len(figure.values), "|", ms=8, mew=1, color=colour, alpha=0.65, gid=f"{gid}-seeds")
    axis.plot(figure.mean, row, "o", ms=6, mec=colour, mfc=_fill(model), mew=1.4, zorder=3, gid=f"{gid}-mean")


def _difference_row(axis: "Axes", results: Results, model: ModelResult, row: int) -> None:
    found = model.difference
    if found is None:
        return
    colour = family_of(model).colour
    gid = _gid(results, model)
    if found.low is not None and found.high is not None:
        pale = 0.55 if found.verdict == "no difference shown" else 1.0
        axis.plot(
            [found.low, found.high], [row, row], lw=1.8, color=colour, alpha=pale, solid_capstyle="butt",
            gid=f"{gid}-interval",
        )  # fmt: skip
    axis.plot(found.mean, row, "o", ms=5, mec=colour, mfc=_fill(model), mew=1.4, zorder=3, gid=f"{gid}-difference")


def _fill(model: ModelResult) -> str:
    """Hollow for the preset "paper", the dashes of this plot."""
    return "none" if model.preset == "paper" else family_of(model).colour


def _colour_names(axis: "Axes", results: Results, models: list[ModelResult]) -> None:
    for label, model in zip(axis.get_yticklabels(), models, strict=True):
        label.set(color=family_of(model).colour, weight="bold" if model.name == results.baseline else "normal")


def _ranking_caption(results: Results) -> str:
    seeds = "Dots are means over the seeds, strokes the seeds"
    interval = "; at the right the difference paired by seed, pale where the interval contains zero"
    paired = any(model.difference is not None and model.difference.low is not None for model in results.models)
    hollow = " Hollow: preset “paper”." if any(model.preset == "paper" for model in results.models) else ""
    return f"{seeds}{interval if paired else ''}.{hollow} {unranked(results)} {left_out(results)}"


# --- layers


def layers(results: Results) -> "Figure":
    """Step sizes, damping and momentum by depth: a panel a quantity, a line a model."""
    models = [model for model in results.ranked() if state_of(results, model) != "no figures"]
    panels = {name: label for name, label in SCALARS.items() if any(name in row for m in models for row in m.layers)}
    figure, axes = _figure(height=2.6 * math.ceil(len(panels) / 2) + 0.3, columns=2, rows=math.ceil(len(panels) / 2))
    handles: dict[str, Any] = {}
    for axis, (name, label) in zip(axes, panels.items(), strict=False):
        for model in models:
            depths = [k for k, row in enumerate(model.layers, start=1) if name in row]
            values = [model.layers[k - 1][name] for k in depths]
            if depths:
                style = line_style(results, model) | {"marker": marker_of(model), "ms": 3.6, "lw": 1.1}
                gid = f"{_gid(results, model)}-{name}"
                handles[label_of(results, model)] = axis.plot(depths, values, mfc=_fill(model), gid=gid, **style)[0]
        _depth_axis(axis, label)
    for axis in axes[len(panels) :]:
        axis.set_visible(False)
    ordered = [label for model in models if (label := label_of(results, model)) in handles]
    figure.legend(
        handles=[handles[label] for label in ordered], labels=ordered, loc="outside right upper", frameon=False,
        fontsize=SMALL, labelcolor=INK, handlelength=3.4, alignment="left",
    )  # fmt: skip
    return figure


def _depth_axis(axis: "Axes", label: str) -> None:
    from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator

    axis.set_title(label, fontsize=NORMAL, color=INK, loc="left")
    values = [value for line in axis.lines for value in line.get_ydata()]
    if all(value > 0 for value in values) and max(values) > 8 * min(values):
        axis.set_yscale("log")
        axis.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.yaxis.set_minor_locator(NullLocator())
        axis.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    axis.set_xlabel("layer")
    tidy(axis)


# --- parts


def _figure(height: float, columns: int = 1, rows: int = 1) -> tuple["Figure", list["Axes"]]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH, height), layout="constrained")
    figure.patch.set_alpha(0)
    figure.get_layout_engine().set(w_pad=0.06, h_pad=0.05)
    return figure, figure.subplots(rows, columns, squeeze=False).ravel().tolist()


def _gid(results: Results, model: ModelResult) -> str:
    """What all parts of a model's drawing have in their SVG id, the same in every plot."""
    return f"model-{results.models.index(model)}"


def _thousands(value: float, _: int) -> str:
    return f"{value:,.0f}"
