"""Pictures of flows: tokens side by side after the same kernel passes, and energy against kernel passes.

Figures are made without pyplot: nothing global is touched, nothing is left open.
"""

import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from sympformer.flows import ACCELERATED
from sympformer.studies.flow.race import Race, Run

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

GREY, DPI = "#666666", 150
FINE = 30  # segments of a trail, about
# method -> name, colour, dashes: Okabe and Ito's colours, told apart by every kind of colour vision
LOOKS: dict[str, tuple[str, str, Any]] = {
    "gradient_flow": ("gradient flow", "#000000", "-"),
    "plain_euler": ("plain Euler", "#E69F00", "-"),
    "presymp_euler": ("presymplectic Euler", "#CC79A7", "-"),
    "symplectic_euler": ("symplectic Euler", "#D55E00", "-"),
    "exp_euler": ("exponential Euler", "#009E73", "-"),
    "ab2": ("AB-2", "#56B4E9", "-"),
    "etd_ab2": ("ETD-AB-2", "#0072B2", "-"),
    "rk4": ("RK4", "#999999", (0, (5, 2))),
    "nesterov": ("Nesterov (Euclidean)", "#999999", (0, (1, 1.5))),
}


def look_of(integrator: str) -> tuple[str, str, Any]:
    """Name, colour and dashes of a method in every picture."""
    return LOOKS.get(integrator, (integrator, GREY, "-"))


@dataclass(frozen=True)
class Scene:
    """One run seen in the plane: points (S, N, 2) after passes (S,), and the share of the energy left (S,)."""

    run: Run
    points: Tensor
    passes: Tensor
    share: Tensor

    def index(self, passes: float) -> int:
        """The last state that so many kernel passes reach."""
        return max(0, int(torch.searchsorted(self.passes, passes, right=True)) - 1)

    def at(self, passes: float) -> Tensor:
        """Points (N, 2), on the straight line between two states."""
        i = self.index(passes)
        if i + 1 >= len(self.passes):
            return self.points[-1]
        gap = float(self.passes[i + 1] - self.passes[i])
        return torch.lerp(self.points[i], self.points[i + 1], (passes - float(self.passes[i])) / gap)

    def trail(self, passes: float, length: float, rgba: Any) -> tuple[Any, Any]:
        """Segments (L N, 2, 2) of the last `length` passes and their colours (L N, 4), which fade with age."""
        import numpy as np

        first, last = self.index(passes - length), self.index(passes)
        stride = 1 + (last - first) // FINE  # long trails skip states: the eye does not see more
        kept = torch.arange(last, first - 1, -stride).flip(0)
        states = torch.cat((self.points[kept], self.at(passes).unsqueeze(0)))
        age = ((passes - self.passes[kept]) / length).clamp(0, 1)
        colours = np.tile(rgba, (len(age), 1))
        colours[:, 3] = (0.05 + 0.45 * (1 - age) ** 1.5).repeat_interleave(len(rgba)).numpy()
        return torch.stack((states[:-1], states[1:]), 2).reshape(-1, 2, 2).numpy(), colours


@dataclass(frozen=True)
class Stage:
    """Scenes that share one plane."""

    scenes: list[Scene]
    axes: tuple[str, str]
    reach: float  # half its width
    moments: list[int]  # kernel passes of the columns
    arrival: int  # of the accelerated run; the length of trails too
    rgba: Any  # (N, 4): a colour for every token


def pick(race: Race) -> list[Run]:
    """The runs to show: the gradient flow and the fastest accelerated method, else the fastest other one."""
    rival = race.best(ACCELERATED) or race.best(set(race.runs) - {"gradient_flow"})
    return [race.runs["gradient_flow"], *([rival] if rival else [])]


