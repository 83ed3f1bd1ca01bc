"""docs/images/flow-law.png: tokens that start from an elliptic law, beside the equations of the law's moments.

$ python docs/scripts/law.py docs/images/flow-law.png --start student-t --particles 400

Under linear attention with full visibility every token moves by one linear map, so the law keeps its shape, and its
mean and covariance obey closed equations: exactly for the tokens' own moments, up to sampling error for the law's.
"""

import argparse
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from sympformer.flows import LinearAttention, LogLinear, Nesterov, simulate
from sympformer.flows import Path as FlowPath
from sympformer.flows.elliptic import Elliptic, MomentPath, get_family, solve_moments
from sympformer.studies.flow.pictures import DPI, GREY, drawn, frame, plane
from sympformer.studies.flow.race import make_system, rotation

STARTS: dict[str, dict[str, float]] = {
    "gaussian": {},
    "student-t": {"v": 5.0},
    "logistic": {},
    "power-exponential": {"beta": 0.5},
    "generalised-hyperbolic": {"lam": -0.5, "chi": 1.0, "psi": 1.0},
}
SPREAD = (0.2, 1.0)  # the smallest and the largest variance at the start
LONGEST, STEP = 40.0, 0.05  # of the clock, as far as the energy has not fallen
FALLEN = 0.02  # the share of the energy at which the picture ends
LAW, OWN, DASHED = "#0072B2", "#D55E00", (0, (3, 2))
PANELS, MARKS = 5, 14  # circles along a curve
Moments = tuple[Tensor, Tensor]  # mean (..., d), covariance (..., d, d)


@dataclass(frozen=True)
class Followed:
    """Tokens (S states) and two solutions of the moment equations at the same times.

    expected: from the law's mean and covariance. own: from those of the tokens at the start.
    """

    kappa: float  # the covariance is kappa Sigma
    path: FlowPath
    expected: MomentPath
    own: MomentPath

    def gap(self, moments: MomentPath) -> float:
        """The largest distance between the tokens' mean and covariance and these, relative to those at the start."""
        mean, covariance = moments_of(self.path.x)
        wanted = self.kappa * moments.Sigma
        off = (mean - moments.m).norm(dim=-1) / moments.m[0].norm()
        return max(off.max().item(), ((covariance - wanted).norm(dim=(-2, -1)) / wanted[0].norm()).max().item())


def start_law(start: str, dim: int, generator: torch.Generator) -> Elliptic:
    """A law off the centre, its covariance with variances from 0.2 to 1 in seeded directions."""
    family = get_family(start.replace("-", "_"), **STARTS[start])
    Q = rotation(dim, generator)
    direction = torch.randn(dim, generator=generator, dtype=torch.float64)
    covariance = Q @ torch.diag(torch.linspace(*SPREAD, dim, dtype=torch.float64)) @ Q.mT
    return Elliptic(direction / direction.norm(), (covariance + covariance.mT) / (2 * family.kappa(dim)), family)


def moments_of(x: Tensor) -> Moments:
    """Of tokens (..., N, d), with the divisor N."""
    centred = x - x.mean(-2, keepdim=True)
    return x.mean(-2), centred.mT @ centred / x.shape[-2]


def follow(
    start: str, particles: int, dim: int = 2, condition: float = 10.0, seed: int = 0, damping: LogLinear | None = None
) -> Followed:
    """The tokens and both moment equations with Runge-Kutta until the law's energy has fallen."""
    generator, damping = torch.Generator().manual_seed(seed), damping or Nesterov()
    system = make_system("linear", dim, condition, generator)
    assert isinstance(system, LinearAttention)
    A, V, law = system.A, system.V, start_law(start, dim, generator)
    kappa, rate = law.family.kappa(dim), float(damping.alpha(damping.t0))
    h = min(STEP, 1 / rate) if rate > 0 else STEP  # strong damping wants smaller steps
    x0 = law.sample(particles, generator)

    expected = solve_moments(law.m, law.Sigma, A, V, kappa, steps=round(LONGEST / STEP), h=h, damping=damping)
    second = kappa * expected.Sigma + expected.m.unsqueeze(-1) * expected.m.unsqueeze(-2)
    energy = -(V * second).sum((-2, -1))
    fallen = (energy <= FALLEN * energy[0]).nonzero()
    steps = max(int(fallen[0]), 4) if len(fallen) else len(energy) - 1
    path = simulate(system, x0, steps=steps, h=h, integrator="rk4", damping=damping, progress=False)
    mean, covariance = moments_of(x0)
    own = solve_moments(mean, covariance / kappa, A, V, kappa, steps=steps, h=h, damping=damping)
    return Followed(kappa, path, MomentPath(*(part[: steps + 1] for part in expected)), own)


