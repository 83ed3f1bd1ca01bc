"""Ratios of running times, measured so that a noisy machine cannot fake them: interleaved, median of rounds."""

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from sympformer.progress import steps_with_progress

Work = Callable[[], object]


@dataclass(frozen=True)
class PreparedWork:
    """A work that needs something made first, every time, that must not be timed."""

    prepare: Callable[[], Any]
    run: Callable[[Any], object]


@dataclass(frozen=True)
class Row:
    """One figure: what was measured, the value, and the bound it should keep (at most, or at least), if any."""

    suite: str
    what: str
    value: float
    bound: float | None = None
    at_least: bool = False

    @property
    def met(self) -> bool | None:
        """Whether the bound is kept; None without a bound."""
        if self.bound is None:
            return None
        return self.value >= self.bound if self.at_least else self.value <= self.bound

    @property
    def wanted(self) -> str:
        """The bound in words."""
        return "" if self.bound is None else f"{'>=' if self.at_least else '<='} {self.bound:.2f}"


def interleaved(
    works: Mapping[str, Work | PreparedWork],
    rounds: int,
    warm_up: int = 2,
    label: str = "timing",
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, list[float]]:
    """Seconds of every work in every round. A round runs each once, so that a slow minute hits all alike."""
    seconds: dict[str, list[float]] = {name: [] for name in works}
    for i in steps_with_progress(warm_up + rounds, label):
        for name, work in works.items():
            elapsed = _seconds(work, clock)
            if i >= warm_up:
                seconds[name].append(elapsed)
    return seconds


def ratio(seconds: dict[str, list[float]], name: str, reference: str) -> float:
    """Median over rounds of the time of `name` by the time of `reference` in the same round."""
    return statistics.median(a / b for a, b in zip(seconds[name], seconds[reference], strict=True))


def _seconds(work: Work | PreparedWork, clock: Callable[[], float]) -> float:
    if isinstance(work, PreparedWork):
        made = work.prepare()
        started = _now(clock)
        work.run(made)
    else:
        started = _now(clock)
        work()
    return _now(clock) - started


def _now(clock: Callable[[], float]) -> float:
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return clock()
