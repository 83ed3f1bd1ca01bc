"""docs/images/flow.gif: methods side by side at the same number of kernel passes, and their energies.

$ python docs/scripts/animation.py docs/images/flow.gif --system linear --dim 8
"""

import argparse
from pathlib import Path
from typing import Any

import torch
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from PIL import Image

from sympformer.flows import ACCELERATED, Nesterov
from sympformer.studies.flow.command import SHARED_STEP, start_of
from sympformer.studies.flow.pictures import GREY, Scene, Stage, energy_axes, frame, look_of, note, stage
from sympformer.studies.flow.race import Course, Race, make_system, race

FRAMES, BEAT, REST = 84, 80, 1800  # pictures, milliseconds a picture, milliseconds that the last one stays
DPI, PALETTE = 120, 256


class Panel:
    """One method's tokens: artists made once, moved for every frame."""

    def __init__(self, axis: Any, result: Race, scene: Scene, view: Stage) -> None:
        self.race, self.scene, self.view = result, scene, view
        name, colour, _ = look_of(scene.run.integrator)
        frame(axis, view.reach)
        axis.set_title(name, color=colour, fontsize=10, weight="bold")
        axis.set_xlabel(view.axes[0], fontsize=7, color=GREY)
        axis.set_ylabel(view.axes[1], fontsize=7, color=GREY)
        self.lines = axis.add_collection(LineCollection([], linewidths=0.9, zorder=1, animated=True))
        self.dots = axis.scatter(*scene.points[0].mT.numpy(), s=12, c=view.rgba, linewidths=0, zorder=2, animated=True)
        style = {"ha": "right", "fontsize": 8, "color": GREY, "transform": axis.transAxes}
        self.text = axis.text(0.97, 0.03, "", animated=True, **style)

    def show(self, passes: float) -> list[Any]:
        """Move tokens, trails and the note to that moment."""
        lines, colours = self.scene.trail(passes, self.view.arrival, self.view.rgba)
        self.lines.set(segments=list(lines), color=colours)
        self.dots.set_offsets(self.scene.at(passes).numpy())
        self.text.set_text(note(self.race, self.scene, passes))
        return [self.lines, self.dots, self.text]


class Curves:
    """The energies so far."""

    def __init__(self, axis: Any, result: Race, view: Stage, until: float) -> None:
        energy_axes(axis, result, until, beside=False)
        axis.set_title("energy", fontsize=10, weight="bold")
        axis.set(xlabel="kernel passes", ylabel="")
        looks = [look_of(scene.run.integrator) for scene in view.scenes]
        self.scenes = view.scenes
        self.lines = [axis.plot([], [], color=colour, lw=1.8, animated=True)[0] for _, colour, _ in looks]

    def show(self, passes: float) -> list[Any]:
        """Draw every curve up to that moment."""
        for scene, line in zip(self.scenes, self.lines, strict=True):
            n = scene.index(passes) + 1
            line.set_data(scene.passes[:n].numpy(), scene.share[:n].numpy())
        return list(self.lines)


def animate(result: Race, file: Path, frames: int = FRAMES) -> None:
    """Write the GIF: what stands still is drawn once, what moves is drawn over it."""
    view = stage(result)
    until = min(2.0 * view.arrival, float(view.moments[-1]))
    figure = Figure(figsize=(2.75 * (len(view.scenes) + 1), 3.0), dpi=DPI, layout="constrained")
    *axes, last = figure.subplots(1, len(view.scenes) + 1)
    panels = [Panel(axis, result, scene, view) for axis, scene in zip(axes, view.scenes, strict=True)]
    actors: list[Panel | Curves] = [*panels, Curves(last, result, view, until)]
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    still, images = canvas.copy_from_bbox(figure.bbox), []
    for i in range(frames):
        canvas.restore_region(still)
        for artist in (artist for actor in actors for artist in actor.show(until * i / (frames - 1))):
            artist.axes.draw_artist(artist)
        images.append(Image.frombuffer("RGBA", canvas.get_width_height(), bytes(canvas.buffer_rgba())).convert("RGB"))
    common = mosaic(images[:: max(1, frames // 4)]).quantize(PALETTE, Image.Quantize.MAXCOVERAGE)
    first, *rest = [image.quantize(palette=common, dither=Image.Dither.NONE) for image in images]
    durations = [BEAT] * len(rest) + [REST]
    first.save(file, save_all=True, append_images=rest, duration=durations, loop=0, optimize=False)


def mosaic(images: list[Any]) -> Any:
    """The pictures above one another, to choose colours for all of them."""
    width, height = images[0].size
    found = Image.new("RGB", (width, height * len(images)))
    for i, image in enumerate(images):
        found.paste(image, (0, i * height))
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="The animation of a flow beside the gradient flow.")
    parser.add_argument("out", type=Path)
    parser.add_argument("--system", default="linear")
    for name, kind, default in (("dim", int, 8), ("particles", int, 64), ("condition", float, 100.0), ("seed", int, 0)):
        parser.add_argument(f"--{name}", type=kind, default=default)
    given = parser.parse_args()
    generator = torch.Generator().manual_seed(given.seed)
    system = make_system(given.system, given.dim, given.condition, generator)
    course = Course(system, start_of(given.particles, given.dim, generator), Nesterov(), 400)
    animate(race(course, ACCELERATED, SHARED_STEP if system.lower_bound is None else None), given.out)
