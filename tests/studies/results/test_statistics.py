"""Intervals against scipy, differences by hand, crossings by hand."""

import math

import pytest
from scipy import stats

from sympformer.studies.results.statistics import first_reach, paired_difference, spread, t_quantile


@pytest.mark.parametrize("dof", [1, 2, 3, 4, 9, 30])
@pytest.mark.parametrize("p", [0.5, 0.75, 0.975, 0.995])
def test_quantiles_of_student(p: float, dof: int) -> None:
    assert t_quantile(p, dof) == pytest.approx(stats.t.ppf(p, dof), rel=1e-9, abs=1e-12)


@pytest.mark.parametrize(("p", "dof"), [(0.2, 3), (1.0, 3), (0.9, 0)])
def test_quantile_refuses(p: float, dof: int) -> None:
    with pytest.raises(ValueError, match="t_quantile"):
        t_quantile(p, dof)


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
