"""The effects of a factorial's factors and their interactions, from the figures of its cells."""

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
    others = [name for name in factors if name not in names]
    rests = [dict(zip(others, rest, strict=True)) for rest in product(*(factors[name] for name in others))]

    def contrast(rest: dict[str, str]) -> list[float] | None:
        """Seed by seed, the signed sum over the corners: + for the levels, a minus for each that is the first instead.

        One factor: loss(b) - loss(a). Two: loss(b, d) - loss(a, d) - loss(b, c) + loss(a, c). None: one is missing.
        """
        corners = []
        for corner in product(*zip(levels, against, strict=True)):
            place = rest | dict(zip(names, corner, strict=True))
            cell = tuple(place[name] for name in factors)
            if cell not in figures:
                return None
            sign = (-1) ** sum(level == first for level, first in zip(corner, against, strict=True))
            corners.append([sign * figure for figure in figures[cell]])
        return [sum(of_seed) for of_seed in zip(*corners, strict=True)]

    contrasts = [found for rest in rests if (found := contrast(rest)) is not None]
    by_seed = [sum(of_seed) / len(contrasts) for of_seed in zip(*contrasts, strict=True)]
    return Effect(names, levels, against, len(contrasts), len(rests), mean_difference(by_seed) if by_seed else None)


def _family(effects: Iterator[Effect]) -> list[Effect]:
    """With Holm's correction for all of them together."""
    found = list(effects)
    family = corrected({i: effect.difference for i, effect in enumerate(found) if effect.difference is not None})
    return [Effect(**vars(effect) | {"difference": family.get(i)}) for i, effect in enumerate(found)]
