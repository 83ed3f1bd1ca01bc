"""Factors become models, rates are shared by levels, children have their parents' options, sizes are matched."""

import math
from pathlib import Path
from typing import Any

import pytest
import yaml

from sympformer.config_checks import parse_yaml, plain
from sympformer.data.tokenizers import make_tokenizer
from sympformer.errors import InputError
from sympformer.files import read_yaml
from sympformer.studies.compare.budgets import Budget
from sympformer.studies.compare.matching import parameters
from sympformer.studies.compare.plan import CompareConfig
from sympformer.studies.compare.rates import ChooseIn
from sympformer.training import TrainConfig
from sympformer.training.choices import choose_model

SMALL = Path(__file__).parents[3] / "configs/compare/factorial-small.yaml"
FACTORS: dict[str, dict[str, dict[str, Any]]] = {
    "dynamics": {
        "gpt": {"variant": "softmax-baseline"},
        "gpt-norm": {"variant": "softmax-baseline", "update_norm": True},
        "symp": {"variant": "softmax-plain-euler"},
    },
    "table": {"none": {}, "start": {"start_momentum": "embedded"}},
    "head": {"tied": {}, "untied": {"tie_head": False}},
}
BUILT = [
    *("gpt-none-tied", "gpt-none-untied", "gpt-norm-none-tied", "gpt-norm-none-untied"),
    *("symp-none-tied", "symp-none-untied", "symp-start-tied", "symp-start-untied"),
]
CHOOSE_IN = ChooseIn("dynamics", ["none-tied", "start-untied"])


def config(**changes: Any) -> CompareConfig:
    values: dict[str, Any] = {
        "factors": FACTORS, "baseline": "gpt-none-tied", "lr": [0.002, 0.004], "choose": Budget(tokens=1000),
        "budget": Budget(tokens=4000), "seeds": [1, 2],
        "common": TrainConfig(model={"n_layer": 2, "d_model": 16, "n_head": 2, "block_size": 32}),
    }  # fmt: skip
    return CompareConfig(**values | changes)


def test_the_product_less_what_is_refused() -> None:
    plan = config()
    assert list(plan.models) == BUILT
    assert plan.models["symp-start-untied"] == {
        "variant": "softmax-plain-euler", "start_momentum": "embedded", "tie_head": False
    }  # fmt: skip
    assert set(plan.refused) == {f"{gpt}-start-{head}" for gpt in ("gpt", "gpt-norm") for head in ("tied", "untied")}
    assert all("start_momentum = 'embedded' belongs to" in why for why in plan.refused.values())
    (sentence,) = plan.refusals()
    assert sentence.startswith(
        "Refused: gpt-start-tied, gpt-start-untied, gpt-norm-start-tied, gpt-norm-start-untied: "
    )


def test_the_same_as_the_list_written_out() -> None:
    """Names, options and training configs, so that a folder that the list began is gone on with."""
    plan = config(lr=[0.004], choose=None)
    listed = config(lr=[0.004], choose=None, factors={}, models={name: plan.models[name] for name in reversed(BUILT)})
    assert plan.differences(listed) == listed.differences(plan) == []
    rates = plan.chosen_rates({})
    assert rates == listed.chosen_rates({})
    mine, theirs = ({cell.folder: cell.config for cell in one.final_cells(rates, {})} for one in (plan, listed))
    assert mine == theirs
    assert len(mine) == 16
    assert config(factors={}, models={"gpt-none-tied": {"variant": "softmax-baseline"}}).differences(plan) == ["models"]


def test_round_trip_with_everything() -> None:
    plan = config(
        choose_in=CHOOSE_IN,
        reference="symp-none-tied",
        models={"child": {"parent": "symp-none-tied", "look_ahead": False}},
        families={"first": ["child"]},
        budget=Budget(tokens=4000, seconds_of="symp-none-tied"),
    )
    again = CompareConfig.from_dict(yaml.safe_load(yaml.safe_dump(plan.to_dict(), sort_keys=False)))
    assert again == plan
    assert again.refused == plan.refused


def test_on_and_off_are_names_of_levels() -> None:
    values = plain(parse_yaml("transport: {off: {}, on: {tie_head: false}}\nsure: true\nyes: 1", "it"))
    assert values == {"transport": {"off": {}, "on": {"tie_head": False}}, "sure": True, "yes": 1}


