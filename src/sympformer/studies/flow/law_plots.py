"""The picture of tokens beside the moment equations: ellipses at five times, mean and spread along the way."""

import math
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from sympformer.studies.flow.law import Comparison, sample_moments
from sympformer.studies.flow.plots import DPI, GREY, frame
from sympformer.studies.flow.scene import plane

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LAW, OWN = "#0072B2", "#D55E00"
DASHED = (0, (3, 2))
PANELS = 5
MARKS = 14  # circles along a curve


def law_plot(result: Comparison, heading: str) -> "Figure":
    """Above: tokens and ellipses of one and two standard deviations. Below: mean and spread against time."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.0, 4.9), dpi=DPI, layout="constrained")
    rows: Any = figure.subfigures(2, 1, height_ratios=[1, 1.25])
    above, below = rows
    basis, axes = plane([result.path.x])
    view = _View(result, basis)
    _draw_panels(above, view)
    names = axes if basis.shape[0] == 2 else ("component 1", "component 2")
    for axis, what in zip(below.subplots(1, 2), ("mean", "standard deviation"), strict=True):
        _draw_curves(axis, view, what, names)
    figure.suptitle(heading, fontsize=10.5)
    n, d = result.path.x.shape[-2:]
    caption = [f"{n} tokens in {d} dimensions", f"across: {axes[0]}", f"up: {axes[1]}"]
    caption.append("inside: tokens within 1 and 2 standard deviations of the law")
    figure.supxlabel("     ".join(caption), fontsize=min(8, 1150 / len("     ".join(caption))), color=GREY)
    return figure


class _View:
    """The tokens, the law's moments and the tokens' own, in the plane."""

    def __init__(self, result: Comparison, basis: Tensor) -> None:
        self.t = result.path.t
        self.points = result.path.x @ basis  # (S, N, 2)
        self.law = self._flat(result, basis, result.expected.m, result.expected.Sigma)
        self.own = self._flat(result, basis, result.own.m, result.own.Sigma)
        self.measured = sample_moments(self.points)
        mean, covariance = self.law
        far = mean.abs() + 3 * covariance.diagonal(dim1=-2, dim2=-1).sqrt()
        self.reach = far.max().item()

    @staticmethod
    def _flat(result: Comparison, basis: Tensor, m: Tensor, Sigma: Tensor) -> tuple[Tensor, Tensor]:
        return m @ basis, result.kappa * basis.mT @ Sigma @ basis

    def inside(self, k: int, deviations: float) -> float:
        """The share of tokens in the law's ellipse."""
        mean, covariance = self.law[0][k], self.law[1][k]
        off = self.points[k] - mean
        return ((off * torch.linalg.solve(covariance, off.mT).mT).sum(-1) <= deviations**2).double().mean().item()


def _draw_panels(figure: Any, view: _View) -> None:
    last = len(view.t) - 1
    grid = figure.subplots(1, PANELS)
    for i, axis in enumerate(grid):
        k = i * last // (PANELS - 1)
        frame(axis, view.reach)
        axis.scatter(*view.points[k].mT.numpy(), s=4, color="#444444", alpha=0.5, linewidths=0, zorder=1)
        for deviations in (1, 2):
            _ellipse(axis, view.own, k, deviations, color=OWN, lw=1.1, ls=DASHED)
            _ellipse(axis, view.law, k, deviations, color=LAW, lw=1.4, ls="-")
        axis.set_title(f"start, t = {view.t[k]:g}" if i == 0 else f"t = {view.t[k]:.3g}", fontsize=9)
        shares = ", ".join(f"{100 * view.inside(k, deviations):.0f} %" for deviations in (1, 2))
        place: dict[str, Any] = {"ha": "right", "va": "bottom", "transform": axis.transAxes}
        axis.text(0.97, 0.02, f"inside {shares}", fontsize=7.5, color=GREY, **place)


def _ellipse(axis: "Axes", moments: tuple[Tensor, Tensor], k: int, deviations: float, **style: Any) -> None:
    """The points at so many standard deviations from the mean: m + deviations L (cos, sin), L L' the covariance."""
    angle = torch.linspace(0, 2 * math.pi, 121, dtype=torch.float64)
    circle = torch.stack((angle.cos(), angle.sin()))
    mean, covariance = moments[0][k], moments[1][k]
    line = mean.unsqueeze(-1) + deviations * torch.linalg.cholesky(covariance) @ circle
    axis.plot(*line.numpy(), zorder=3, **style)


def _draw_curves(axis: "Axes", view: _View, what: str, names: tuple[str, str]) -> None:
    def values(moments: tuple[Tensor, Tensor]) -> Tensor:
        return moments[0] if what == "mean" else moments[1].diagonal(dim1=-2, dim2=-1).sqrt()

    law, own, tokens = (values(moments).numpy() for moments in (view.law, view.own, view.measured))
    t, stride = view.t.numpy(), max(1, (len(view.t) - 1) // MARKS)
    for j in (0, 1):
        axis.plot(t, law[:, j], color=LAW, lw=1.6, label=None if j else "the law, by the moment equations")
        axis.plot(t, own[:, j], color=OWN, lw=1.1, ls=DASHED, label=None if j else "the same from the tokens' moments")
        marks: dict[str, Any] = {"ms": 4, "mfc": "none", "mec": "#333333", "mew": 0.9}
        axis.plot(t[::stride], tokens[::stride, j], "os"[j], label=f"tokens, {names[j]}", **marks)
    axis.set_ylabel(what, fontsize=9)
    axis.set_xlabel("time", fontsize=9)
    axis.tick_params(labelsize=8.5)
    axis.spines[["top", "right"]].set_visible(False)
    if what == "mean":
        axis.axhline(0, color="#dddddd", lw=0.7, zorder=0)
    else:
        axis.set_ylim(bottom=0)
        axis.legend(frameon=False, fontsize=7.5)
