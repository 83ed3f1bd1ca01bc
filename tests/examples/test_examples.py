"""The examples run, at small size, and stay short."""

import runpy
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("sklearn", reason="needs the extra dev")

FOLDER = Path(__file__).parents[2] / "examples"
SCRIPTS = sorted(FOLDER.glob("*.py"))


def example(name: str) -> Any:
    return runpy.run_path(str(FOLDER / f"{name}.py"), run_name="imported")


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_an_example_has_sixty_lines_at_most(script: Path) -> None:
    code = script.read_text().split('"""', 2)[2]  # behind the docstring
    lines = [line for line in code.splitlines() if line.strip() and not line.startswith(("import ", "from "))]
    assert len(lines) <= 60


def test_digits() -> None:
    digits = example("digits")
    for dynamics in digits["DYNAMICS"]:
        model = digits["Classifier"](dynamics)
        assert model(torch.zeros(2, 64)).shape == (2, 10)
    assert 0 <= digits["accuracy"]("sympformer", seed=0, epochs=1, n_train=100) <= 1


def test_point_sets() -> None:
    sets = example("point_sets")
    points, padding, labels = sets["point_sets"]()
    assert points.shape[:2] == padding.shape
    assert len(labels) == len(points) == 1797
    assert not padding.all(1).any()
    some = slice(0, 20)
    mixed = sets["shuffled"](points[some], padding[some])
    for positions, same in (("none", True), ("rotary", False)):
        torch.manual_seed(0)
        model = sets["SetClassifier"](positions).double()
        a, b = model(points[some].double(), padding[some]), model(mixed[0].double(), mixed[1])
        assert ((a - b).abs().max() < 1e-12) == same
