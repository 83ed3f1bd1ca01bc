"""`sympformer flow --start ..`: tokens beside the equations of their moments."""

import json
from pathlib import Path as FilePath
from typing import Any, get_args

import numpy as np
import pytest
import torch

from sympformer import flows
from sympformer.cli import main
from sympformer.errors import InputError
from sympformer.flows.elliptic import FAMILIES, Gaussian, GeneralisedHyperbolic, StudentT
from sympformer.studies.flow.command import flow
from sympformer.studies.flow.law import Comparison, StartName, compare, make_family, start_law
from sympformer.studies.flow.law_plots import _View, law_plot
from sympformer.studies.flow.systems import make_system

STARTS = get_args(StartName)
SMALL: dict[str, Any] = {"dim": 2, "particles": 40, "condition": 5.0, "max_passes": 40, "step": 0.2, "gif": False}


def followed(start: str, particles: int = 200, dim: int = 2, damping: flows.LogLinear | None = None) -> Comparison:
    generator = torch.Generator().manual_seed(3)
    system = make_system("linear", dim, 10.0, generator)
    assert isinstance(system, flows.LinearAttention)
    law = start_law(make_family(start), dim, generator)
    return compare(system, law, law.sample(particles, generator), damping or flows.Nesterov())


@pytest.mark.parametrize("start", STARTS)
def test_tokens_obey_the_moment_equations(start: str) -> None:
    """Exactly from their own moments, up to sampling error from the law's."""
    result = followed(start)
    assert result.gap(result.own) < 1e-5
    assert 1e-3 < result.gap(result.expected) < 0.6
    assert result.gap(result.own) < 1e-3 * result.gap(result.expected)
    assert len(result.path.t) == len(result.own.t) == len(result.expected.t)
    torch.testing.assert_close(result.path.t, result.own.t)


def test_more_tokens_come_nearer_to_the_law() -> None:
    few, many = (followed("gaussian", particles) for particles in (50, 5_000))
    assert many.gap(many.expected) < 0.4 * few.gap(few.expected)
    assert many.gap(many.expected) < 0.1


def test_the_picture_follows_the_law_until_its_energy_has_fallen() -> None:
    result = followed("student-t", dim=4)
    energy = result.path.potential / result.path.potential[0]
    assert energy[-1] < 0.1
    assert energy[len(energy) // 2] > 0.02
    strong = followed("student-t", damping=flows.Constant(100.0))  # stiff: the step follows the damping
    assert strong.path.t[1] - strong.path.t[0] <= 0.011
    assert strong.gap(strong.own) < 1e-5


def test_the_ellipses_hold_the_same_tokens_all_along() -> None:
    """In the plane the law's shape is the tokens' shape, moved: the shares inside hardly change."""
    view = _View(followed("student-t", particles=4000), torch.eye(2, dtype=torch.float64))
    for deviations in (1, 2):
        shares = torch.tensor([view.inside(k, deviations) for k in range(0, len(view.t), 10)])
        assert shares.max() - shares.min() < 0.02
    assert view.inside(0, 2) > view.inside(0, 1) > 0.4


def test_the_picture_has_tokens_ellipses_and_curves() -> None:
    figure = law_plot(followed("logistic", dim=3), "heading")
    above, below = figure.subfigs
    assert len(above.axes) == 5
    for axis in above.axes:
        assert len(axis.collections) == 1
        assert [np.shape(line.get_xdata()) for line in axis.lines].count((121,)) == 4  # two of the law, two own
    assert [axis.get_ylabel() for axis in below.axes] == ["mean", "standard deviation"]


def test_starts_are_families_with_their_parameters() -> None:
    assert {start.replace("-", "_") for start in STARTS} == set(FAMILIES)
    assert make_family("student-t", nu=7.0) == StudentT(7.0)
    assert make_family("student-t", nu=None) == StudentT(5.0)
    assert make_family("gaussian") == Gaussian()
    assert make_family("generalised-hyperbolic", chi=2.0) == GeneralisedHyperbolic(-0.5, 2.0, 1.0)


def test_the_command_writes_the_picture_and_its_words(tmp_path: FilePath, capsys: pytest.CaptureFixture[str]) -> None:
    words = [f"--{name}={str(value).lower()}" for name, value in SMALL.items()]
    main(["flow", "--start", "student-t", "--nu", "5", "--integrators", "ab2", "--out", str(tmp_path), *words])
    assert {"law.png", "tokens.png", "energy.png", "table.md", "flow.json"} == {
        file.name for file in tmp_path.iterdir()
    }
    assert "obey the moment equations" in capsys.readouterr().out
    document = json.loads((tmp_path / "flow.json").read_text())
    assert document["options"]["nu"] == 5.0
    assert any("StudentT(v=5.0)" in note for note in document["notes"])
    flow(integrators="ab2", out=tmp_path, **SMALL)
    assert not (tmp_path / "law.png").exists(), "the picture of an earlier run stayed behind"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"start": "student"}, "did you mean 'student-t'"),
        ({"start": "student-t", "nu": 2.0}, "above 2 for a finite covariance"),
        ({"start": "gaussian", "nu": 5.0}, "nu is an option of the start student-t; gaussian has none such"),
        ({"nu": 5.0}, "nu is an option of a start law"),
        ({"start": "logistic", "causal": True}, "linear attention with full visibility only"),
        ({"start": "logistic", "system": "softmax"}, "linear attention with full visibility only"),
        ({"start": "logistic", "particles": 8}, "more particles than dimensions, got 8 in 8"),
    ],
)
def test_bad_starts_are_one_sentence_and_leave_nothing(
    options: dict[str, Any], message: str, tmp_path: FilePath
) -> None:
    with pytest.raises(InputError, match=message) as caught:
        flow(out=tmp_path / "out", **options)
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []
