"""The config of a model and the table of variants: presets, round trips, what is refused."""

import json
import math
import os
from pathlib import Path
from typing import Any

import pytest

import sympformer as sf
from sympformer.errors import InputError
from sympformer.models import PRESETS, VARIANTS, ModelConfig
from sympformer.models.describe import parameter_counts
from sympformer.safe_files import LARGEST_YAML
from tests.models.cases import BARE, CHOICES, every_choice


def test_fourteen_variants() -> None:
    assert len(VARIANTS) == 14
    kinds = ("baseline", "yuriiformer", "plain-euler", "presymp-euler", "exp-euler", "ab2", "etd-ab2")
    assert set(VARIANTS) == {f"{a}-{k}" for a in ("softmax", "linear") for k in kinds}
    assert PRESETS == ("tuned", "full", "paper", "paper-spd", "modern")


def test_presets_hold_the_papers_and_our_starts() -> None:
    paper = sf.variant("softmax-plain-euler", preset="paper")
    assert (paper.h_x, paper.h_y, paper.c_log, paper.c_lin, paper.factor, paper.gamma) == (
        0.1,
        0.1,
        3.0,
        1e-4,
        0.9,
        1.0,
    )
    assert (paper.form, paper.momentum_gain, paper.heads) == ("paper", 1.0, "averaged")
    assert (paper.value, paper.mobility, paper.start_momentum) == ("tied", "derived", "zero")
    for scheme, h in (("plain-euler", 0.25), ("presymp-euler", 0.25), ("exp-euler", 0.25), ("ab2", 0.01)):
        linear = sf.variant(f"linear-{scheme}", preset="paper")
        assert (linear.h_x, linear.h_y, linear.value, linear.kernel) == (h, h, "tied", "free")
    assert (sf.variant("linear-baseline", preset="paper").h_x, linear.learn_steps) == (1.0, True)
    yurii = sf.variant("softmax-yuriiformer", preset="paper")
    assert (yurii.mu, yurii.beta, yurii.gamma, yurii.momentum_gain) == (0.9, 0.9, 1.0, 1.0)
    assert yurii.start_momentum == "embedded"
    tuned = sf.variant("softmax-exp-euler")
    assert (tuned.h_x, tuned.h_y, tuned.momentum_gain) == (0.05, 1.0, 0.03)
    assert (sf.variant("softmax-plain-euler").factor, tuned.beta, tuned.mlp_look_ahead) == (0.3, 0.3, 0.1)
    assert (tuned.form, tuned.value, tuned.mobility) == ("own", "free", "identity")
    yurii = sf.variant("softmax-yuriiformer")
    assert (yurii.mu, yurii.beta, yurii.momentum_gain, yurii.start_momentum) == (0.1, 0.3, 0.03, "zero")


@pytest.mark.parametrize("name", VARIANTS)
def test_full_is_tuned_with_all_terms_of_the_softmax_flow(name: str) -> None:
    tuned, full = (sf.variant(name, preset=preset) for preset in ("tuned", "full"))
    terms: dict[str, Any] = {"with_z": True, "with_rho": True, "mobility": "free", "look_ahead": True, "mu": 0.001}
    assert full == (
        tuned.replace(**terms) if full.architecture == "sympformer" and full.attention == "softmax" else tuned
    )


@pytest.mark.parametrize("name", VARIANTS)
def test_paper_spd_is_paper_under_its_assumption(name: str) -> None:
    paper, spd = (sf.variant(name, preset=preset) for preset in ("paper", "paper-spd"))
    assumption = {"mobility": "spd"} if paper.attention == "softmax" else {"kernel": "spd"}
    assert spd == (paper.replace(**assumption) if paper.architecture == "sympformer" else paper)


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
def test_config_round_trips(choice: str, tmp_path: Any) -> None:
    name, overrides = CHOICES[choice]
    cfg = sf.variant(name, "full", **overrides)
    assert ModelConfig.from_text(cfg.to_json()) == ModelConfig.from_text(cfg.to_yaml()) == cfg
    for suffix in (".json", ".yaml"):
        cfg.save(tmp_path / f"model{suffix}")
        assert ModelConfig.load(tmp_path / f"model{suffix}") == cfg
    assert json.loads(cfg.to_json())["architecture"] == cfg.architecture


