"""The race: every method at its own best constant step, measured in kernel passes to a common target energy.

A kernel pass is what a model would pay for: see `passes_a_step`.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal, get_args

import torch
from torch import Generator, Tensor

from sympformer import flows
from sympformer.errors import DivergenceError, InputError, unknown_name
from sympformer.flows import INTEGRATORS, LogLinear, Path, System, simulate

SystemName = Literal["linear", "softmax", "quadratic", "wasserstein", "stein"]
FormName = Literal["paper", "own"]
GOAL = 0.01  # the share of the initial energy that counts as done
PER_DECADE = 8
STEPS = tuple(10 ** (k / PER_DECADE) for k in range(2 * PER_DECADE, -3 * PER_DECADE - 1, -1))  # 100 ... 0.001
GROWTH = 10.0  # an energy without lower bound: the gradient flow's run ends when it is so many times the start's
BLOWN = 1e6  # energy above so many times its start: diverged


def make_system(
    name: str, dim: int, condition: float, generator: Generator, causal: bool = False, form: FormName | None = None
) -> System:
    """A system whose matrix K = Q diag Q' has the eigenvalues logspace(-log10 condition, 0, dim), Q seeded."""
    if name not in get_args(SystemName):
        raise unknown_name("system", name, get_args(SystemName))
    if dim < 2:
        raise InputError(f"dim must be at least 2 so that tokens can be drawn in a plane, got {dim}")
    if not 1 <= condition <= 1e12:
        raise InputError(f"condition must lie between 1 and 1e12, got {condition}")
    if causal and name not in ("linear", "softmax"):
        raise InputError(f"causal is an option of linear and softmax attention; {name} has no order of tokens")
    if form is not None and name != "softmax":
        raise InputError(f"form is an option of softmax attention; {name} has one force only")
    Q = rotation(dim, generator)
    values, eye = torch.logspace(-math.log10(condition), 0, dim, dtype=torch.float64), torch.eye(dim).double()
    K = Q @ torch.diag(values) @ Q.mT
    K = (K + K.mT) / 2
    valley = partial(curved_valley, Q, values)
    makers: dict[str, Callable[[], System]] = {
        "linear": lambda: flows.LinearAttention(eye, -K, causal=causal),
        "softmax": lambda: flows.SoftmaxAttention(K / math.sqrt(dim), eye, causal=causal, form=form or "paper"),
        "quadratic": lambda: flows.Quadratic(K),
        "wasserstein": lambda: flows.Wasserstein(valley, lower_bound=0.0),
        "stein": lambda: flows.Stein(valley, flows.gaussian_kernel(math.sqrt(dim)), lower_bound=0.0),
    }
    return makers[name]()


def rotation(dim: int, generator: Generator) -> Tensor:
    """A random orthogonal matrix (dim, dim)."""
    return torch.linalg.qr(torch.randn(dim, dim, generator=generator, dtype=torch.float64))[0]


def curved_valley(Q: Tensor, values: Tensor, x: Tensor) -> Tensor:
    """U(x) = 1/2 sum_k lambda_k v_k^2 with u = Q'x, v_1 = u_1 and v_k = u_k - (u_1^2 - 1)/2 in the other directions.

    The floor of the valley is a parabola along the softest direction; at the minimum U = 0.
    """
    u = x @ Q
    v = torch.cat((u[..., :1], u[..., 1:] - (u[..., :1] ** 2 - 1) / 2), -1)
    return (values * v**2).sum(-1) / 2


@dataclass(frozen=True)
class Run:
    """One method at one constant step."""

    integrator: str
    step: float
    path: Path
    passes_a_step: int  # kernel passes
    arrival: int | None  # kernel passes to the target; None if it was not reached for good
    diverged: bool  # it left the finite numbers or its energy blew up; `path` ends just before

    @property
    def passes(self) -> Tensor:
        """Kernel passes (S,) spent at every state of the path."""
        return self.path.oracle_calls // INTEGRATORS[self.integrator].evaluations * self.passes_a_step

    @property
    def merit(self) -> tuple[bool, float, float, float]:
        """Smaller is better: finite runs first, then fewer passes, then (of those that do not arrive) lower energy."""
        energy = 0.0 if self.arrival is not None else float(self.path.potential[-1])
        return self.diverged, math.inf if self.arrival is None else self.arrival, energy, self.step


@dataclass(frozen=True)
class Race:
    """All runs from one start to one target energy. `bound` is the infimum of the energy, None if there is none."""

    runs: dict[str, Run]
    start: float
    target: float
    bound: float | None
    max_passes: int

    def ranked(self) -> list[Run]:
        """Those that arrived, fastest first, then the others in the order they were run."""
        return sorted(self.runs.values(), key=lambda run: math.inf if run.arrival is None else run.arrival)

    def best(self, names: Iterable[str]) -> Run | None:
        """The fastest of these methods; None if none of them was run."""
        return next((run for run in self.ranked() if run.integrator in set(names)), None)


