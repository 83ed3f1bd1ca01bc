"""The config of a model and the table of variants: presets, twins, round trips, what is refused."""

import json
import math
from typing import Any

import pytest
import yaml

import sympformer as sf
from sympformer.config_checks import parse_yaml
from sympformer.errors import InputError
from sympformer.models import PRESETS, VARIANTS, ModelConfig
from sympformer.models.config import named_options
from sympformer.models.describe import parameter_counts
from sympformer.options import Option, read
from tests.models.cases import CHOICES, every_choice


def test_fourteen_variants() -> None:
    assert len(VARIANTS) == 14
    kinds = ("baseline", "yuriiformer", "plain-euler", "presymp-euler", "exp-euler", "ab2", "etd-ab2")
    assert set(VARIANTS) == {f"{a}-{k}" for a in ("softmax", "linear") for k in kinds}
    assert PRESETS == ("tuned", "full", "paper", "paper-spd", "modern")


# the same list of parts for all
MODERN: dict[str, Any] = {
    "norm": "rmsnorm",
    "mlp": "relu2",
    "positions": "rotary",
    "qk_norm": True,
    "zero_start": True,
    "tie_head": False,
    "heads": "projected",
    "n_key_head": 4,
    "gain": None,
}
# (variant, preset) -> what it starts with
STARTS: dict[tuple[str, str], dict[str, Any]] = {
    ("softmax-exp-euler", "paper"): {
        "h_x": 0.1,
        "h_y": 0.1,
        "damping": (3.0, 1e-4),
        "mu": 0.0,
        "beta": 0.9,
        "mu_mlp": 0.9,
        "gain": 1.0,
        "form": "paper",
        "heads": "averaged",
        "value": "tied",
        "mobility": "derived",
        "start_momentum": "zero",
    },
    ("softmax-plain-euler", "paper"): {"damping": 0.9},
    ("linear-exp-euler", "paper"): {"h_x": 0.25, "h_y": 0.25, "value": "tied"},
    ("linear-plain-euler", "paper"): {"h_x": 0.25, "h_y": 0.25, "damping": 0.9},
    ("linear-ab2", "paper"): {"h_x": 0.01, "h_y": 0.01},
    ("linear-baseline", "paper"): {"h_x": None, "bound": "none", "heads": "projected"},
    ("softmax-yuriiformer", "paper"): {"mu": 0.9, "beta": 0.9, "gain": 1.0, "start_momentum": "embedded"},
    ("softmax-yuriiformer", "tuned"): {"mu": 0.1, "beta": 0.3, "gain": 0.03, "start_momentum": "zero"},
    ("softmax-exp-euler", "tuned"): {
        "h_x": 0.05,
        "h_y": 1.0,
        "gain": 0.03,
        "beta": 0.3,
        "mu_mlp": 0.1,
        "mu": 0.0,
        "bound": "momentum",
        "form": "newton",
        "value": "free",
        "mobility": "identity",
    },
    ("softmax-plain-euler", "tuned"): {"damping": 0.3},
    **{
        (f"softmax-{kind}", "modern"): MODERN | {"bound": bound}
        for kind, bound in {"baseline": "none", "yuriiformer": "cap", "exp-euler": "cap"}.items()
    },
}


@pytest.mark.parametrize(("name", "preset"), STARTS)
def test_presets_hold_the_papers_and_our_starts(name: str, preset: str) -> None:
    cfg = sf.variant(name, preset)
    assert {option: getattr(cfg, option) for option in STARTS[name, preset]} == STARTS[name, preset]


@pytest.mark.parametrize("name", VARIANTS)
def test_presets_differ_where_they_say(name: str) -> None:
    """full from tuned by the terms of the softmax flow; paper-spd from paper by its assumption."""
    cfg = {preset: sf.variant(name, preset) for preset in PRESETS}
    flow, softmax = cfg["full"].stepper == "hamiltonian", cfg["full"].attention == "softmax"
    terms: dict[str, Any] = {"form": "own", "mobility": "free", "mu": 0.001}
    assert cfg["full"] == (cfg["tuned"].replace(**terms) if flow and softmax else cfg["tuned"])
    assumption = {"mobility": "spd"} if softmax else {"value": "spd"}
    assert cfg["paper-spd"] == (cfg["paper"].replace(**assumption) if flow else cfg["paper"])


