"""Intervals against scipy, differences by hand, crossings by hand."""

import math

import pytest
from scipy import stats

from sympformer.studies.results import Difference
from sympformer.studies.results.statistics import (
    corrected,
    first_reach,
    holm,
    mean_difference,
    paired_difference,
    spread,
    t_quantile,
    two_sided_p,
)


@pytest.mark.parametrize("dof", [1, 2, 3, 4, 9, 30])
@pytest.mark.parametrize("p", [0.5, 0.75, 0.975, 0.995])
def test_quantiles_of_student(p: float, dof: int) -> None:
    assert t_quantile(p, dof) == pytest.approx(stats.t.ppf(p, dof), rel=1e-9, abs=1e-12)


@pytest.mark.parametrize(("p", "dof"), [(0.2, 3), (1.0, 3), (0.9, 0)])
def test_quantile_refuses(p: float, dof: int) -> None:
    with pytest.raises(ValueError, match="t_quantile"):
        t_quantile(p, dof)


@pytest.mark.parametrize("dof", [1, 2, 4, 9, 30])
@pytest.mark.parametrize("t", [0.0, 0.7, -2.5, 12.0, 300.0])
def test_p_of_student(t: float, dof: int) -> None:
    assert two_sided_p(t, dof) == pytest.approx(2 * stats.t.sf(abs(t), dof), rel=1e-9)


def test_p_by_hand() -> None:
    """One degree of freedom: 1 - 2/pi atan(t); two: 1 - t / sqrt(2 + t^2)."""
    assert two_sided_p(3.0, 1) == pytest.approx(1 - 2 / math.pi * math.atan(3.0))
    assert two_sided_p(3.0, 2) == pytest.approx(1 - 3 / math.sqrt(11))


def test_holm_by_hand() -> None:
    """Of four: 0.005 x 4, 0.01 x 3, 0.03 x 2, and 0.04 x 1 which may not be below the one before it."""
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.6, 0.7]) == [1.0, 1.0]
    assert holm([]) == []


def test_a_family_is_corrected_together() -> None:
    """Differences 1, 2, 3 with sd 1: t = 2 sqrt(3), p = 1 - t / sqrt(2 + t^2) = 0.0742; a tenth of the sd: 0.00083."""
    sure, unsure = mean_difference([1.9, 2.0, 2.1]), mean_difference([1.0, 2.0, 3.0])
    assert unsure.p == pytest.approx(1 - math.sqrt(12 / 14))
    assert sure.p == pytest.approx(1 - math.sqrt(1200 / 1202))
    assert mean_difference([-1.9, -2.0, -2.1]).p == pytest.approx(sure.p)
    alone = corrected({"a": sure})["a"]
    assert (alone.p_holm, alone.verdict_holm) == (sure.p, "worse")
    family = corrected({"a": sure, "b": unsure, "one seed": mean_difference([2.0])})
    assert sure.p is not None
    assert family["a"].p_holm == pytest.approx(2 * sure.p)
    assert family["b"].p_holm == pytest.approx(1 - math.sqrt(12 / 14))
    assert family["one seed"].p_holm is None
    assert [found.settled for found in family.values()] == ["worse", "no difference shown", "no difference shown"]


def test_a_verdict_may_not_survive_its_family() -> None:
    found = mean_difference([-1.0, -1.1, -0.7, -1.3])
    assert found.p is not None
    assert found.verdict == "better"
    many = dict.fromkeys(range(int(0.06 / found.p) + 1), found)
    assert {one.verdict_holm for one in corrected(many).values()} == {"no difference shown"}
    assert {one.settled for one in many.values()} == {"better"}  # before the correction


def test_differences_without_any_spread() -> None:
    assert mean_difference([0.5, 0.5]) == Difference(0.5, 0.5, 0.5, "worse", 0.0)
    assert mean_difference([0.0, 0.0]).p == 1.0


def test_interval_is_the_paired_t_interval() -> None:
    mine, baseline = [3.31, 3.35, 3.38, 3.29], [3.52, 3.50, 3.61, 3.49]
    found = paired_difference(mine, baseline)
    low, high = stats.ttest_rel(mine, baseline).confidence_interval(0.95)
    assert [found.low, found.high] == pytest.approx([low, high])
    assert found.mean == pytest.approx(sum(mine) / 4 - sum(baseline) / 4)
    assert found.verdict == "better"
    assert paired_difference(baseline, mine).verdict == "worse"


def test_pairing_removes_what_a_seed_does_to_both() -> None:
    seeds = [0.0, 0.5, -0.4]  # far larger than the difference
    found = paired_difference(
        [3.0 + s + e for s, e in zip(seeds, (0.0, 0.001, -0.001), strict=True)], [3.1 + s for s in seeds]
    )
    assert found.verdict == "better"


@pytest.mark.parametrize("mine", [[3.4, 3.6], [3.5]])
def test_no_difference_shown(mine: list[float]) -> None:
    found = paired_difference(mine, [3.5, 3.45][: len(mine)])
    assert found.verdict == "no difference shown"
    assert (found.low is None) == (len(mine) == 1)
    if found.low is not None and found.high is not None:
        assert found.low < 0 < found.high


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
