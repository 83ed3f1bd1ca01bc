"""Configs: files, names, ranges, and the one sentence that a wrong one gets."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from sympformer import cli
from sympformer.errors import InputError
from sympformer.training.choices import choose_model
from sympformer.training.config import DataConfig, TrainConfig, load_config
from sympformer.training.engine import pick_device

CONFIGS = Path(__file__).parents[2] / "configs"
FILES = sorted(CONFIGS.glob("*.yaml"))  # the folders below hold the recipes of `sympformer compare`


def test_a_budget_that_nobody_named() -> None:
    config = TrainConfig()
    assert (config.steps, config.tokens) == (None, None)
    assert config.total_steps(128) == TrainConfig(tokens=800_000).total_steps(128) == 391


def test_the_default_is_the_small_accelerated_model() -> None:
    cfg = choose_model(TrainConfig().model)
    assert (cfg.stepper, cfg.attention, cfg.integrator) == ("hamiltonian", "softmax", "exp_euler")
    assert TrainConfig().data == DataConfig("storybook", "bpe:2048")


def test_round_trip_through_yaml(tmp_path: Path) -> None:
    config = TrainConfig(lr=3e-4, betas=(0.9, 0.99), data=DataConfig(limit=5), clip=None, model={"n_layer": 3})
    (tmp_path / "a.yaml").write_text(config.to_yaml())
    assert load_config(tmp_path / "a.yaml") == config


def test_numbers_without_a_point_are_numbers(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("lr: 3e-4\nsteps: 10\nmodel: {h_x: 1e-1}\ndata: {corpus: '12'}\n")
    config = load_config(tmp_path / "a.yaml")
    assert (config.lr, config.steps, config.model["h_x"], config.data.corpus) == (3e-4, 10, 0.1, "12")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"stesp": 3}, "did you mean 'steps'"),
        ({"data": {"corpsu": "x"}}, "did you mean 'corpus'"),
        ({"data": 3}, "data must hold named options, got int"),
        ({"optimizer": "adamm"}, "did you mean 'adamw'"),
        ({"steps": 0}, "steps must be at least 1, got 0"),
        ({"steps": 1.5}, "steps must be of type int, got 1.5"),
        ({"steps": True}, "steps must be of type int, got True"),
        ({"lr": 0}, "lr must be positive and finite, got 0"),
        ({"lr": "fast"}, "lr must be of type float, got 'fast'"),
        ({"lr": float("nan")}, "lr must be positive and finite, got nan"),
        ({"betas": [0.9]}, "betas must be 2 numbers"),
        ({"betas": [0.9, 1.0]}, r"betas must lie in \[0, 1\)"),
        ({"min_lr_ratio": 2}, "min_lr_ratio must lie between 0 and 1"),
        ({"warm_up": -1}, "warm_up must not be negative"),
        ({"weight_decay": -1}, "weight_decay must be finite"),
        ({"data": {"validation": 1.0}}, "are shares of the text"),
        ({"data": {"overlap_words": -1}}, "data.overlap_words -1 is not a number of words"),
        ({"sample_prompt": "a\udcff"}, "sample_prompt holds half of a surrogate pair"),
        ({"seed": -1}, "seed must lie between"),
        ({"optimizer": "muon", "precision": "float16"}, "does not go with"),
        ({"strategy": "fsdp2", "precision": "float16"}, "'fsdp2' does not go with precision = 'float16'; choose bfl"),
        ({"steps": 3, "tokens": 100}, "steps = 3 and tokens = 100 are two budgets: give one of them"),
    ],
)
def test_bad_values_get_one_sentence(values: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        TrainConfig.from_dict(values)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ({"variant": "softmax-exp-eulr"}, "did you mean 'softmax-exp-euler'"),
        ({"preset": "tunde"}, "did you mean 'tuned'"),
        ({"n_layers": 3}, "did you mean 'n_layer'"),
        ({"n_layer": "three"}, "n_layer must be of type int"),
        ({"causal": False}, "sees the next token"),
    ],
)
def test_bad_models_get_one_sentence(model: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        choose_model(model)


def test_float16_on_the_cpu_is_refused() -> None:
    with pytest.raises(InputError, match="needs a CUDA device; elsewhere choose bfloat16 or float32"):
        pick_device(TrainConfig(precision="float16", device="cpu"))


@pytest.mark.parametrize("text", ["steps: [", "- 1\n- 2\n", "\0"])
def test_files_that_are_no_config(text: str, tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(text)
    with pytest.raises(InputError):
        load_config(tmp_path / "a.yaml")


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot read"):
        load_config(tmp_path / "a.yaml")


# --- the shipped configs


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_shipped_configs_name_a_model(path: Path) -> None:
    config = load_config(path)
    cfg = choose_model(config.model)
    assert config.total_steps(cfg.block_size) > 1


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_command_line_reads_them_alike(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[TrainConfig] = []

    def train(config: TrainConfig, resume: bool = False) -> None:
        heard.append(config)

    monkeypatch.setattr(cli, "load", lambda command: train)
    assert cli.main(["train", str(path), "--lr", "1e-3"]) == 0
    assert heard == [dataclasses.replace(load_config(path), lr=1e-3)]