def test_a_model_takes_the_place_of_a_refused_cell() -> None:
    control = {"variant": "softmax-baseline", "tie_head": False}
    plan = config(models={"gpt-start-tied": control})
    assert list(plan.models) == ["gpt-none-tied", "gpt-none-untied", "gpt-start-tied", *BUILT[2:]]
    assert "gpt-start-tied" not in plan.refused
    assert plan.model_options("gpt-start-tied")["tie_head"] is False


def test_the_config_that_ships() -> None:
    values = plain(read_yaml(SMALL))
    plan = CompareConfig.from_dict(values)
    assert len(plan.models) == 12 + 2
    assert len(plan.refused) == 4
    assert [group.name for group in plan.rate_groups[:4]] == ["gpt", "gpt-norm", "yuriiformer", "sympformer"]


# --- rates by level


def losses(**of_cells: dict[float, float]) -> dict[str, dict[float, float]]:
    return {name.replace("_", "-"): values for name, values in of_cells.items()}


def test_a_level_chooses_in_its_cells_and_all_its_cells_take_it() -> None:
    plan = config(choose_in=CHOOSE_IN)
    cells = plan.choosing_cells({}, {})
    chosen_in = ["gpt-none-tied", "gpt-norm-none-tied", "symp-none-tied", "symp-start-untied"]  # one is refused in GPT
    assert [(cell.model, cell.lr) for cell in cells] == [(name, rate) for name in chosen_in for rate in (0.002, 0.004)]
    found = losses(
        gpt_none_tied={0.002: 3.0, 0.004: 2.0, 0.008: 2.5},
        gpt_norm_none_tied={0.002: 3.0, 0.004: 2.0, 0.008: 2.5},
        symp_none_tied={0.001: 9.0, 0.002: 3.0, 0.004: 3.2},
        symp_start_untied={0.001: 9.0, 0.002: 2.8, 0.004: 2.5},
    )  # means of symp: 2.9 and 2.85
    assert [(cell.model, cell.lr) for cell in plan.choosing_cells(found, {})] == [
        ("symp-none-tied", 0.008), ("symp-start-untied", 0.008)
    ]  # fmt: skip
    assert plan.chosen_rates(found) == dict.fromkeys(BUILT, 0.004)
    symp = next(group for group in plan.rate_groups if group.name == "symp")
    assert symp.disagreement(found) == (
        "symp: rate 0.004 has the lowest mean; by themselves its cells would have: "
        "symp-none-tied 0.002 (better by 0.2000), symp-start-untied that one."
    )
    assert next(group for group in plan.rate_groups if group.name == "gpt").disagreement(found) is None


def test_a_rate_that_diverges_in_one_of_the_cells_is_not_taken() -> None:
    plan = config(choose_in=CHOOSE_IN)
    found = losses(symp_none_tied={0.002: 3.0, 0.004: 1.0}, symp_start_untied={0.002: 3.0, 0.004: math.inf})
    assert plan.chosen_rates(found) == dict.fromkeys(BUILT[4:], 0.002)
    found["symp-start-untied"][0.002] = math.nan
    assert plan.chosen_rates(found) == {}


def test_models_beside_the_factors_choose_for_themselves() -> None:
    plan = config(choose_in=CHOOSE_IN, models={"child": {"parent": "symp-none-tied", "look_ahead": False}})
    assert plan.rate_groups[-1].chosen_in == ("child",)


# --- parents, sizes, families


def test_a_child_has_its_parents_options() -> None:
    models = {
        "child": {"parent": "symp-none-tied", "look_ahead": False, "lr": 0.01},
        "grandchild": {"parent": "child", "look_ahead": True},
    }
    plan = config(models=models)
    options = plan.model_options("grandchild")
    assert options == plan.common.model | {"variant": "softmax-plain-euler", "look_ahead": True}
    assert plan.rates("grandchild") == [0.01]