@pytest.mark.parametrize(
    ("preset", "attention", "count"),
    [
        ("paper", "softmax", 12_288),  # Q, K, V
        ("paper-spd", "softmax", 12_288),  # Q, K, the factor of B
        ("full", "softmax", 16_384),
        ("tuned", "softmax", 12_288),
        ("paper", "linear", 12_288),
        ("paper-spd", "linear", 8_192),  # one matrix for A, and V
    ],
)
def test_matrices_of_an_attention_layer(preset: str, attention: str, count: int) -> None:
    """At width 64: what a layer of a preset learns."""
    model = sf.build_model(sf.variant(f"{attention}-exp-euler", preset, n_layer=1, d_model=64, vocab_size=8))
    assert parameter_counts(model)["attention"] == count


@every_choice
def test_config_round_trips(choice: str) -> None:
    name, overrides = CHOICES[choice]
    cfg = sf.variant(name, "full", **overrides)
    assert ModelConfig.from_dict(json.loads(json.dumps(cfg.to_dict()))) == cfg
    text = yaml.safe_dump(cfg.to_dict())
    known = {key: Option(*told) for key, told in named_options().items()}
    assert ModelConfig.from_dict(read(known, [], parse_yaml(text, "it"))) == cfg


def test_changes_of_a_part_bring_its_own_defaults() -> None:
    cfg = sf.variant("softmax-exp-euler", "full", h_x=0.5, transport="both", start_momentum="embedded")
    assert cfg.replace(stepper="gradient", transport="none", bound="none").h_x is None
    assert cfg.replace(integrator="plain_euler").damping == 0.3
    assert cfg.twin().transport == "positions"
    assert cfg.replace(mu=0.3).replace(attention="linear").mu == 0.3
    assert sf.variant("softmax-exp-euler", "paper", integrator="plain_euler") == sf.variant(
        "softmax-plain-euler", "paper"
    )


