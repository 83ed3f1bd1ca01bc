"""The statistics of a comparison: spreads over seeds, differences paired by seed, and when a curve meets a level."""

import math
import statistics
from collections.abc import Sequence

import numpy as np

from sympformer.studies.results import Difference, Spread

CONFIDENCE = 0.95


def spread(values: Sequence[float]) -> Spread:
    """Mean and standard deviation (n - 1) of a figure over the seeds."""
    return Spread(statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else None, list(values))


def paired_difference(mine: Sequence[float], baseline: Sequence[float]) -> Difference:
    """Mean of d_s = mine_s - baseline_s with Student's interval: mean +- t(0.975, n - 1) sd(d) / sqrt(n).

    Lower is better. Both saw the same batches under seed s, so that what a seed does to both drops out of d_s.
    """
    differences = [a - b for a, b in zip(mine, baseline, strict=True)]
    mean, n = statistics.fmean(differences), len(differences)
    if n < 2:
        return Difference(mean, None, None, "no difference shown")
    half = t_quantile(0.5 + CONFIDENCE / 2, n - 1) * statistics.stdev(differences) / math.sqrt(n)
    low, high = mean - half, mean + half
    verdict = "better" if high < 0 else "worse" if low > 0 else "no difference shown"
    return Difference(mean, low, high, verdict)


def t_quantile(p: float, dof: int) -> float:
    """Quantile of Student's t: with t = sqrt(dof) tan(theta), P(T <= t) - 1/2 is proportional to the integral of
    cos^(dof - 1) from 0 to theta, which Gauss-Legendre nodes give to rounding error; bisection inverts it."""
    if not 0.5 <= p < 1 or dof < 1:
        raise ValueError(f"t_quantile needs 0.5 <= p < 1 and dof >= 1, got {p}, {dof}")
    nodes, weights = np.polynomial.legendre.leggauss(64)

    def area(theta: float) -> float:
        return float(theta / 2 * (weights * np.cos(theta / 2 * (nodes + 1)) ** (dof - 1)).sum())

    wanted = (2 * p - 1) * area(math.pi / 2)
    low, high = 0.0, math.pi / 2
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if area(middle) < wanted else (low, middle)
    return math.sqrt(dof) * math.tan(low)


def first_reach(xs: Sequence[float], losses: Sequence[float], level: float) -> float | None:
    """Where a curve first comes down to a level, by straight lines between its points; None where it does not."""
    for i, loss in enumerate(losses):
        if loss <= level:
            if i == 0 or losses[i - 1] == loss:
                return float(xs[i])
            share = (losses[i - 1] - level) / (losses[i - 1] - loss)
            return float(xs[i - 1] + share * (xs[i] - xs[i - 1]))
    return None
