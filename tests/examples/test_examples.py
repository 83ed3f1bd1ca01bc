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
    for stepper in digits["STEPPERS"]:
        model = digits["Classifier"](stepper)
        assert model(torch.zeros(2, 64)).shape == (2, 10)
    assert digits["interval"]([0.9, 0.9]) == "90.0 % +- 0.0"
    assert digits["accuracy"]("hamiltonian", seed=0, epochs=2, n_train=400) > 0.4  # guessing: 0.1


def test_point_sets() -> None:
    module = example("point_sets")
    (points, padding), labels = module["point_sets"]()
    assert points.shape[:2] == padding.shape
    assert len(labels) == len(points) == 1797
    assert not padding.all(1).any()
    some = points[:20].double(), padding[:20]
    mixed = module["ordered"](some, torch.rand(20, points.shape[1]))
    for stepper, positions in module["CASES"]:
        torch.manual_seed(0)
        model = module["SetClassifier"](stepper, positions).double()
        assert ((model(*some) - model(*mixed)).abs().max() < 1e-12) == (positions == "none")
    assert all(0 <= value <= 1 for value in module["accuracies"]("hamiltonian", "none", seed=0, epochs=1, n_train=40))
