"""Still pictures of flows: tokens side by side, and energy against oracle calls.

matplotlib is imported inside the functions, so that importing this module stays light. Figures are made without
pyplot: nothing global is touched, nothing is left open.
"""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch

from sympformer.studies.flow.race import Race, Run
from sympformer.studies.flow.scene import Scene, Stage, pick, share, stage

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Colour = Literal["token", "speed"]
Painter = Callable[[Scene, float], Any]  # (scene, oracle calls) -> RGBA (N, 4)

# Okabe and Ito's colours, told apart by every kind of colour vision; the references are grey and dashed.
COLOURS = {
    "gradient_flow": "#000000",
    "plain_euler": "#E69F00",
    "presymp_euler": "#CC79A7",
    "symplectic_euler": "#D55E00",
    "exp_euler": "#009E73",
    "ab2": "#56B4E9",
    "etd_ab2": "#0072B2",
    "rk4": "#999999",
    "nesterov": "#999999",
}
LABELS = {
    "gradient_flow": "gradient flow",
    "plain_euler": "plain Euler",
    "presymp_euler": "presymplectic Euler",
    "symplectic_euler": "symplectic Euler",
    "exp_euler": "exponential Euler",
    "ab2": "AB-2",
    "etd_ab2": "ETD-AB-2",
    "rk4": "RK4",
    "nesterov": "Nesterov (Euclidean)",
}
DASHES = {"rk4": (0, (5, 2)), "nesterov": (0, (1, 1.5))}
GREY = "#666666"
DPI = 150


def colour_of(integrator: str) -> str:
    """The colour of a method in every picture."""
    return COLOURS.get(integrator, GREY)


def label_of(integrator: str) -> str:
    """The name of a method in every picture."""
    return LABELS.get(integrator, integrator)


def token_strip(race: Race, heading: str, colour: Colour = "token") -> "Figure":
    """Rows: methods. Columns: the same numbers of oracle calls. Trails show where the tokens come from."""
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    view = stage(race, pick(race))
    rows, columns = len(view.scenes), len(view.moments)
    tight = ConstrainedLayoutEngine(h_pad=0.03, w_pad=0.03)
    figure = Figure(figsize=(8.0, 0.7 + 1.72 * rows), dpi=DPI, layout=tight)
    grid = figure.subplots(rows, columns, squeeze=False)
    paint = painter(view, colour)
    for row, scene in zip(grid, view.scenes, strict=True):
        for axis, calls in zip(row, view.moments, strict=True):
            frame(axis, view.reach)
            _draw_tokens(axis, scene, calls, view.arrival, paint)
            axis.text(0.96, 0.03, note(race, scene, calls), **_note_style(axis))
        name = scene.run.integrator
        row[0].set_ylabel(label_of(name), color=colour_of(name), fontsize=9.5, weight="bold")
    for axis, calls in zip(grid[0], view.moments, strict=True):
        axis.set_title("start" if calls == 0 else f"{calls} oracle call{'s' if calls > 1 else ''}", fontsize=9)
    figure.suptitle(heading, fontsize=min(10.5, 1050 / len(heading)))
    caption = [tokens(race), f"across: {view.axes[0]}", f"up: {view.axes[1]}"]
    caption += ["the darker, the faster"] if colour == "speed" else []
    figure.supxlabel("     ".join(caption), fontsize=8, color=GREY)
    return figure


def tokens(race: Race) -> str:
    """How many tokens, in how many dimensions."""
    n, d = next(iter(race.runs.values())).path.x.shape[-2:]
    return f"{n} token{'s' if n > 1 else ''} in {d} dimensions"


def frame(axis: "Axes", reach: float) -> None:
    """An empty square window on the plane, with some room below for a note."""
    axis.set_aspect("equal")
    axis.set_xlim(-reach, reach)
    axis.set_ylim(-1.2 * reach, reach)
    axis.set_xticks([])
    axis.set_yticks([])
    axis.axhline(0, color="#e8e8e8", lw=0.6, zorder=0)
    axis.axvline(0, color="#e8e8e8", lw=0.6, zorder=0)
    for spine in axis.spines.values():
        spine.set_color("#bbbbbb")
        spine.set_linewidth(0.7)


def painter(view: Stage, colour: Colour) -> Painter:
    """Colours by token (its place at the start, left to right) or by speed (per oracle call, logarithmic)."""
    from matplotlib import colormaps
    from matplotlib.colors import LogNorm, Normalize

    if colour == "token":
        place = view.scenes[0].points[0, :, 0].numpy()
        fixed = colormaps["plasma"](0.88 * Normalize()(place))
        return lambda scene, calls: fixed
    fastest = max(float(scene.speed(float(c)).max()) for scene in view.scenes for c in scene.calls)
    norm = LogNorm(max(fastest, 1e-12) * 1e-3, max(fastest, 1e-12), clip=True)
    return lambda scene, calls: colormaps["viridis_r"](norm(scene.speed(calls).clamp_min(1e-300).numpy()))


def trail(scene: Scene, calls: float, length: float, rgba: Any) -> tuple[Any, Any]:
    """Segments (L N, 2, 2) and their fading colours (L N, 4)."""
    import numpy as np

    segments, age = scene.trail(calls, length)
    faded = np.tile(rgba, (len(age), 1))
    faded[:, 3] = (0.05 + 0.45 * (1 - age) ** 1.5).repeat_interleave(len(rgba)).numpy()
    return segments.reshape(-1, 2, 2).numpy(), faded


