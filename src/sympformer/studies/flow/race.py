"""The race: every method at its own best constant step, measured in oracle calls to a common target energy."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from sympformer.errors import DivergenceError
from sympformer.flows import INTEGRATORS, LogLinear, Path, System, simulate

GOAL = 0.01  # the share of the initial energy that counts as done
PER_DECADE = 8
STEPS = tuple(10 ** (k / PER_DECADE) for k in range(2 * PER_DECADE, -3 * PER_DECADE - 1, -1))  # 100 ... 0.001
GROWTH = 10.0  # an energy without lower bound: the gradient flow's run ends when it is so many times the start's
BLOWN = 1e6  # energy above so many times its start: diverged
Tick = Callable[[], object]


@dataclass(frozen=True)
class Run:
    """One method at one constant step.

    calls: oracle calls to the target, None if it was not reached for good.
    diverged: the run left the finite numbers or its energy blew up; `path` then ends just before.
    """

    integrator: str
    step: float
    path: Path
    calls: int | None
    diverged: bool

    @property
    def calls_per_step(self) -> int:
        """Oracle calls that one step costs."""
        return INTEGRATORS[self.integrator].oracle_calls


@dataclass(frozen=True)
class Race:
    """All runs from one start to one target energy. `bound` is the infimum of the energy, None if there is none."""

    runs: dict[str, Run]
    start: float
    target: float
    bound: float | None
    max_calls: int

    def ranked(self) -> list[Run]:
        """Those that arrived, fastest first, then the others in the order they were run."""
        return sorted(self.runs.values(), key=lambda run: float("inf") if run.calls is None else run.calls)

    def best(self, names: Iterable[str]) -> Run | None:
        """The fastest of these methods; None if none of them was run."""
        names = set(names)
        return next((run for run in self.ranked() if run.integrator in names), None)


def calls_to_target(path: Path, target: float) -> int | None:
    """Oracle calls to bring the potential energy to the target and keep it there; None if that did not happen.

    Every saved state from the one returned to the end of the path has an energy at or below the target.
    """
    above = (~(path.potential <= target)).nonzero()  # so that nan counts as above
    first = 0 if len(above) == 0 else int(above[-1]) + 1
    return int(path.oracle_calls[first]) if first < len(path) else None


def run(
    system: System,
    x0: Tensor,
    integrator: str,
    damping: LogLinear,
    step: float,
    target: float,
    max_calls: int,
    *,
    factor: float | None = None,
    give_up: int | None = None,
) -> Run:
    """Follow one method for `max_calls` oracle calls at a constant step.

    give_up: stop at the first state above the target after so many calls; the run cannot beat them any more.
    """
    per_step = INTEGRATORS[integrator].oracle_calls
    limit = _blown_up(system, x0)
    done = 0

    def watch(k: int, x: Tensor, y: Tensor) -> bool:
        nonlocal done
        energy = float(system.potential(x))
        late = give_up is not None and k * per_step >= give_up
        if not energy <= limit or (late and energy > target):
            return True
        done = k
        return system.lower_bound is None and _far_below(energy, target)

    options: dict[str, Any] = {
        "h": step,
        "integrator": integrator,
        "damping": damping,
        "factor": factor,
        "progress": False,
    }
    follow = partial(simulate, system, x0, callback=watch, **options)
    with torch.no_grad(), _few_threads(x0):
        try:
            path = follow(steps=max(1, max_calls // per_step))
            diverged = not float(path.potential[-1]) <= limit
            path = _without_last(path) if diverged else path
        except DivergenceError:
            path = follow(steps=done) if done else _standing(system, x0)
            diverged = True
    return Run(integrator, step, path, None if diverged else calls_to_target(path, target), diverged)


def best_step(
    system: System,
    x0: Tensor,
    integrator: str,
    damping: LogLinear,
    target: float,
    max_calls: int,
    *,
    steps: Sequence[float] = STEPS,
    factor: float | None = None,
    tick: Tick = lambda: None,
) -> Run:
    """The constant step with which a method needs the fewest oracle calls to the target, and its path.

    The grid is tried from large steps to small ones, down to a tenth of the best so far, then the neighbourhood of
    the best on a grid three times as fine. A step counts only if the energy stays at the target until `max_calls`.
    Ties go to the smaller step. If no step arrives, the run with the lowest final energy is returned.

    tick: called once per step tried on the given grid, for a progress bar.
    """
    best: Run | None = None

    def attempt(step: float) -> None:
        nonlocal best
        give_up = None if best is None else best.calls
        trial = run(system, x0, integrator, damping, step, target, max_calls, factor=factor, give_up=give_up)
        best = trial if best is None or _merit(trial) < _merit(best) else best

    for step in sorted(steps, reverse=True):
        if best is None or best.diverged or step > best.step / 10:
            attempt(step)
        tick()
    assert best is not None, "the grid of steps is empty"
    if best.calls is not None:
        centre = best.step
        for third in (2, 1, -1, -2):
            attempt(centre * 10 ** (third / (3 * PER_DECADE)))
    return best


def race(
    system: System,
    x0: Tensor,
    integrators: Iterable[str],
    damping: LogLinear,
    max_calls: int,
    *,
    step: float | None = None,
    factor: float | None = None,
    goal: float = GOAL,
    tick: Tick = lambda: None,
) -> Race:
    """Run the gradient flow and the named methods to a common target energy.

    step: one constant step for all, or None: every method searches its own best.

    The target is `goal` times the initial energy above the known lower bound. A system whose energy has no lower
    bound has no such level: there the gradient flow runs until its energy is `GROWTH` times as large (or `max_calls`
    are spent), the energy at the end of that run is the target, and `step` must be given, because a larger step
    would always arrive sooner.
    """
    bound, start = system.lower_bound, float(system.potential(x0))
    if bound is not None:
        target = bound + goal * (start - bound)
    else:
        assert step is not None, "without a lower bound no step is best"
        target = _reach_of_gradient_flow(system, x0, damping, step, max_calls)
    runs = {}
    for name in dict.fromkeys(("gradient_flow", *integrators)):
        if step is None:
            runs[name] = best_step(system, x0, name, damping, target, max_calls, factor=factor, tick=tick)
        else:
            runs[name] = run(system, x0, name, damping, step, target, max_calls, factor=factor)
            tick()
    return Race(runs, start, target, bound, max_calls)


def _reach_of_gradient_flow(system: System, x0: Tensor, damping: LogLinear, step: float, max_calls: int) -> float:
    start = float(system.potential(x0))
    level = start - (GROWTH - 1) * abs(start)
    path = run(system, x0, "gradient_flow", damping, step, level, max_calls).path
    arrived = (path.potential <= level).nonzero()
    return float(path.potential[int(arrived[0]) if len(arrived) else -1])


def _merit(run: Run) -> tuple[bool, float, float, float]:
    """Smaller is better: finite runs first, then fewer calls, then (of those that do not arrive) lower energy."""
    energy = 0.0 if run.calls is not None else float(run.path.potential[-1])
    return run.diverged, float("inf") if run.calls is None else run.calls, energy, run.step


def _blown_up(system: System, x0: Tensor) -> float:
    start = float(system.potential(x0))
    bound = start if system.lower_bound is None else system.lower_bound
    return bound + BLOWN * max(abs(start - bound), abs(start), 1e-300)


@contextmanager
def _few_threads(x0: Tensor) -> Iterator[None]:
    """One thread while the matrices are small: two that wait for each other on a busy machine are many times slower."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1 if x0.shape[-2] <= 512 else threads)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _far_below(energy: float, target: float) -> bool:
    """Past the target of an unbounded energy by so much that it will not come back, and overflow is near."""
    return energy < target - 10 * abs(target)


def _without_last(path: Path) -> Path:
    keep = {name: value[:-1] for name, value in vars(path).items()}
    return replace(path, **keep)


def _standing(system: System, x0: Tensor) -> Path:
    """The path of a run that did not survive its first step."""
    y0 = torch.zeros_like(x0)
    return Path(
        x=x0.unsqueeze(0),
        y=y0.unsqueeze(0),
        t=torch.zeros(1, dtype=torch.float64),
        potential=system.potential(x0).unsqueeze(0),
        kinetic=system.kinetic(x0, y0).unsqueeze(0),
        oracle_calls=torch.zeros(1, dtype=torch.int64),
    )
