"""The animation of a flow: methods side by side at the same number of oracle calls, and their energies."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sympformer.studies.flow.plots import (
    GREY,
    Colour,
    Painter,
    colour_of,
    energy_axes,
    frame,
    label_of,
    note,
    painter,
    trail,
)
from sympformer.studies.flow.race import Race
from sympformer.studies.flow.scene import Scene, Stage, pick, stage

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from PIL.Image import Image

FRAMES = 84
BEAT = 80  # milliseconds a frame
REST = 1800  # milliseconds that the last frame stays
DPI = 120
PALETTE = 256  # colours in the file


class Panel:
    """One method's tokens: artists made once, moved for every frame."""

    def __init__(self, axis: "Axes", race: Race, scene: Scene, view: Stage, paint: Painter) -> None:
        from matplotlib.collections import LineCollection

        self.race, self.scene, self.paint, self.length = race, scene, paint, view.arrival
        name = scene.run.integrator
        frame(axis, view.reach)
        axis.set_title(label_of(name), color=colour_of(name), fontsize=10, weight="bold")
        axis.set_xlabel(view.axes[0], fontsize=7, color=GREY)
        axis.set_ylabel(view.axes[1], fontsize=7, color=GREY)
        self.lines = LineCollection([], linewidths=0.9, zorder=1, animated=True)
        axis.add_collection(self.lines)
        self.dots = axis.scatter([], [], s=12, linewidths=0, zorder=2, animated=True)
        style: dict[str, Any] = {"ha": "right", "fontsize": 8, "color": GREY, "transform": axis.transAxes}
        self.text = axis.text(0.97, 0.03, "", animated=True, **style)

    def show(self, calls: float) -> list["Artist"]:
        """Move tokens, trails and the note to that moment."""
        rgba = self.paint(self.scene, calls)
        lines, colours = trail(self.scene, calls, self.length, rgba)
        self.lines.set_segments(list(lines))
        self.lines.set_color(colours)
        self.dots.set_offsets(self.scene.at(calls).numpy())
        self.dots.set_facecolor(rgba)
        self.text.set_text(note(self.race, self.scene, calls))
        return [self.lines, self.dots, self.text]


class Curves:
    """The energies so far."""

    def __init__(self, axis: "Axes", race: Race, view: Stage, until: float) -> None:
        energy_axes(axis, race, until, beside=False, size=8.5)
        axis.set_title("energy", fontsize=10, weight="bold")
        axis.set_ylabel("")
        self.scenes = view.scenes
        colours = [colour_of(scene.run.integrator) for scene in view.scenes]
        self.lines = [axis.plot([], [], color=colour, lw=1.8, animated=True)[0] for colour in colours]

    def show(self, calls: float) -> list["Artist"]:
        """Draw every curve up to that moment."""
        for scene, line in zip(self.scenes, self.lines, strict=True):
            n = scene.index(calls) + 1
            line.set_data(scene.calls[:n].numpy(), scene.share[:n].numpy())
        return list(self.lines)


def animate(race: Race, file: Path, colour: Colour, frames: Iterable[int] = range(FRAMES)) -> None:
    """Write the GIF. A caller may wrap `frames`, range(FRAMES), in a progress bar."""
    from PIL.Image import Dither, Quantize

    view = stage(race, pick(race))
    until = min(2.0 * view.arrival, float(view.moments[-1]))
    figure, actors = _set(race, view, painter(view, colour), until)
    images = list(_render(figure, actors, (until * i / (FRAMES - 1) for i in frames)))
    common = _mosaic(images[:: max(1, len(images) // 4)]).quantize(PALETTE, Quantize.MAXCOVERAGE)
    first, *rest = [image.quantize(palette=common, dither=Dither.NONE) for image in images]
    durations = [BEAT] * len(rest) + [REST]
    first.save(file, save_all=True, append_images=rest, duration=durations, loop=0, optimize=False)


def _mosaic(images: Sequence["Image"]) -> "Image":
    """The pictures above one another, to choose colours for all of them."""
    from PIL import Image

    width, height = images[0].size
    mosaic = Image.new("RGB", (width, height * len(images)))
    for i, image in enumerate(images):
        mosaic.paste(image, (0, i * height))
    return mosaic


def _set(race: Race, view: Stage, paint: Painter, until: float) -> tuple["Figure", list[Panel | Curves]]:
    from matplotlib.figure import Figure

    columns = len(view.scenes) + 1
    figure = Figure(figsize=(2.75 * columns, 3.0), dpi=DPI, layout="constrained")
    axes = figure.subplots(1, columns)
    panels = [Panel(axis, race, scene, view, paint) for axis, scene in zip(axes[:-1], view.scenes, strict=True)]
    return figure, [*panels, Curves(axes[-1], race, view, until)]


def _render(figure: "Figure", actors: Sequence[Panel | Curves], moments: Iterable[float]) -> Iterator["Image"]:
    """One picture a moment: what stands still is drawn once, what moves is drawn over it."""
    import numpy as np
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from PIL import Image

    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    still = canvas.copy_from_bbox(figure.bbox)
    for calls in moments:
        canvas.restore_region(still)
        for actor in actors:
            for artist in actor.show(calls):
                artist.axes.draw_artist(artist)  # type: ignore[union-attr]
        yield Image.fromarray(np.asarray(canvas.buffer_rgba())[..., :3].copy())
