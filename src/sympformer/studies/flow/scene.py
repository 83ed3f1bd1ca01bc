"""What the pictures of a flow show: which runs, in which plane, after how many oracle calls. No drawing here."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from sympformer.flows import ACCELERATED
from sympformer.studies.flow.race import Race, Run

FINE = 30  # segments of a trail, about


@dataclass(frozen=True)
class Scene:
    """One run seen in the plane: points (S, N, 2) after calls (S,), and the share of the energy left (S,)."""

    run: Run
    points: Tensor
    calls: Tensor
    share: Tensor

    def index(self, calls: float) -> int:
        """The last state that so many oracle calls reach."""
        return max(0, int(torch.searchsorted(self.calls, calls, right=True)) - 1)

    def at(self, calls: float) -> Tensor:
        """Points (N, 2), on the straight line between two states."""
        i = self.index(calls)
        if i + 1 >= len(self.calls):
            return self.points[-1]
        gap = float(self.calls[i + 1] - self.calls[i])
        return torch.lerp(self.points[i], self.points[i + 1], (calls - float(self.calls[i])) / gap)

    def speed(self, calls: float) -> Tensor:
        """Distance (N,) that every token moves per oracle call around that moment."""
        i = max(0, min(self.index(calls), len(self.calls) - 2))
        j = min(i + 1, len(self.calls) - 1)
        return (self.points[j] - self.points[i]).norm(dim=-1) / max(1.0, float(self.calls[j] - self.calls[i]))

    def trail(self, calls: float, length: float) -> tuple[Tensor, Tensor]:
        """Segments (L, N, 2, 2) of the last `length` calls, and the age (L,) of each in [0, 1]."""
        first, last = self.index(calls - length), self.index(calls)
        stride = 1 + (last - first) // FINE  # long trails skip states: the eye does not see more
        kept = torch.arange(last, first - 1, -stride).flip(0)
        states = torch.cat((self.points[kept], self.at(calls).unsqueeze(0)))
        age = (calls - self.calls[kept]) / length
        return torch.stack((states[:-1], states[1:]), 2), age.clamp(0, 1)


@dataclass(frozen=True)
class Stage:
    """Scenes that share one plane: the names of its axes, its half width.

    moments: oracle calls of the columns. arrival: when the accelerated run arrives, and the length of trails.
    """

    scenes: list[Scene]
    axes: tuple[str, str]
    reach: float
    moments: list[int]
    arrival: int


def pick(race: Race) -> list[Run]:
    """The runs to show: the gradient flow and the fastest accelerated method, else the fastest other one."""
    others = [name for name in race.runs if name != "gradient_flow"]
    rival = race.best(ACCELERATED) or race.best(others)
    return [race.runs["gradient_flow"], *([rival] if rival else [])]


def moments(runs: Sequence[Run], bounded: bool) -> tuple[list[int], int]:
    """Oracle calls to show, and the arrival of the accelerated run among them.

    Where tokens gather: the start, the way, the arrival, three times that. Where they run away: up to the arrival.
    """
    last = int(runs[-1].path.oracle_calls[-1])
    arrival = max(runs[-1].calls or runs[0].calls or last // 3, 4)
    if not bounded:
        return [k * arrival // 4 for k in range(5)], arrival
    return [0, arrival // 3, 2 * arrival // 3, arrival, 3 * arrival], arrival


def stage(race: Race, runs: Sequence[Run]) -> Stage:
    """Put the runs in one plane: their own for d = 2, else the two leading principal components of all states shown."""
    columns, arrival = moments(runs, race.bound is not None)
    shown = [run.path.x[run.path.oracle_calls <= columns[-1]] for run in runs]
    basis, axes = _plane(shown)
    scenes = [
        Scene(run, x @ basis, run.path.oracle_calls[: len(x)].double(), share(race, run.path.potential[: len(x)]))
        for run, x in zip(runs, shown, strict=True)
    ]
    reach = max(float(scene.points.abs().max()) for scene in scenes)
    if race.bound is not None:  # tokens gather: one that shoots out must not shrink the others to a dot
        reach = min(reach, 1.3 * float(scenes[0].points[0].abs().max()))
    return Stage(scenes, axes, 1.1 * max(reach, 1e-12), columns, arrival)


def share(race: Race, potential: Tensor) -> Tensor:
    """Energy above its lower bound relative to the start; without a bound relative to |start|, falling from -1."""
    if race.bound is None:
        return potential / abs(race.start)
    return (potential - race.bound) / (race.start - race.bound)


def _plane(shown: Sequence[Tensor]) -> tuple[Tensor, tuple[str, str]]:
    d = shown[0].shape[-1]
    if d == 2:
        return torch.eye(2, dtype=shown[0].dtype), ("$x_1$", "$x_2$")
    states = torch.cat([x.reshape(-1, d) for x in shown])
    values, vectors = torch.linalg.eigh(states.mT @ states)
    part = (100 * values / values.sum()).tolist()
    basis = vectors[:, [-1, -2]]
    basis = basis * basis.sum(0).sign()  # eigenvectors have no sign of their own: fix one
    return basis, tuple(f"principal component {k} ({part[-k]:.0f} %)" for k in (1, 2))  # type: ignore[return-value]
