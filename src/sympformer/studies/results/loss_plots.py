"""Loss on the way of training, a line a model, against tokens, seconds or kernel passes.

Where the training loss was kept it is the line, and circles are the validation loss; else the line is validation.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from sympformer.studies.results import ModelResult, Results
from sympformer.studies.results.plot_style import (
    INK,
    SMALL,
    blank_figure,
    gid_of,
    keys_of,
    label_of,
    line_style,
    spread_out,
    state_of,
    tidy,
    twin_marker,
)
from sympformer.training.choices import choose_model, model_options
from sympformer.training.config import TrainConfig

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Against = Literal["tokens", "seconds", "kernel passes"]

LABEL = 0.16  # inches a label needs
X_LABELS: dict[Against, str] = {
    "tokens": "training tokens",
    "seconds": "training time, s (tokens by the measured tokens/s, so that a busy machine does not decide)",
    "kernel passes": "kernel passes (forward passes by layers by passes a layer)",
}


@dataclass(frozen=True)
class Drawn:
    """A model's curve: places on the x axis, and the losses of all seeds at each."""

    model: ModelResult
    xs: list[float]
    losses: list[list[float]]


def loss_curves(results: Results, against: Against = "tokens") -> "Figure":
    """A line a model, labelled at its end; a model without a place on the x axis is left out."""
    chosen = drawn_curves(results, against)
    height = max(4.6, 1.3 + LABEL * len(chosen))
    figure, [axis] = blank_figure(height)
    ends: dict[str, tuple[float, float]] = {}
    for drawn in chosen:
        mean = [sum(row) / len(row) for row in drawn.losses]
        style = line_style(results, drawn.model)
        gid = gid_of(results, drawn.model)
        if train := training_line(drawn):
            axis.plot(*train, gid=f"{gid}-line", alpha=0.7, **style)
            dots = {"color": style["color"], "zorder": style["zorder"] + 0.1}
            marker = twin_marker(results, drawn.model, "o")
            axis.plot(drawn.xs, mean, gid=f"{gid}-circles", ls="none", marker=marker, ms=3, **dots)
        else:
            marker = twin_marker(results, drawn.model, "o" if len(mean) == 1 else "")
            axis.plot(drawn.xs, mean, gid=f"{gid}-line", marker=marker, ms=4, **style)
        if len(results.seeds) > 1 and state_of(results, drawn.model) == "ranked":
            low, high = [min(row) for row in drawn.losses], [max(row) for row in drawn.losses]
            axis.fill_between(drawn.xs, low, high, color=style["color"], alpha=0.13, lw=0, zorder=1, gid=f"{gid}-band")
        ends[drawn.model.name] = (drawn.xs[-1], mean[-1])
    _limits(axis, results, chosen)
    axis.set_xlabel(X_LABELS[against])
    lines = any(training_line(drawn) for drawn in chosen)
    axis.set_ylabel("training loss (lines), validation (circles), nats" if lines else "validation loss, nats per token")
    axis.xaxis.set_major_formatter(_short)
    tidy(axis)
    _end_labels(axis, results, ends, LABEL / (height - 1.1))
    figure.legend(
        handles=keys_of(results, [drawn.model for drawn in chosen]), ncols=6, loc="outside upper left",
        frameon=False, fontsize=SMALL, labelcolor=INK, handlelength=2.2, columnspacing=1.6,
    )  # fmt: skip
    return figure


def training_line(drawn: Drawn) -> tuple[list[float], list[float]] | None:
    """Places and mean training losses over the seeds; None where they were not kept."""
    curves = drawn.model.curves
    length = min(len(curve.train_loss) for curve in curves)
    if not length:
        return None
    scale = drawn.xs[-1] / curves[0].tokens[len(drawn.xs) - 1]
    xs = [scale * tokens for tokens in curves[0].train_tokens[:length]]
    return xs, [sum(curve.train_loss[k] for curve in curves) / len(curves) for k in range(length)]


