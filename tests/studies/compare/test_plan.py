"""The grid that a comparison's config unfolds to, and the sentences for configs that cannot be."""

import math
from typing import Any

import pytest
import yaml

from sympformer.errors import InputError
from sympformer.studies.compare.budgets import Budget
from sympformer.studies.compare.plan import CompareConfig
from sympformer.training import TrainConfig

MODELS: dict[str, dict[str, Any]] = {
    "gpt": {"variant": "softmax-baseline"},
    "exp": {"variant": "softmax-exp-euler", "lr": 0.016},
}


def config(**changes: Any) -> CompareConfig:
    values: dict[str, Any] = {
        "models": MODELS, "baseline": "gpt", "lr": [0.002, 0.004], "choose": Budget(tokens=1000),
        "budget": Budget(tokens=4000), "seeds": [1, 2],
        "common": TrainConfig(model={"preset": "tuned", "n_layer": 2, "d_model": 16, "n_head": 2, "block_size": 32}),
    }  # fmt: skip
    return CompareConfig(**values | changes)


def test_cells() -> None:
    plan = config()
    choosing = plan.choosing_cells({}, {})
    assert [(cell.model, cell.lr, cell.seed) for cell in choosing] == [("gpt", 0.002, 0), ("gpt", 0.004, 0)]
    final = list(plan.final_cells({"gpt": 0.004, "exp": 0.016}, {}))
    assert [(cell.model, cell.lr, cell.seed) for cell in final] == [
        ("gpt", 0.004, 1), ("exp", 0.016, 1), ("gpt", 0.004, 2), ("exp", 0.016, 2)
    ]  # fmt: skip
    assert all(cell.config.tokens == 4000 and cell.config.seed == cell.seed for cell in final)
    assert final[1].config.model["variant"] == "softmax-exp-euler"
    assert final[1].config.model["n_layer"] == 2
    assert "lr" not in final[1].config.model
    assert len({cell.folder for cell in [*choosing, *final]}) == 6


@pytest.mark.parametrize(
    ("losses", "extend", "follows"),
    [
        ({0.002: 3.0, 0.004: 2.0}, 3, [0.008]),  # better upwards
        ({0.002: 2.0, 0.004: 3.0}, 3, [0.001]),  # and downwards
        ({0.002: 3.0, 0.004: 2.0, 0.008: 2.5}, 3, []),  # a best with two worse neighbours
        ({0.002: 3.0, 0.004: 2.0, 0.008: math.inf}, 3, []),  # which may have diverged
        ({0.002: 3.0, 0.004: 2.0, 0.008: 1.5}, 3, [0.016]),
        ({0.002: 3.0, 0.004: 2.0, 0.008: 1.5}, 1, []),  # the limit
        ({0.002: 3.0, 0.004: 2.0}, 0, []),
        ({0.002: math.inf, 0.004: math.inf}, 3, []),
    ],
)
def test_rates_go_on_while_the_best_is_the_outermost(
    losses: dict[float, float], extend: int, follows: list[float]
) -> None:
    cells = config(extend=extend).choosing_cells({"gpt": losses}, {})
    assert [(cell.model, cell.lr) for cell in cells] == [("gpt", rate) for rate in follows]


def test_a_model_without_a_rate_has_no_final_run() -> None:
    assert {cell.model for cell in config().final_cells({"exp": 0.016}, {})} == {"exp"}


def test_seconds_become_steps() -> None:
    cells = list(config(budget=Budget(seconds=3.0)).final_cells({"gpt": 0.1, "exp": 0.1}, {"gpt": 30, "exp": 20}))
    assert [(cell.config.steps, cell.config.tokens) for cell in cells[:2]] == [(30, None), (20, None)]


def test_an_older_comparison_is_the_same() -> None:
    """The training budget that stood in its common part by default was of no effect."""
    assert config(common=config().common.replace(tokens=800_000)) == config()


def test_round_trip_through_yaml() -> None:
    plan = config()
    assert CompareConfig.from_dict(yaml.safe_load(yaml.safe_dump(plan.to_dict()))) == plan


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"models": {}}, "at least one model"),
        ({"common": TrainConfig(init_from="runs/x")}, "leave out common.init_from"),
        ({"extend": -1}, "extend must lie between"),
        ({"models": {"a/b": {"variant": "softmax-baseline"}}}, "names a folder"),
        ({"models": {"gpt": "softmax-baseline"}}, "must hold named options"),
        ({"models": {"gpt": {"variant": "softmax-basline"}}}, "models.gpt.*softmax-baseline"),
        ({"models": {"gpt": {"variant": "softmax-baseline", "n_layers": 3}}}, "models.gpt.*n_layer"),
        ({"models": {"gpt": {"variant": "softmax-baseline", "lr": -1}}}, "learning rates of gpt"),
        ({"models": {"gpt": {"variant": "softmax-baseline", "lr": []}}}, "learning rates of gpt"),
        ({"baseline": "gtp"}, "gpt"),
        ({"seeds": [1, 1]}, "seeds"),
        ({"seeds": []}, "seeds"),
        ({"choose": None}, "gpt has several learning rates"),
        ({"common": TrainConfig(steps=3)}, "follow from the comparison"),
    ],
)
def test_refusals(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        config(**changes)


@pytest.mark.parametrize("values", [{}, {"tokens": 3, "steps": 3}, {"seconds": 0.0}, {"tokens": -1}])
def test_budget_is_one_positive_number(values: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="budget"):
        Budget(**values)