BAD_CONFIGS: dict[str, tuple[dict[str, Any], str]] = {
    "heads": ({"n_head": 3}, "n_head must divide d_model"),
    "layers": ({"n_layer": 0}, "n_layer must be at least 1"),
    "name": ({"n_layers": 4}, "did you mean 'n_layer'"),
    "choice": ({"form": "papr"}, "did you mean 'paper'"),
    "type": ({"d_model": "64"}, "d_model must be of type int"),
    "list": ({"attention": []}, "attention must be of type str"),
    "mapping": ({"mlp": {}}, "mlp must be of type str"),
    "list for a literal": ({"momentum_bound": []}, "momentum_bound"),
    "truth": ({"n_layer": True}, "n_layer must be of type int"),
    "fraction": ({"beta": 1.0}, "strictly between 0 and 1"),
    "step": ({"h_x": 0.0}, "h_x must be positive"),
    "infinite": ({"gamma": math.inf}, "positive and finite"),
    "dropout": ({"dropout": 1.0}, "dropout must lie"),
    "tied multi": ({"value": "tied", "heads": "multi"}, "needs heads = 'averaged'"),
    "derived free": ({"mobility": "derived"}, "needs value = 'tied'"),
    "wide keys": ({"d_key": 128}, "d_key must be a multiple of n_head = 4 up to d_model = 64"),
    "uneven keys": ({"d_key": 6}, "d_key must be a multiple of n_head"),
    "free keys": ({"d_key": 32}, "d_key needs value = 'tied'"),
    "spd free": ({"attention": "linear", "kernel": "spd"}, "needs value = 'tied' and heads = 'averaged'"),
    "softmax kernel": ({"kernel": "spd"}, "kernel = 'spd' belongs to linear attention, not to softmax"),
    "linear form": ({"attention": "linear", "form": "paper"}, "belongs to softmax"),
    "linear symplectic": ({"attention": "linear", "integrator": "symplectic_euler"}, "second scan"),
    "odd turns": ({"positions": "rotary", "d_model": 12}, "in pairs.* even width, got 3 a head"),
    "odd narrow turns": (
        {"attention": "linear", "positions": "rotary", "d_key": 4, "value": "tied"},
        r"got 1 a head \(4 columns, n_head = 4\)",
    ),
    "tied turns": ({"positions": "rotary", "value": "tied"}, "'rotary' does not go with value = 'tied'"),
    "spd turns": (
        {"attention": "linear", "positions": "rotary", "value": "tied", "kernel": "spd"},
        "'rotary' does not go with kernel = 'spd'",
    ),
    "tied norms": ({"qk_norm": True, "value": "tied"}, "qk_norm does not go with value = 'tied'"),
    "tied linear norms": (
        {"attention": "linear", "qk_norm": True, "value": "tied"},
        "qk_norm does not go with value = 'tied'",
    ),
    "tied projected": ({"value": "tied", "heads": "projected"}, "needs heads = 'averaged'"),
    "linear projected": ({"attention": "linear", "heads": "projected"}, "belongs to softmax attention"),
    "uneven groups": ({"heads": "multi", "n_kv_head": 3}, "n_kv_head must divide n_head = 4"),
    "negative groups": ({"heads": "multi", "n_kv_head": -2}, "n_kv_head must divide n_head = 4"),
    "positions": ({"positions": "rotery"}, "did you mean 'rotary'"),
    "rk4": ({"integrator": "rk4"}, "integrator = 'rk4' does not fit a layer"),
}


@pytest.mark.parametrize("case", BAD_CONFIGS)
def test_bad_configs_say_what_is_wrong(case: str) -> None:
    values, message = BAD_CONFIGS[case]
    with pytest.raises(InputError, match=message):
        ModelConfig.from_dict(values)


def test_bad_names_and_files(tmp_path: Any) -> None:
    with pytest.raises(InputError, match="did you mean 'softmax-exp-euler'"):
        sf.variant("softmax-expeuler")
    with pytest.raises(InputError, match="unknown preset"):
        sf.variant("softmax-ab2", preset="best")
    with pytest.raises(InputError, match="cannot read the model config"):
        ModelConfig.load(tmp_path / "missing.json")
    with pytest.raises(InputError, match="neither JSON nor YAML"):
        ModelConfig.from_text("{a: [")
    with pytest.raises(InputError, match="must hold named fields"):
        ModelConfig.from_text("[1, 2]")
    with pytest.raises(InputError, match="did you mean 'n_head'"):
        sf.variant("softmax-ab2").replace(n_heads=2)


def test_a_config_of_somebody_else_is_read_with_care(tmp_path: Path) -> None:
    bomb = "a: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]\n"
    for text, message in {
        bomb: "an anchor",
        "n_layer: " + "[" * 500: "nested more",
        "n_head: !!int 1": "a tag",
    }.items():
        with pytest.raises(InputError, match=message):
            ModelConfig.from_text(text)
    os.mkfifo(tmp_path / "pipe.json")
    (tmp_path / "large.json").write_text(" " * (LARGEST_YAML + 1))
    (tmp_path / "latin.json").write_bytes(b'{"attention": "na\xefve"}')
    for name, message in {"pipe": "not a regular file", "large": "at most", "latin": "not UTF-8 text"}.items():
        with pytest.raises(InputError, match=message):
            ModelConfig.load(tmp_path / f"{name}.json")
    assert ModelConfig.from_text('{"c_lin": 1e-05}').c_lin == 1e-5  # a number as JSON writes it