@pytest.mark.parametrize("by", ["d_model", "n_layer"])
def test_a_size_is_matched_by_parameters(by: str) -> None:
    tokenizer = make_tokenizer("byte", list)
    match = {"parameters": "symp-start-untied", "by": by}
    plan = config(models={"wide": {"variant": "softmax-baseline", "match": match}})
    sized = plan.sized(tokenizer)
    assert plan.sizes == {}
    found, options = sized.sizes["wide"], sized.model_options("wide")
    size, unit = options[by], 2 if by == "d_model" else 1
    assert size == found.size
    counts = {k: parameters(choose_model(options | {by: size + k * unit}, tokenizer)) for k in (-1, 0, 1)}
    wanted = parameters(choose_model(plan.model_options("symp-start-untied"), tokenizer))
    assert (found.parameters, found.wanted) == (counts[0], wanted)
    assert min(counts, key=lambda k: abs(counts[k] - wanted)) == 0
    other = config(models={"wide": {"variant": "softmax-baseline", "match": match | {"by": "n_layer"}}})
    assert plan.differences(other) == ([] if by == "n_layer" else ["models"])
    cell = next(cell for cell in sized.final_cells({"wide": 0.1}, {}))
    assert cell.config.model[by] == size
    assert "match" not in cell.config.model
    sentence = f"wide has {by} = {size}, where its {counts[0]:,} parameters are nearest to the {wanted:,} of other ("
    assert found.describe("wide", "other").startswith(sentence)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"factors": FACTORS | {"head": {"tied": {}}}}, "factors.head must name two levels"),
        ({"factors": FACTORS | {"head": {"tied": {}, "untied": None}}}, "factors.head.untied must hold options"),
        ({"factors": FACTORS | {"head": {"tied": {}, "untied": {"tie_heads": False}}}}, "head.untied.*tie_head"),
        ({"factors": FACTORS | {"head": {"tied": {}, "x": {"update_norm": False}}}}, "an option belongs to one factor"),
        ({"factors": {"a": {"x": {}, "x-y": {}}, "b": {"y-z": {}, "z": {}}}, "baseline": "x-z"}, "called x-y-z"),
        ({"models": {"gpt-none-tied": {"variant": "linear-baseline"}}}, "is a cell of the factors too"),
        ({"baseline": "gpt-start-tied"}, "unknown baseline"),
        ({"reference": "gpt"}, "unknown reference"),
        ({"choose_in": ChooseIn("dynamic", ["none-tied"])}, "dynamics"),
        ({"choose_in": ChooseIn("dynamics", ["none-tide"])}, "none-tied"),
        ({"choose_in": ChooseIn("dynamics", ["start-tied"])}, "gpt has none of the cells"),
        ({"models": {"a": {"parent": "b"}}}, "unknown parent of a"),
        ({"models": {"a": {"parent": "b"}, "b": {"parent": "a"}}}, "has no beginning"),
        ({"models": {"a": {"match": {"parameters": "gpt-none-tied"}}}}, "models.a.match must name"),
        ({"models": {"a": {"match": {"parameters": "gpt-none-tied", "by": "n_head"}}}}, "models.a.match must name"),
        ({"models": {"a": {"match": {"parameters": "gpt", "by": "n_layer"}}}}, "model to match a with"),
        ({"models": {"a": {"n_layer": 3, "match": {"parameters": "symp-none-tied", "by": "n_layer"}}}}, "leave one"),
        ({"families": {"x": ["gpt"]}}, "model of the family x"),
        ({"families": {"x": ["symp-none-tied"], "y": ["symp-none-tied"]}}, "a model has one family"),
        ({"budget": Budget(tokens=10, seconds_of="gpt")}, "seconds_of"),
    ],
)  # fmt: skip
def test_refusals(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        config(**changes)


def test_the_cells_of_a_level_share_their_rates() -> None:
    factors = FACTORS | {"head": {"tied": {}, "untied": {"tie_head": False, "lr": 0.1}}}
    with pytest.raises(InputError, match="are given different rates"):
        config(factors=factors, choose_in=CHOOSE_IN)
    given = FACTORS | {"dynamics": {k: v | {"lr": 0.01} for k, v in FACTORS["dynamics"].items()}}
    plan = config(factors=given, choose=None)
    assert plan.chosen_rates({}) == dict.fromkeys(BUILT, 0.01)


@pytest.mark.parametrize("values", [{"seconds": 3.0, "seconds_of": "gpt"}, {"seconds_of": "gpt"}])
def test_a_budget_of_seconds_is_of_one_kind(values: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="budget"):
        Budget(**values)


def test_equal_seconds_in_steps() -> None:
    """100 steps of 0.03 s are 3 s: 60 steps of 0.05 s, and never none."""
    budget = Budget(tokens=5000, seconds_of="symp")
    steps = budget.steps_of({"symp": 0.03, "gpt": 0.05, "huge": 100.0}, 100)
    assert steps == {"symp": 100, "gpt": 60, "huge": 1}
    assert Budget(seconds=6.0).steps_of({"symp": 0.03, "gpt": 0.05}, 0) == {"symp": 200, "gpt": 120}
    assert budget.describe() == "the seconds that symp needs for 5,000 tokens"