def kernel_passes_per_token(results: Results) -> dict[str, float]:
    """Kernel passes by training tokens, of the models with a config: a forward pass makes some in every layer."""
    if "common" in results.config:
        common = TrainConfig.from_dict(results.config["common"])
        models = results.config.get("options") or results.config["models"]  # in full, where some follow from others
        known = {name: (common, model_options(common.model, own)) for name, own in models.items()}
    else:  # runs side by side, each with a config of its own
        configs = {name: TrainConfig.from_dict(values) for name, values in results.config.items()}
        known = {name: (config, config.model) for name, config in configs.items()}
    passes = {}
    for model in results.models:
        if model.name in known and model.passes_a_layer is not None:
            training, options = known[model.name]
            cfg = choose_model(options)
            passes[model.name] = model.passes_a_layer * cfg.n_layer / (training.batch_size * cfg.block_size)
    return passes


def worth_drawing(results: Results, against: Against) -> bool:
    """Whether there is something to draw that the plot against tokens does not show.

    Models that make the same kernel passes for a token differ from that plot by their ticks only.
    """
    drawn = drawn_curves(results, against)
    if against != "kernel passes":
        return bool(drawn)
    passes = kernel_passes_per_token(results)
    return len({round(passes[curve.model.name], 12) for curve in drawn}) > 1


def drawn_curves(results: Results, against: Against) -> list[Drawn]:
    """The models to draw, with the places of their evaluations on the x axis."""
    scales = _scales(results, against)
    chosen = []
    for model in results.models:
        if state_of(results, model) != "no figures" and model.curves and model.name in scales:
            length = min(len(curve.loss) for curve in model.curves)
            xs = [scales[model.name] * tokens for tokens in model.curves[0].tokens[:length]]
            chosen.append(Drawn(model, xs, [[curve.loss[k] for curve in model.curves] for k in range(length)]))
    return chosen


def _scales(results: Results, against: Against) -> dict[str, float]:
    """What a training token counts on the x axis, by model."""
    if against == "tokens":
        return {model.name: 1.0 for model in results.models}
    if against == "seconds":
        return {model.name: 1 / model.tokens_per_second for model in results.models if model.tokens_per_second}
    return kernel_passes_per_token(results)


def _limits(axis: "Axes", results: Results, chosen: list[Drawn]) -> None:
    """Show where the models part: the first fifth of training, steep and alike, leaves the frame at the top."""
    ranked = [drawn for drawn in chosen if state_of(results, drawn.model) == "ranked"] or chosen
    late = [loss for drawn in ranked for row in drawn.losses[(len(drawn.losses) - 1) // 5 :] for loss in row]
    low, high = min(late), max(late)
    room = 0.04 * (high - low) or 0.1
    axis.set_ylim(low - room, high + room)
    axis.set_xlim(0, max(drawn.xs[-1] for drawn in chosen))


def _end_labels(axis: "Axes", results: Results, ends: Mapping[str, tuple[float, float]], share: float) -> None:
    """Names at the right, moved apart, each with a thin line to the end of its curve.

    share: what a label needs of the height.
    """
    low, high = axis.get_ylim()
    right = axis.get_xlim()[1]
    by_name = {model.name: model for model in results.models}
    places = spread_out([y for _, y in ends.values()], share * (high - low), low, high)
    for (name, (x, y)), place in zip(ends.items(), places, strict=True):
        model = by_name[name]
        colour = line_style(results, model)["color"]
        gid = gid_of(results, model)
        if low <= y <= high:
            bend = [x, right * 1.006, right * 1.03]
            thin: dict[str, Any] = {"color": colour, "lw": 0.5, "alpha": 0.6, "zorder": 1, "clip_on": False}
            axis.plot(bend, [y, y, place], gid=f"{gid}-leader", **thin)
        outside = " ↓" if y < low else " ↑" if y > high else ""
        axis.text(
            right * 1.036, place, label_of(results, model) + outside, color=colour, fontsize=SMALL, va="center",
            weight="bold" if name == results.baseline else "normal", gid=f"{gid}-label",
        )  # fmt: skip


def _short(value: float, _: float) -> str:
    return f"{value / 1e6:g} M" if value >= 1e5 else f"{value:,.0f}"
