"""The statistics of a comparison: spreads over seeds, differences paired by seed, families of them, the effects of a
factorial, and when a curve meets a level."""

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations, product
from typing import Any

from scipy.special import stdtr, stdtrit  # Student's t: distribution and quantile

from sympformer.studies.results.results import LEVEL, Difference, Effect, Spread

Levels = tuple[str, ...]  # of a cell: one of every factor
Factors = Mapping[str, Sequence[str]]
Figures = Mapping[Levels, Sequence[float]]  # of the cells that count, seed by seed


def spread(values: Sequence[float]) -> Spread:
    """Mean and standard deviation (n - 1) of a figure over the seeds."""
    return Spread(statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else None, list(values))


def paired_difference(mine: Sequence[float], other: Sequence[float]) -> Difference:
    """Of d_s = mine_s - other_s: both saw the same batches under seed s, so that what a seed does to both drops out."""
    return mean_difference([a - b for a, b in zip(mine, other, strict=True)])


def mean_difference(differences: Sequence[float]) -> Difference:
    """Student's interval of differences, one a seed: mean +- t(0.975, n - 1) sd(d) / sqrt(n), and p of mean zero."""
    mean, n = statistics.fmean(differences), len(differences)
    if n < 2:
        return Difference(mean, None, None)
    error = statistics.stdev(differences) / math.sqrt(n)
    half = float(stdtrit(n - 1, 1 - LEVEL / 2)) * error
    p = 2 * float(stdtr(n - 1, -abs(mean) / error)) if error else float(mean == 0)
    return Difference(mean, mean - half, mean + half, p)


def corrected(family: Mapping[Any, Difference]) -> dict[Any, Difference]:
    """The differences of a family after Holm's correction. Those without a p (a single seed) are no tests."""
    tested = {name: found.p for name, found in family.items() if found.p is not None}
    adjusted = dict(zip(tested, holm(list(tested.values())), strict=True))
    return {name: replace(found, p_holm=adjusted.get(name)) for name, found in family.items()}


def holm(ps: Sequence[float]) -> list[float]:
    """Holm's adjusted p: the k-th smallest of m times m - k + 1, at most 1, and never below one that is smaller."""
    adjusted, largest = [0.0] * len(ps), 0.0
    for k, i in enumerate(sorted(range(len(ps)), key=lambda i: ps[i])):
        largest = max(largest, min(1.0, (len(ps) - k) * ps[i]))
        adjusted[i] = largest
    return adjusted


def first_reach(xs: Sequence[float], losses: Sequence[float], level: float) -> float | None:
    """Where a curve first comes down to a level, by straight lines between its points; None where it does not."""
    for i, loss in enumerate(losses):
        if loss <= level:
            if i == 0 or losses[i - 1] == loss:
                return float(xs[i])
            share = (losses[i - 1] - level) / (losses[i - 1] - loss)
            return float(xs[i - 1] + share * (xs[i] - xs[i - 1]))
    return None


# --- factorials


def effects(factors: Factors, figures: Figures) -> list[Effect]:
    """Every level of every factor against the factor's first, one family; then every pair of levels of two factors
    against the first levels of both, another."""
    mains = (_effect(factors, figures, [name], [level]) for name in factors for level in factors[name][1:])
    pairs = (
        _effect(factors, figures, [one, other], list(levels))
        for one, other in combinations(factors, 2)
        for levels in product(factors[one][1:], factors[other][1:])
    )
    return [*_family(mains), *_family(pairs)]


def _effect(factors: Factors, figures: Figures, names: list[str], levels: list[str]) -> Effect:
    """The mean over all groups of cells that differ in these factors alone, for every seed by itself."""
    against = [factors[name][0] for name in names]
    others = [name for name in factors if name not in names]
    rests = [dict(zip(others, rest, strict=True)) for rest in product(*(factors[name] for name in others))]

    def contrast(rest: dict[str, str]) -> list[float] | None:
        """Seed by seed, the signed sum over the corners: + for the levels, a minus for each that is the first instead.

        One factor: loss(b) - loss(a). Two: loss(b, d) - loss(a, d) - loss(b, c) + loss(a, c). None: one is missing.
        """
        corners = []
        for corner in product(*zip(levels, against, strict=True)):
            place = rest | dict(zip(names, corner, strict=True))
            found = figures.get(tuple(place[name] for name in factors))
            if found is None:
                return None
            sign = (-1) ** sum(level == first for level, first in zip(corner, against, strict=True))
            corners.append([sign * figure for figure in found])
        return [sum(of_seed) for of_seed in zip(*corners, strict=True)]

    contrasts = [found for rest in rests if (found := contrast(rest)) is not None]
    by_seed = [sum(of_seed) / len(contrasts) for of_seed in zip(*contrasts, strict=True)]
    return Effect(names, levels, against, len(contrasts), len(rests), mean_difference(by_seed) if by_seed else None)


def _family(effects: Iterator[Effect]) -> list[Effect]:
    """With Holm's correction for all of them together."""
    found = list(effects)
    family = corrected({i: effect.difference for i, effect in enumerate(found) if effect.difference is not None})
    return [replace(effect, difference=family.get(i)) for i, effect in enumerate(found)]
