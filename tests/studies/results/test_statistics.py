"""Intervals, corrections, effects of a factorial and crossings, by hand and against scipy's own tests."""

import math

import pytest
from scipy import stats

from sympformer.studies.results.results import Difference
from sympformer.studies.results.statistics import (
    Levels,
    corrected,
    effects,
    first_reach,
    holm,
    mean_difference,
    paired_difference,
    spread,
)


def test_interval_and_p_are_those_of_the_paired_t_test() -> None:
    mine, baseline = [3.31, 3.35, 3.38, 3.29], [3.52, 3.50, 3.61, 3.49]
    found, tested = paired_difference(mine, baseline), stats.ttest_rel(mine, baseline)
    assert [found.low, found.high] == pytest.approx(list(tested.confidence_interval(0.95)))
    assert found.p == pytest.approx(tested.pvalue)
    assert found.mean == pytest.approx(sum(mine) / 4 - sum(baseline) / 4)
    assert (found.verdict, paired_difference(baseline, mine).verdict) == ("better", "worse")


def test_holm_by_hand() -> None:
    """Of four: 0.005 x 4, 0.01 x 3, 0.03 x 2, and 0.04 x 1 which may not be below the one before it."""
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.6, 0.7]) == [1.0, 1.0]
    assert holm([]) == []


def test_a_family_is_corrected_together() -> None:
    sure, unsure = mean_difference([1.9, 2.0, 2.1]), mean_difference([1.0, 2.0, 3.0])
    assert corrected({"a": sure})["a"].p_holm == sure.p
    family = corrected({"a": sure, "b": unsure, "one seed": mean_difference([2.0])})
    assert {one.verdict for one in corrected(dict.fromkeys(range(99), sure)).values()} == {"no difference shown"}
    assert sure.p is not None
    assert [one.p_holm for one in family.values()] == [pytest.approx(2 * sure.p), pytest.approx(unsure.p), None]
    assert [one.verdict for one in family.values()] == ["worse", "no difference shown", "no difference shown"]


def test_differences_without_any_spread() -> None:
    assert mean_difference([0.5, 0.5]) == Difference(0.5, 0.5, 0.5, 0.0)
    assert mean_difference([0.0, 0.0]).p == 1.0


def test_pairing_removes_what_a_seed_does_to_both() -> None:
    seeds = [0.0, 0.5, -0.4]  # far larger than the difference
    mine = [3.0 + s + e for s, e in zip(seeds, (0.0, 0.001, -0.001), strict=True)]
    assert paired_difference(mine, [3.1 + s for s in seeds]).verdict == "better"
    assert paired_difference([3.4, 3.6], [3.5, 3.45]).verdict == "no difference shown"


def test_spread() -> None:
    found = spread([1.0, 2.0, 4.0])
    assert found.mean == pytest.approx(7 / 3)
    assert found.sd == pytest.approx(math.sqrt(((4 / 3) ** 2 + (1 / 3) ** 2 + (5 / 3) ** 2) / 2))
    assert spread([2.0]).sd is None


@pytest.mark.parametrize(
    ("level", "expected"),
    [(4.0, 100.0), (3.5, 150.0), (3.0, 200.0), (2.9, 220.0), (2.0, None), (9.0, 100.0)],
)
def test_first_reach(level: float, expected: float | None) -> None:
    found = first_reach([100, 200, 300, 400], [4.0, 3.0, 2.5, 2.7], level)
    assert found == (None if expected is None else pytest.approx(expected))


# --- effects of a factorial

FACTORS = {"dynamics": ["gpt", "symp"], "head": ["tied", "untied"]}
FIGURES: dict[Levels, list[float]] = {  # two seeds
    ("gpt", "tied"): [4.0, 4.2],
    ("gpt", "untied"): [3.9, 4.0],
    ("symp", "tied"): [3.5, 3.9],
    ("symp", "untied"): [3.2, 3.6],
}


def test_two_by_two_by_hand() -> None:
    """symp - gpt: (-0.5 - 0.7) / 2 and (-0.3 - 0.4) / 2; untied - tied: (-0.1 - 0.3) / 2 and (-0.2 - 0.3) / 2.

    Their interaction, [symp - gpt at untied] - [symp - gpt at tied]: -0.7 + 0.5 and -0.4 + 0.3; a family of its own.
    """
    dynamics, head, both = effects(FACTORS, FIGURES)
    assert (dynamics.factors, dynamics.levels, dynamics.against) == (["dynamics"], ["symp"], ["gpt"])
    assert (both.factors, both.levels, both.against) == (["dynamics", "head"], ["symp", "untied"], ["gpt", "tied"])
    assert [(e.pairs, e.possible) for e in (dynamics, head, both)] == [(2, 2), (2, 2), (1, 1)]
    mains = corrected({0: mean_difference([-0.6, -0.35]), 1: mean_difference([-0.2, -0.25])})
    wanted = [mains[0], mains[1], corrected({0: mean_difference([-0.2, -0.1])})[0]]
    for effect, want in zip((dynamics, head, both), wanted, strict=True):
        assert effect.difference is not None
        assert list(vars(effect.difference).values()) == pytest.approx(list(vars(want).values()))


def test_what_is_missing_takes_its_pairs_with_it() -> None:
    """Three levels by two by two, one cell missing: its pairs are left out, those of other levels stay."""
    factors = {"dynamics": ["a", "b", "c"], "head": ["x", "y"], "table": ["0", "1"]}
    effect = {"a": 0.0, "b": -1.0, "c": -3.0, "x": 0.0, "y": 0.5, "0": 0.0, "1": 0.25}
    figures: dict[Levels, list[float]] = {
        (d, h, t): [10 + effect[d] + effect[h] + effect[t] + (0.1 if (d, t) == ("b", "1") else 0) + s for s in (0, 0.3)]
        for d in "abc" for h in "xy" for t in "01"
    }  # fmt: skip
    del figures["a", "x", "1"]
    found = {tuple(one.levels): one for one in effects(factors, figures)}
    counts = {levels: (one.pairs, one.possible) for levels, one in found.items()}
    assert counts[("b",)] == counts[("c",)] == (3, 4)
    assert counts[("y",)] == counts[("1",)] == (5, 6)
    assert counts[("b", "y")] == counts[("b", "1")] == (1, 2)
    means = {levels: one.difference.mean for levels, one in found.items() if one.difference is not None}
    wanted = {("b",): -1.0 + 0.1 / 3, ("c",): -3.0, ("y",): 0.5, ("b", "1"): 0.1, ("c", "y"): 0.0}
    assert {levels: means[levels] for levels in wanted} == pytest.approx(wanted)


def test_a_level_without_a_pair_and_a_single_seed() -> None:
    figures = {levels: values for levels, values in FIGURES.items() if levels != ("gpt", "untied")}
    both = effects(FACTORS, figures)[-1]
    assert (both.pairs, both.possible, both.difference) == (0, 1, None)
    assert effects(FACTORS, {})[0].pairs == 0
    alone = effects(FACTORS, {levels: values[:1] for levels, values in FIGURES.items()})[0].difference
    assert alone is not None
    assert (alone.low, alone.p, alone.verdict) == (None, None, "no difference shown")
    assert alone.mean == pytest.approx(-0.6)