LINEAR = {"attention": "linear"}
BAD_CONFIGS: dict[str, tuple[dict[str, Any], str]] = {
    "heads": ({"n_head": 3}, "n_head must divide d_model"),
    "layers": ({"n_layer": 0}, "n_layer must be at least 1"),
    "name": ({"n_layers": 4}, "did you mean 'n_layer'"),
    "choice": ({"form": "papr"}, "did you mean 'paper'"),
    "type": ({"d_model": "64"}, "d_model must be 64, got '64'"),
    "list": ({"attention": []}, "attention must be str"),
    "mapping": ({"mlp": {}}, "mlp must be str"),
    "list for a literal": ({"bound": []}, "bound"),
    "truth": ({"n_layer": True}, "n_layer must be int"),
    "fraction": ({"beta": 1.0}, "strictly between 0 and 1"),
    "step": ({"h_x": 0.0}, "h_x must be positive"),
    "infinite": ({"gain": math.inf}, "positive and finite"),
    "dropout": ({"dropout": 1.0}, "dropout must lie"),
    "tied multi": ({"value": "tied", "heads": "multi"}, "needs heads = 'averaged'"),
    "derived free": ({"mobility": "derived"}, "needs value = 'tied'"),
    "wide keys": ({"d_key": 128}, "d_key must be a multiple of n_head = 4 up to d_model = 64"),
    "uneven keys": ({"d_key": 6}, "d_key must be a multiple of n_head"),
    "free keys": ({"d_key": 32}, "d_key needs value = 'tied'"),
    "spd heads": (LINEAR | {"value": "spd", "heads": "multi"}, "it needs heads = 'averaged'"),
    "softmax spd": ({"value": "spd"}, "belongs to linear attention"),
    "linear form": (LINEAR | {"form": "paper"}, "belongs to attention softmax, not to linear"),
    "linear symplectic": (LINEAR | {"integrator": "symplectic_euler"}, "second scan"),
    "odd turns": ({"positions": "rotary", "d_model": 12}, "in pairs.* even width, got 3 a head"),
    "odd narrow turns": (
        LINEAR | {"positions": "rotary", "d_key": 4, "value": "tied"},
        r"got 1 a head \(4 columns, n_head = 4\)",
    ),
    "tied turns": ({"positions": "rotary", "value": "tied"}, "'rotary' does not go with value = 'tied'"),
    "spd turns": (LINEAR | {"positions": "rotary", "value": "spd"}, "'rotary' does not go with value = 'spd'"),
    "tied norms": ({"qk_norm": True, "value": "tied"}, "qk_norm does not go with value = 'tied'"),
    "tied linear norms": (LINEAR | {"qk_norm": True, "value": "tied"}, "qk_norm does not go with value = 'tied'"),
    "tied projected": ({"value": "tied", "heads": "projected"}, "needs heads = 'averaged'"),
    "linear projected": (LINEAR | {"heads": "projected"}, "belongs to steppers gradient and nesterov"),
    "uneven groups": ({"heads": "multi", "n_kv_head": 3}, "n_kv_head must divide n_head = 4"),
    "negative groups": ({"heads": "multi", "n_kv_head": -2}, "n_kv_head must divide n_head = 4"),
    "positions": ({"positions": "rotery"}, "did you mean 'rotary'"),
    "rk4": ({"integrator": "rk4"}, "integrator = 'rk4' does not fit a layer"),
    "damping of Euler": ({"integrator": "plain_euler", "damping": [3, 0]}, "one number, the momentum's factor, got"),
    "factor of a flow": ({"damping": 0.5}, r"must be \[c_log, c_lin\] of alpha = c_log/t \+ c_lin, got 0.5"),
    "factor": ({"integrator": "plain_euler", "damping": 1.0}, "strictly between 0 and 1"),
    "damping": ({"damping": [3.0, -1.0]}, "damping must be positive"),
    "gradient momentum": ({"stepper": "gradient", "bound": "momentum"}, "is for momenta"),
    "gradient transport": (
        {"stepper": "gradient", "transport": "both"},
        "transport = 'both' is for momenta, which stepper",
    ),
    "transport both ways": ({"causal": False, "transport": "positions"}, "has no effect with causal = False"),
    # options of parts that were not chosen
    "gradient form": ({"stepper": "gradient", "form": "paper"}, "form = 'paper' has no effect with stepper"),
    "gradient start": (
        {"stepper": "gradient", "start_momentum": "embedded"},
        "start_momentum = 'embedded' has no effect with stepper = 'gradient'",
    ),
    "nesterov step": (
        {"stepper": "nesterov", "h_x": 0.5},
        "h_x = 0.5 belongs to stepper gradient and hamiltonian, not to nesterov",
    ),
    "nesterov ahead": ({"stepper": "nesterov", "mu": 0.0}, "mu must lie strictly between 0 and 1"),
    "linear mobility": (LINEAR | {"mobility": "spd"}, "mobility = 'spd' belongs to attention softmax, not to linear"),
    "bare beta": ({"mlp": "none", "beta": 0.5}, "beta = 0.5 has no effect with mlp = 'none'"),
    "parallel beta": ({"splitting": "parallel", "beta": 0.5}, "beta = 0.5 has no effect with splitting = 'parallel'"),
    "scripts' beta": (
        {"mlp_velocity": "attention", "beta": 0.5},
        "beta = 0.5 has no effect with mlp_velocity = 'attention'",
    ),
    "bare ratio": ({"mlp": "none", "mlp_ratio": 2}, "mlp_ratio = 2 has no effect with mlp = 'none'"),
    "capped gain": ({"bound": "cap", "gain": 0.5}, "gain = 0.5 has no effect with bound = 'cap'"),
    "averaged groups": ({"n_kv_head": 2}, "n_kv_head = 2 has no effect with heads = 'averaged'"),
}


@pytest.mark.parametrize("case", BAD_CONFIGS)
def test_bad_configs_say_what_is_wrong(case: str) -> None:
    values, message = BAD_CONFIGS[case]
    with pytest.raises(InputError, match=message) as caught:
        ModelConfig.from_dict(values)
    assert "\n" not in str(caught.value)


def test_bad_names() -> None:
    for message, call in {
        "did you mean 'softmax-exp-euler'": lambda: sf.variant("softmax-expeuler"),
        "unknown preset": lambda: sf.variant("softmax-ab2", preset="best"),
        "must hold named options": lambda: ModelConfig.from_dict([1, 2]),  # type: ignore[arg-type]
        "did you mean 'n_head'": lambda: sf.variant("softmax-ab2").replace(n_heads=2),
        "belongs to stepper": lambda: sf.variant("softmax-baseline", integrator="ab2"),
    }.items():
        with pytest.raises(InputError, match=message):
            call()


@pytest.mark.parametrize("name", VARIANTS)
def test_a_saved_config_holds_what_applies(name: str) -> None:
    saved = sf.variant(name, preset="paper").to_dict()
    assert ("form" in saved) == (name.startswith("softmax") and "integrator" in saved)
    assert ("damping" in saved) == ("integrator" in saved)
    assert ModelConfig.from_dict(saved).to_dict() == saved
