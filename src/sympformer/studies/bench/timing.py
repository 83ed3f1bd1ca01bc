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


def interleaved(
    works: Mapping[str, Work | PreparedWork], rounds: int, warm_up: int = 2, label: str = "timing"
) -> dict[str, list[float]]:
    """Seconds of every work in every round. A round runs each once, so that a slow minute hits all alike."""
    seconds: dict[str, list[float]] = {name: [] for name in works}
    for i in steps_with_progress(warm_up + rounds, label):
        for name, work in works.items():
            elapsed = _seconds(work)
            if i >= warm_up:
                seconds[name].append(elapsed)
    return seconds


def ratio(seconds: dict[str, list[float]], name: str, reference: str) -> float:
    """Median over rounds of the time of `name` by the time of `reference` in the same round."""
    return statistics.median(a / b for a, b in zip(seconds[name], seconds[reference], strict=True))


def _seconds(work: Work | PreparedWork) -> float:
    if isinstance(work, PreparedWork):
        made = work.prepare()
        started = _now()
        work.run(made)
    else:
        started = _now()
        work()
    return _now() - started


def _now() -> float:
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter()
