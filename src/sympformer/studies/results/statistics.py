"""The statistics of a comparison: spreads over seeds, differences paired by seed, families of them, and when a curve
meets a level."""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np

from sympformer.studies.results import NOT_SHOWN, Difference, Spread

CONFIDENCE = 0.95


def spread(values: Sequence[float]) -> Spread:
    """Mean and standard deviation (n - 1) of a figure over the seeds."""
    return Spread(statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else None, list(values))


def paired_difference(mine: Sequence[float], other: Sequence[float]) -> Difference:
    """Mean of d_s = mine_s - other_s with its interval. Lower is better.

    Both saw the same batches under seed s, so that what a seed does to both drops out of d_s.
    """
    return mean_difference([a - b for a, b in zip(mine, other, strict=True)])


def mean_difference(differences: Sequence[float]) -> Difference:
    """Student's interval of differences, one a seed: mean +- t(0.975, n - 1) sd(d) / sqrt(n), and p of mean zero."""
    mean, n = statistics.fmean(differences), len(differences)
    if n < 2:
        return Difference(mean, None, None, NOT_SHOWN)
    error = statistics.stdev(differences) / math.sqrt(n)
    half = t_quantile(0.5 + CONFIDENCE / 2, n - 1) * error
    low, high = mean - half, mean + half
    verdict = "better" if high < 0 else "worse" if low > 0 else NOT_SHOWN
    p = two_sided_p(mean / error, n - 1) if error else float(mean == 0)
    return Difference(mean, low, high, verdict, p)


def corrected(family: Mapping[Any, Difference]) -> dict[Any, Difference]:
    """The differences of a family after Holm's correction: how small p must be depends on how many there are.

    Those without a p (a single seed) are no tests and do not count.
    """
    tested = [name for name, found in family.items() if found.p is not None]
    adjusted = dict(zip(tested, holm([family[name].p or 0.0 for name in tested]), strict=True))
    return {
        name: replace(
            found,
            p_holm=adjusted.get(name),
            verdict_holm=found.verdict if adjusted.get(name, 1.0) < 1 - CONFIDENCE else NOT_SHOWN,
        )
        for name, found in family.items()
    }


def holm(ps: Sequence[float]) -> list[float]:
    """Holm's adjusted p: the k-th smallest of m times m - k + 1, at most 1, and never below one that is smaller."""
    adjusted, largest = [0.0] * len(ps), 0.0
    for k, i in enumerate(sorted(range(len(ps)), key=lambda i: ps[i])):
        largest = max(largest, min(1.0, (len(ps) - k) * ps[i]))
        adjusted[i] = largest
    return adjusted


# --- Student's t: with t = sqrt(dof) tan(theta), P(0 <= T <= t) is proportional to the integral of cos^(dof - 1) from 0
# to theta, which Gauss-Legendre nodes give to rounding error


def two_sided_p(t: float, dof: int) -> float:
    """P(|T| >= |t|): the integral from theta on, so that small ones are exact too."""
    theta = math.atan(abs(t) / math.sqrt(dof))
    return _area(theta, math.pi / 2, dof) / _area(0.0, math.pi / 2, dof)


def t_quantile(p: float, dof: int) -> float:
    """Quantile of Student's t; bisection inverts the integral."""
    if not 0.5 <= p < 1 or dof < 1:
        raise ValueError(f"t_quantile needs 0.5 <= p < 1 and dof >= 1, got {p}, {dof}")
    wanted = (2 * p - 1) * _area(0.0, math.pi / 2, dof)
    low, high = 0.0, math.pi / 2
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if _area(0.0, middle, dof) < wanted else (low, middle)
    return math.sqrt(dof) * math.tan(low)


def _area(start: float, end: float, dof: int) -> float:
    nodes, weights = _nodes()
    half = (end - start) / 2
    return float(half * (weights * np.cos(start + half * (nodes + 1)) ** (dof - 1)).sum())


@cache
def _nodes() -> tuple[Any, Any]:
    return np.polynomial.legendre.leggauss(64)


def first_reach(xs: Sequence[float], losses: Sequence[float], level: float) -> float | None:
    """Where a curve first comes down to a level, by straight lines between its points; None where it does not."""
    for i, loss in enumerate(losses):
        if loss <= level:
            if i == 0 or losses[i - 1] == loss:
                return float(xs[i])
            share = (losses[i - 1] - level) / (losses[i - 1] - loss)
            return float(xs[i - 1] + share * (xs[i] - xs[i - 1]))
    return None