def passes_a_step(system: System, integrator: str) -> int:
    """Kernel passes of one step as a model would pay them: those of the field, by the fields that a step asks for."""
    scheme = INTEGRATORS[integrator]
    return scheme.evaluations * system.passes(scheme.momenta)


def arrival_of(potential: Tensor, passes: Tensor, target: float) -> int | None:
    """Passes to bring the potential energy (S,) to the target and keep it there; None if that did not happen."""
    above = (~(potential <= target)).nonzero()  # so that nan counts as above
    first = 0 if len(above) == 0 else int(above[-1]) + 1
    return int(passes[first]) if first < len(potential) else None


@dataclass(frozen=True)
class Course:
    """What all methods have in common."""

    system: System
    x0: Tensor
    damping: LogLinear
    max_passes: int

    @torch.no_grad()
    def run(self, integrator: str, step: float, target: float, give_up: int | None = None) -> Run:
        """Follow one method at a constant step. give_up: passes after which a state above the target ends the run."""
        per_step, done, start = passes_a_step(self.system, integrator), 0, float(self.system.potential(self.x0))
        floor = start if self.system.lower_bound is None else self.system.lower_bound
        limit = floor + BLOWN * max(abs(start - floor), abs(start), 1e-300)

        def watch(k: int, x: Tensor, y: Tensor) -> bool:
            nonlocal done
            energy = float(self.system.potential(x))
            if not energy <= limit or (give_up is not None and k * per_step >= give_up and energy > target):
                return True
            done = k
            # far past the target of an unbounded energy it will not come back, and overflow is near
            return self.system.lower_bound is None and energy < target - 10 * abs(target)

        follow = partial(
            simulate, self.system, self.x0, callback=watch, h=step, integrator=integrator, damping=self.damping,
            progress=False,
        )  # fmt: skip
        try:
            path = follow(steps=max(1, self.max_passes // per_step))
            diverged = not float(path.potential[-1]) <= limit
            path = _first(path, len(path) - 1) if diverged else path
        except DivergenceError:
            path, diverged = follow(steps=done) if done else _first(follow(steps=1, h=1e-9), 1), True
        found = Run(integrator, step, path, per_step, None, diverged)
        return found if diverged else replace(found, arrival=arrival_of(path.potential, found.passes, target))

    def best_step(
        self, integrator: str, target: float, steps: Sequence[float] = STEPS, tick: Callable[[], object] = int
    ) -> Run:
        """The constant step with which a method needs the fewest kernel passes to the target, and its path.

        The grid is tried from large steps to small ones, down to a tenth of the best so far, then the neighbourhood of
        the best on a grid three times as fine. A step counts only if the energy stays at the target until `max_passes`.
        Ties go to the smaller step. If no step arrives, the run with the lowest final energy is returned.
        """
        largest, *others = sorted(steps, reverse=True)
        best = self.run(integrator, largest, target)
        tick()
        for step in others:
            if best.diverged or step > best.step / 10:
                best = min(best, self.run(integrator, step, target, best.arrival), key=lambda run: run.merit)
            tick()
        finer = [best.step * 10 ** (third / (3 * PER_DECADE)) for third in (2, 1, -1, -2)]
        for step in finer if best.arrival is not None else ():
            best = min(best, self.run(integrator, step, target, best.arrival), key=lambda run: run.merit)
        return best


def race(
    course: Course, integrators: Iterable[str], step: float | None = None, tick: Callable[[], object] = int
) -> Race:
    """Run the gradient flow and the named methods to a common target energy, at one step or each at its own best.

    The target is `GOAL` times the initial energy above its bound. Without a bound it is the gradient flow's energy
    where that is `GROWTH` times the start's or the passes are spent; a larger step then always arrives sooner, so that
    `step` must be given.
    """
    bound, start = course.system.lower_bound, float(course.system.potential(course.x0))
    assert bound is not None or step is not None, "without a lower bound no step is best"
    if bound is not None:
        target = bound + GOAL * (start - bound)
    else:
        level = start - (GROWTH - 1) * abs(start)
        energy = course.run("gradient_flow", step or 0.0, level).path.potential
        target = float(torch.cat((energy[energy <= level], energy[-1:]))[0])  # the first below, or the last
    runs = {}
    for name in dict.fromkeys(("gradient_flow", *integrators)):
        if step is None:
            runs[name] = course.best_step(name, target, tick=tick)
        else:
            runs[name] = course.run(name, step, target)
            tick()
    return Race(runs, start, target, bound, course.max_passes)


def _first(path: Path, n: int) -> Path:
    """The first n states."""
    return replace(path, **{name: value[:n] for name, value in vars(path).items()})