def test_an_option_without_effect_is_refused() -> None:
    cases: list[tuple[str, dict[str, Any], str]] = [
        ("softmax-baseline", {"form": "paper"}, "form = 'paper' belongs to sympformer layers, not to gpt"),
        ("softmax-baseline", {"heads": "multi"}, "belongs to sympformer layers"),
        ("softmax-baseline", {"momentum_bound": "cap"}, "belongs to yuriiformer and sympformer layers"),
        ("softmax-baseline", {"start_momentum": "embedded"}, "belongs to yuriiformer and sympformer"),
        ("softmax-yuriiformer", {"h_x": 0.5}, "belongs to gpt and sympformer layers, not to yuriiformer"),
        ("linear-exp-euler", {"mobility": "spd"}, "belongs to softmax attention, not to linear"),
        ("softmax-exp-euler", {"factor": 0.5}, "factor = 0.5 has no effect with integrator = 'exp_euler'"),
        ("softmax-plain-euler", {"c_log": 2.0}, "c_log = 2.0 has no effect"),
        ("softmax-exp-euler", {"look_ahead": False, "mu": 0.1}, "mu = 0.1 has no effect with look_ahead = False"),
        ("softmax-exp-euler", {"momentum_cap": 2.0}, "momentum_cap = 2.0 has no effect with momentum_bound = 'norm'"),
        ("softmax-exp-euler", {"mlp": "none", "beta": 0.5}, "beta = 0.5 has no effect with mlp = 'none'"),
        (
            "softmax-exp-euler",
            {"mlp_velocity": "attention", "beta": 0.5},
            "beta = 0.5 has no effect with mlp_velocity = 'attention'",
        ),
        ("softmax-baseline", {"d_key": 8}, "belongs to sympformer layers"),
        ("softmax-baseline", {"mlp": "none", "mlp_ratio": 2}, "mlp_ratio = 2 has no effect"),
        ("softmax-exp-euler", {"update_norm": True}, "update_norm = True belongs to gpt and streams layers"),
        ("softmax-baseline", {"momentum_gain": 0.5}, "momentum_gain = 0.5 has no effect with update_norm = False"),
        ("softmax-exp-euler", {"n_kv_head": 2}, "n_kv_head = 2 has no effect with heads = 'averaged'"),
        ("softmax-exp-euler", {"mlp": "none", "zero_start": True}, "zero_start = True has no effect with mlp = 'none'"),
    ]
    for name, overrides, message in cases:
        with pytest.raises(InputError, match=message):
            sf.variant(name, **overrides)
    with pytest.raises(InputError, match="belongs to"):  # even at its default: it was given
        sf.variant("softmax-baseline", form="own")
    with pytest.raises(InputError, match="belongs to"):
        ModelConfig(architecture="gpt", form="paper")


@pytest.mark.parametrize("name", VARIANTS)
def test_a_saved_config_holds_what_applies(name: str) -> None:
    cfg = sf.variant(name, preset="paper")
    saved = cfg.to_dict()
    assert set(saved) == cfg.used()
    assert ("form" in saved) == (name.startswith("softmax") and cfg.architecture == "sympformer")
    assert ("factor" in saved) == (cfg.integrator == "plain_euler")
    for option in saved:  # every one of them is an option that may be given
        assert ModelConfig.from_dict(saved | {option: saved[option]}) == cfg


def test_a_change_that_puts_options_out_of_use_drops_them() -> None:
    cfg = sf.variant("softmax-exp-euler", "full", mu=0.3)
    assert cfg.replace(look_ahead=False) == sf.variant("softmax-exp-euler", "full", look_ahead=False)
    assert cfg.replace(architecture="gpt").to_dict().keys() == sf.variant("softmax-baseline").to_dict().keys()


def test_configs_of_earlier_versions_load() -> None:
    """They held every option, of use or not, and said only whether there is an MLP."""
    old = {"architecture": "gpt", "h_x": 1.0, "learn_steps": False, "mlp": True, "form": "paper", "heads": "multi"}
    assert ModelConfig.from_saved(old) == sf.variant("softmax-baseline", **BARE)
    assert ModelConfig.from_saved(old | {"mlp": False}).mlp == "none"