def law_plot(result: Followed, heading: str) -> Any:
    """Above: tokens and ellipses of one and two standard deviations. Below: mean and spread against time."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.0, 4.9), dpi=DPI, layout="constrained")
    rows: Any = figure.subfigures(2, 1, height_ratios=[1, 1.25])
    above, below = rows
    basis, axes = plane([result.path.x])
    law, own = ((m.m @ basis, result.kappa * basis.mT @ m.Sigma @ basis) for m in (result.expected, result.own))
    points = result.path.x @ basis
    _draw_panels(above.subplots(1, PANELS), points, result.path.t, law, own)
    names = axes if basis.shape[0] == 2 else ("component 1", "component 2")
    for axis, what in zip(below.subplots(1, 2), ("mean", "standard deviation"), strict=True):
        _draw_curves(axis, what, names, result.path.t, law, own, moments_of(points))
    figure.suptitle(heading, fontsize=10.5)
    n, d = result.path.x.shape[-2:]
    caption = [f"{n} tokens in {d} dimensions", f"across: {axes[0]}", f"up: {axes[1]}"]
    caption.append("inside: tokens within 1 and 2 standard deviations of the law")
    figure.supxlabel("     ".join(caption), fontsize=min(8, 1150 / len("     ".join(caption))), color=GREY)
    return figure


def share_inside(points: Tensor, mean: Tensor, covariance: Tensor, deviations: float) -> float:
    """The share of points (N, 2) in an ellipse."""
    off = points - mean
    return ((off * torch.linalg.solve(covariance, off.mT).mT).sum(-1) <= deviations**2).double().mean().item()


def _draw_panels(grid: Any, points: Tensor, t: Tensor, law: Moments, own: Moments) -> None:
    reach = (law[0].abs() + 3 * law[1].diagonal(dim1=-2, dim2=-1).sqrt()).max().item()
    for i, axis in enumerate(grid):
        k = i * (len(t) - 1) // (PANELS - 1)
        frame(axis, reach)
        axis.scatter(*points[k].mT.numpy(), s=4, color="#444444", alpha=0.5, linewidths=0, zorder=1)
        for deviations in (1, 2):
            _ellipse(axis, own[0][k], own[1][k], deviations, color=OWN, lw=1.1, ls=DASHED)
            _ellipse(axis, law[0][k], law[1][k], deviations, color=LAW, lw=1.4, ls="-")
        axis.set_title(f"start, t = {t[k]:g}" if i == 0 else f"t = {t[k]:.3g}", fontsize=9)
        shares = ", ".join(f"{100 * share_inside(points[k], law[0][k], law[1][k], n):.0f} %" for n in (1, 2))
        place = {"ha": "right", "va": "bottom", "transform": axis.transAxes}
        axis.text(0.97, 0.02, f"inside {shares}", fontsize=7.5, color=GREY, **place)


def _ellipse(axis: Any, mean: Tensor, covariance: Tensor, deviations: float, **style: Any) -> None:
    """The points at so many standard deviations from the mean: m + deviations L (cos, sin), L L' the covariance."""
    angle = torch.linspace(0, 2 * math.pi, 121, dtype=torch.float64)
    line = mean.unsqueeze(-1) + deviations * torch.linalg.cholesky(covariance) @ torch.stack((angle.cos(), angle.sin()))
    axis.plot(*line.numpy(), zorder=3, **style)


def _draw_curves(
    axis: Any, what: str, names: tuple[str, str], t: Tensor, law: Moments, own: Moments, tokens: Moments
) -> None:
    def values(moments: Moments) -> Any:
        return (moments[0] if what == "mean" else moments[1].diagonal(dim1=-2, dim2=-1).sqrt()).numpy()

    every = slice(None, None, max(1, (len(t) - 1) // MARKS))
    for j in (0, 1):
        said = None if j else "the law, by the moment equations"
        axis.plot(t, values(law)[:, j], color=LAW, lw=1.6, label=said)
        said = None if j else "the same from the tokens' moments"
        axis.plot(t, values(own)[:, j], color=OWN, lw=1.1, ls=DASHED, label=said)
        marks = {"ms": 4, "mfc": "none", "mec": "#333333", "mew": 0.9}
        axis.plot(t[every], values(tokens)[every, j], "os"[j], label=f"tokens, {names[j]}", **marks)
    axis.set_ylabel(what, fontsize=9)
    axis.set_xlabel("time", fontsize=9)
    axis.tick_params(labelsize=8.5)
    axis.spines[["top", "right"]].set_visible(False)
    if what == "mean":
        axis.axhline(0, color="#dddddd", lw=0.7, zorder=0)
    else:
        axis.set_ylim(bottom=0)
        axis.legend(frameon=False, fontsize=7.5)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Tokens from an elliptic law beside the equations of its moments.")
    parser.add_argument("out", type=Path, help="the picture: .png, .svg or .pdf")
    parser.add_argument("--start", choices=STARTS, default="student-t")
    for name, kind, default in (("particles", int, 400), ("dim", int, 2), ("condition", float, 10.0), ("seed", int, 0)):
        parser.add_argument(f"--{name}", type=kind, default=default)
    given = parser.parse_args()
    found = follow(given.start, given.particles, given.dim, given.condition, given.seed)
    heading = f"Linear attention from a {given.start} start: the law keeps its shape"
    given.out.write_bytes(drawn(law_plot(found, heading), given.out.suffix[1:]))
    print(f"from the tokens' own moments {found.gap(found.own):.1e}, from the law's {found.gap(found.expected):.2g}")
