"""docs/scripts: tokens beside the equations of their law's moments, and the animation."""

from pathlib import Path
from runpy import run_path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from PIL import Image

from sympformer import flows
from sympformer.flows.elliptic import FAMILIES
from sympformer.studies.flow.race import Course, make_system, race

SCRIPTS = Path(__file__).parents[3] / "docs" / "scripts"
law: Any = SimpleNamespace(**run_path(str(SCRIPTS / "law.py")))
animation: Any = SimpleNamespace(**run_path(str(SCRIPTS / "animation.py")))


@pytest.mark.parametrize("start", law.STARTS)
def test_tokens_obey_the_moment_equations(start: str) -> None:
    """Exactly from their own moments, up to sampling error from the law's; on until the energy has fallen."""
    assert start.replace("-", "_") in FAMILIES
    assert len(law.STARTS) == len(FAMILIES)
    found = law.follow(start, 200, seed=3)
    assert found.gap(found.own) < 1e-5
    assert 1e-3 < found.gap(found.expected) < 0.6
    assert found.gap(found.own) < 1e-3 * found.gap(found.expected)
    torch.testing.assert_close(found.path.t, found.own.t)
    assert found.path.potential[-1] < 0.1 * found.path.potential[0]


def test_more_tokens_come_nearer_to_the_law() -> None:
    few, many = (law.follow("gaussian", particles, seed=3) for particles in (50, 5_000))
    assert many.gap(many.expected) < min(0.1, 0.4 * few.gap(few.expected))


def test_strong_damping_takes_smaller_steps() -> None:
    found = law.follow("student-t", 200, damping=flows.Constant(100.0))
    assert found.path.t[1] - found.path.t[0] <= 0.011
    assert found.gap(found.own) < 1e-5


def test_the_ellipses_hold_the_same_tokens_all_along() -> None:
    """In the plane the law's shape is the tokens' shape, moved: the shares inside hardly change."""
    found = law.follow("student-t", 4000)
    covariance = found.kappa * found.expected.Sigma
    for deviations in (1, 2):
        shares = [
            law.share_inside(found.path.x[k], found.expected.m[k], covariance[k], deviations)
            for k in range(0, len(covariance), 10)
        ]
        assert max(shares) - min(shares) < 0.02
        assert min(shares) > 0.4


def test_the_picture_has_tokens_ellipses_and_curves() -> None:
    above, below = law.law_plot(law.follow("logistic", 60, dim=3), "heading").subfigs
    assert [len(axis.collections) for axis in above.axes] == [1] * 5
    for axis in above.axes:
        assert [len(line.get_xdata()) for line in axis.lines].count(121) == 4  # two of the law, two of the tokens
    assert [axis.get_ylabel() for axis in below.axes] == ["mean", "standard deviation"]


def test_the_animation(tmp_path: Path) -> None:
    generator = torch.Generator().manual_seed(0)
    x0 = torch.randn(6, 2, generator=generator, dtype=torch.float64)
    course = Course(make_system("linear", 2, 5.0, generator), x0, flows.Nesterov(), 40)
    animation.animate(race(course, ["ab2"], 0.3), tmp_path / "flow.gif", frames=5)
    with Image.open(tmp_path / "flow.gif") as gif:
        assert gif.n_frames == 5  # type: ignore[attr-defined]