def stage(race: Race) -> Stage:
    """Put the runs in one plane: their own for d = 2, else the two leading principal components of all states shown.

    Where tokens gather: the start, the way, the arrival, three times that. Where they run away: up to the arrival.
    """
    from matplotlib import colormaps
    from matplotlib.colors import Normalize

    runs = pick(race)
    arrival = max(runs[-1].arrival or runs[0].arrival or int(runs[-1].passes[-1]) // 3, 4)
    gather = [0, arrival // 3, 2 * arrival // 3, arrival, 3 * arrival]
    columns = gather if race.bound is not None else [k * arrival // 4 for k in range(5)]
    shown = [run.path.x[run.passes <= columns[-1]] for run in runs]
    basis, axes = plane(shown)
    scenes = [
        Scene(run, x @ basis, run.passes[: len(x)].double(), share(race, run.path.potential[: len(x)]))
        for run, x in zip(runs, shown, strict=True)
    ]
    reach = max(float(scene.points.abs().max()) for scene in scenes)
    if race.bound is not None:  # tokens gather: one that shoots out must not shrink the others to a dot
        reach = min(reach, 1.3 * float(scenes[0].points[0].abs().max()))
    rgba = colormaps["plasma"](0.88 * Normalize()(scenes[0].points[0, :, 0].numpy()))  # by place at the start
    return Stage(scenes, axes, 1.1 * max(reach, 1e-12), columns, arrival, rgba)


def share(race: Race, potential: Tensor) -> Tensor:
    """Energy above its lower bound relative to the start; without a bound relative to |start|, falling from -1."""
    if race.bound is None:
        return potential / abs(race.start)
    return (potential - race.bound) / (race.start - race.bound)


def plane(shown: Sequence[Tensor]) -> tuple[Tensor, tuple[str, str]]:
    """A basis (d, 2) of the plane on show, its own for d = 2, else of two principal components; names of its axes."""
    d = shown[0].shape[-1]
    if d == 2:
        return torch.eye(2, dtype=shown[0].dtype), ("$x_1$", "$x_2$")
    states = torch.cat([x.reshape(-1, d) for x in shown])
    values, vectors = torch.linalg.eigh(states.mT @ states)
    first, second = (f"principal component {k} ({100 * values[-k] / values.sum():.0f} %)" for k in (1, 2))
    basis = vectors[:, [-1, -2]]
    return basis * basis.sum(0).sign(), (first, second)  # eigenvectors have no sign of their own: fix one


def token_strip(race: Race, heading: str) -> "Figure":
    """Rows: methods. Columns: the same numbers of kernel passes. Trails show where the tokens come from."""
    from matplotlib.collections import LineCollection
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    view = stage(race)
    tight = ConstrainedLayoutEngine(h_pad=0.03, w_pad=0.03)
    figure = Figure(figsize=(8.0, 0.7 + 1.72 * len(view.scenes)), dpi=DPI, layout=tight)
    grid = figure.subplots(len(view.scenes), len(view.moments), squeeze=False)
    for row, scene in zip(grid, view.scenes, strict=True):
        for axis, passes in zip(row, view.moments, strict=True):
            frame(axis, view.reach)
            lines, colours = scene.trail(passes, view.arrival, view.rgba)
            axis.add_collection(LineCollection(list(lines), colors=colours, linewidths=0.8, zorder=1))
            axis.scatter(*scene.at(passes).mT.numpy(), s=9, c=view.rgba, linewidths=0, zorder=2)
            style: dict[str, Any] = {"ha": "right", "fontsize": 7.5, "color": GREY, "transform": axis.transAxes}
            axis.text(0.96, 0.03, note(race, scene, passes), **style)
        name, colour, _ = look_of(scene.run.integrator)
        row[0].set_ylabel(name, color=colour, fontsize=9.5, weight="bold")
    for axis, passes in zip(grid[0], view.moments, strict=True):
        axis.set_title("start" if passes == 0 else f"{passes} kernel pass{'es' if passes > 1 else ''}", fontsize=9)
    figure.suptitle(heading, fontsize=min(10.5, 1050 / len(heading)))
    n, d = view.scenes[0].run.path.x.shape[-2:]
    caption = [f"{n} token{'s' if n > 1 else ''} in {d} dimensions", f"across: {view.axes[0]}", f"up: {view.axes[1]}"]
    figure.supxlabel("     ".join(caption), fontsize=8, color=GREY)
    return figure


def frame(axis: "Axes", reach: float) -> None:
    """An empty square window on the plane, with some room below for a note."""
    axis.set(aspect="equal", xlim=(-reach, reach), ylim=(-1.2 * reach, reach), xticks=[], yticks=[])
    axis.axhline(0, color="#e8e8e8", lw=0.6, zorder=0)
    axis.axvline(0, color="#e8e8e8", lw=0.6, zorder=0)
    for spine in axis.spines.values():
        spine.set(color="#bbbbbb", linewidth=0.7)


def note(race: Race, scene: Scene, passes: float) -> str:
    """The energy of the state on show, in words short enough for a corner."""
    left = float(scene.share[scene.index(passes)])
    if scene.run.diverged and passes > scene.passes[-1]:
        return "diverged"
    if race.bound is None:
        return f"energy {left:.3g}" + (", stopped" if passes > scene.passes[-1] else "")
    return f"energy {100 * left:.0f} %" if left >= 0.1 else f"energy {100 * left:.2g} %"


def energy_plot(race: Race, heading: str) -> "Figure":
    """Energy against kernel passes, one line a method, a dot where it arrives for good."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.0, 4.0), dpi=DPI, layout="constrained")
    axis = figure.subplots()
    shown = pick(race)
    for run in reversed(race.ranked()):
        bold, (name, colour, dashes) = any(run is one for one in shown), look_of(run.integrator)
        passes, left = run.passes.numpy(), share(race, run.path.potential).numpy()
        label = f"{arrival_in_words(run).rjust(3, chr(0x2007))}  {name}"  # a figure's space
        style: dict[str, Any] = {"color": colour, "ls": dashes, "lw": 2.2 if bold else 1.1, "zorder": 3 if bold else 2}
        axis.plot(passes, left, label=label, **style)
        if run.arrival is not None:
            i = int((run.passes == run.arrival).nonzero()[0])
            axis.plot(passes[i], left[i], "o", ms=6.5 if bold else 4, color=colour, zorder=4)
    arrivals = [run.arrival for run in race.runs.values() if run.arrival]
    energy_axes(axis, race, min(race.max_passes, 1.15 * max(arrivals, default=race.max_passes)))
    axis.set_title(heading, fontsize=min(10.5, 960 / len(heading)), loc="left")
    handles, labels = axis.get_legend_handles_labels()
    place: dict[str, Any] = {"loc": "upper left", "bbox_to_anchor": (1.0, 1.02), "alignment": "left"}
    words: dict[str, Any] = {"fontsize": 8.5, "title": "kernel passes to the target", "title_fontsize": 8.5}
    axis.legend(handles[::-1], labels[::-1], frameon=False, **place, **words)
    return figure


def energy_axes(axis: "Axes", race: Race, until: float, beside: bool = True) -> None:
    """Limits, labels and the target line, named beside the axes or inside them."""
    target = float(share(race, torch.tensor(race.target)))
    axis.set_xlim(0, until)
    axis.set_xlabel("kernel passes, as a model would pay them", fontsize=9)
    axis.set_ylabel("energy / |initial energy|" if race.bound is None else "energy, share of the start", fontsize=9)
    if race.bound is None:
        axis.set_ylim(1.3 * target, -0.5)
    else:
        axis.set(yscale="log", ylim=(target / 20, 2))
        axis.yaxis.set_major_formatter(lambda value, _: f"{100 * value:g} %")
    words = "target: 1 %" if race.bound is not None else "target: gradient flow's end"
    axis.axhline(target, color=GREY, lw=0.8, ls=(0, (4, 3)), zorder=0)
    place: dict[str, Any] = {"ha": "left", "va": "center"} if beside else {"ha": "right", "va": "bottom"}
    axis.text(until * (1.015 if beside else 1), target, words, fontsize=8, color=GREY, **place)
    axis.tick_params(labelsize=8.5)
    axis.spines[["top", "right"]].set_visible(False)


def headings(race: Race, what: str, shared_step: float | None) -> tuple[str, str]:
    """Of the token strip and of the energy plot, true whoever wins."""
    goal = "1 % of the energy" if race.bound is not None else "the gradient flow's final energy"
    how = "each method at its own best step" if shared_step is None else f"all with step {shared_step:g}"
    arrivals = ", ".join(f"{look_of(run.integrator)[0]} {arrival_in_words(run)}" for run in reversed(pick(race)))
    what = what[:1].upper() + what[1:]
    return f"{what}, kernel passes to {goal}: {arrivals}", f"{what}: kernel passes to {goal}, {how}"


def arrival_in_words(run: Run) -> str:
    """Kernel passes to the target, or why there are none."""
    return "diverged" if run.diverged else "not reached" if run.arrival is None else str(run.arrival)


def drawn(figure: "Figure", suffix: str) -> bytes:
    """The figure as a file of that format, without a date in it."""
    undated = {"png": {}, "svg": {"Date": None}, "pdf": {"CreationDate": None}}[suffix]
    file = io.BytesIO()
    figure.savefig(file, format=suffix, metadata=undated)
    return file.getvalue()
