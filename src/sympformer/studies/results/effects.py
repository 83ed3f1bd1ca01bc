"""The effects of a factorial's factors and their interactions, from the figures of its cells."""

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations, product

from sympformer.studies.results import Effect
from sympformer.studies.results.statistics import corrected, mean_difference

Levels = tuple[str, ...]  # of a cell: one of every factor
Factors = Mapping[str, Sequence[str]]
Figures = Mapping[Levels, Sequence[float]]  # of the cells that count, seed by seed


def main_effects(factors: Factors, figures: Figures) -> list[Effect]:
    """Every level of every factor against the factor's first; one family."""
    return _family(_effect(factors, figures, [name], [level]) for name in factors for level in factors[name][1:])


def interactions(factors: Factors, figures: Figures) -> list[Effect]:
    """Every pair of levels of two factors against the first levels of both; one family."""
    return _family(
        _effect(factors, figures, [one, other], list(levels))
        for one, other in combinations(factors, 2)
        for levels in product(factors[one][1:], factors[other][1:])
    )


def _effect(factors: Factors, figures: Figures, names: list[str], levels: list[str]) -> Effect:
    """The mean over all groups of cells that differ in these factors alone, for every seed by itself."""
    against = [factors[name][0] for name in names]
    contrasts = [found for rest in _rests(factors, names) if (found := _contrast(figures, rest, levels, against))]
    by_seed = [sum(of_seed) / len(contrasts) for of_seed in zip(*contrasts, strict=True)]
    possible = math.prod(len(of) for name, of in factors.items() if name not in names)
    return Effect(names, levels, against, len(contrasts), possible, mean_difference(by_seed) if by_seed else None)


def _rests(factors: Factors, names: Sequence[str]) -> Iterator[list[str | int]]:
    """All levels of the other factors; in the place of those named, their number among them."""
    for levels in product(*([names.index(name)] if name in names else of for name, of in factors.items())):
        yield list(levels)


def _contrast(
    figures: Figures, rest: Sequence[str | int], levels: Sequence[str], against: Sequence[str]
) -> list[float] | None:
    """Seed by seed, the signed sum over the corners: + for the levels, and a minus for each that is the first instead.

    One factor: loss(b) - loss(a). Two: loss(b, d) - loss(a, d) - loss(b, c) + loss(a, c). None where one is missing.
    """
    corners = []
    for first in product((False, True), repeat=len(levels)):
        corner = [against[i] if is_first else levels[i] for i, is_first in enumerate(first)]
        cell = tuple(place if isinstance(place, str) else corner[place] for place in rest)
        if cell not in figures:
            return None
        corners.append([(-1) ** sum(first) * figure for figure in figures[cell]])
    return [sum(of_seed) for of_seed in zip(*corners, strict=True)]


def _family(effects: Iterator[Effect]) -> list[Effect]:
    """With Holm's correction for all of them together."""
    found = list(effects)
    family = corrected({i: effect.difference for i, effect in enumerate(found) if effect.difference is not None})
    return [Effect(**vars(effect) | {"difference": family.get(i)}) for i, effect in enumerate(found)]