def _draw_tokens(axis: "Axes", scene: Scene, calls: float, length: float, paint: Painter) -> None:
    from matplotlib.collections import LineCollection

    rgba = paint(scene, calls)
    lines, colours = trail(scene, calls, length, rgba)
    axis.add_collection(LineCollection(list(lines), colors=colours, linewidths=0.8, zorder=1))
    across, up = scene.at(calls).mT.numpy()
    axis.scatter(across, up, s=9, c=rgba, linewidths=0, zorder=2)


def note(race: Race, scene: Scene, calls: float) -> str:
    """The energy of the state on show, in words short enough for a corner."""
    left = float(scene.share[scene.index(calls)])
    if scene.run.diverged and calls > scene.calls[-1]:
        return "diverged"
    if race.bound is None:
        return f"energy {left:.3g}" + (", stopped" if calls > scene.calls[-1] else "")
    return f"energy {100 * left:.0f} %" if left >= 0.1 else f"energy {100 * left:.2g} %"


def _note_style(axis: "Axes") -> dict[str, Any]:
    return {"ha": "right", "va": "bottom", "fontsize": 7.5, "color": GREY, "transform": axis.transAxes}


def energy_plot(race: Race, heading: str) -> "Figure":
    """Energy against oracle calls, one line a method, a dot where it arrives for good."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.0, 4.0), dpi=DPI, layout="constrained")
    axis = figure.subplots()
    shown = pick(race)
    for run in reversed(race.ranked()):
        _energy_line(axis, race, run, bold=any(run is other for other in shown))
    arrivals = [run.calls for run in race.runs.values() if run.calls]
    energy_axes(axis, race, min(race.max_calls, 1.15 * max(arrivals, default=race.max_calls)), beside=True)
    axis.set_title(heading, fontsize=min(10.5, 960 / len(heading)), loc="left")
    handles, labels = axis.get_legend_handles_labels()
    axis.legend(
        handles[::-1], labels[::-1], frameon=False, fontsize=8.5, loc="upper left", bbox_to_anchor=(1.0, 1.02),
        title="oracle calls to the target", title_fontsize=8.5, alignment="left",
    )  # fmt: skip
    return figure


def _energy_line(axis: "Axes", race: Race, run: Run, bold: bool) -> None:
    arrival = str(run.calls) if run.calls is not None else "diverged" if run.diverged else "not reached"
    calls, left = run.path.oracle_calls.numpy(), share(race, run.path.potential).numpy()
    style: dict[str, Any] = {
        "color": colour_of(run.integrator),
        "ls": DASHES.get(run.integrator, "-"),
        "lw": 2.2 if bold else 1.1,
    }
    padded = arrival.rjust(3, "\N{FIGURE SPACE}")
    (line,) = axis.plot(calls, left, label=f"{padded}  {label_of(run.integrator)}", zorder=3 if bold else 2, **style)
    if run.calls is not None:
        i = int((run.path.oracle_calls == run.calls).nonzero()[0])
        axis.plot(calls[i], left[i], "o", ms=6.5 if bold else 4, color=line.get_color(), zorder=4)


def energy_axes(axis: "Axes", race: Race, until: float, beside: bool, size: float = 9) -> None:
    """Limits, labels and the target line, named beside the axes or inside them."""
    target = float(share(race, torch.tensor(race.target)))
    axis.set_xlim(0, until)
    if race.bound is not None:
        axis.set_yscale("log")
        axis.set_ylim(target / 20, 2)
        axis.yaxis.set_major_formatter(lambda value, _: f"{100 * value:g} %")
        axis.set_ylabel("energy, share of the start", fontsize=size)
    else:
        axis.set_ylim(1.3 * target, -0.5)
        axis.set_ylabel("energy / |initial energy|", fontsize=size)
    words = "target: 1 %" if race.bound is not None else "target: gradient flow's end"
    axis.axhline(target, color=GREY, lw=0.8, ls=(0, (4, 3)), zorder=0)
    place: dict[str, Any] = {"ha": "left", "va": "center"} if beside else {"ha": "right", "va": "bottom"}
    axis.text(until * (1.015 if beside else 1), target, words, fontsize=size - 1, color=GREY, **place)
    axis.set_xlabel("oracle calls (kernel evaluations)", fontsize=size)
    axis.tick_params(labelsize=size - 0.5)
    axis.spines[["top", "right"]].set_visible(False)


def titles(race: Race, what: str, shared_step: float | None) -> tuple[str, str]:
    """The headings of the token strip and of the energy plot, true whoever wins."""
    goal = "1 % of the energy" if race.bound is not None else "the gradient flow's final energy"
    how = "each method at its own best step" if shared_step is None else f"all with step {shared_step:g}"
    arrivals = ", ".join(f"{label_of(run.integrator)} {_in_words(run)}" for run in reversed(pick(race)))
    what = what[:1].upper() + what[1:]
    return f"{what}, oracle calls to {goal}: {arrivals}", f"{what}: oracle calls to {goal}, {how}"


def _in_words(run: Run) -> str:
    return "diverged" if run.diverged else "not reached" if run.calls is None else str(run.calls)


def save(figure: "Figure", file: Path) -> None:
    """Write a figure in the format of the file's suffix, without a date in it."""
    undated = {".png": {}, ".svg": {"Date": None}, ".pdf": {"CreationDate": None}}[file.suffix]
    figure.savefig(file, metadata=undated)
