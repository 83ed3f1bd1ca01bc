"""Configs: files, names, ranges, and the one sentence that a wrong one gets; more in tests/test_refusals.py."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from sympformer import cli
from sympformer.errors import InputError
from sympformer.training.config import DataConfig, TrainConfig, choose_model, load_config

CONFIGS = Path(__file__).parents[2] / "configs"
FILES = sorted(CONFIGS.glob("*.yaml"))  # the folders below hold the recipes of `sympformer compare`


def test_the_default_is_the_small_accelerated_model() -> None:
    config = TrainConfig()
    cfg = choose_model(config.model)
    assert (cfg.stepper, cfg.attention, cfg.integrator) == ("hamiltonian", "softmax", "exp_euler")
    assert config.data == DataConfig("storybook", "bpe:2048")
    assert (config.steps, config.tokens) == (None, None)
    assert config.total_steps(128) == TrainConfig(tokens=800_000).total_steps(128) == 391


def test_configs_go_through_files(tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    config = TrainConfig(lr=3e-4, betas=(0.9, 0.99), data=DataConfig(limit=5), clip=None, model={"n_layer": 3})
    file.write_text(config.to_yaml())
    assert load_config(file) == config
    file.write_text("lr: 3e-4\nsteps: 10\nmodel: {h_x: 1e-1}\ndata: {corpus: '12'}\n")  # numbers without a point
    config = load_config(file)
    assert (config.lr, config.steps, config.model["h_x"], config.data.corpus) == (3e-4, 10, 0.1, "12")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"stesp": 3}, "did you mean 'steps'"),
        ({"data": {"corpsu": "x"}}, "did you mean 'corpus'"),
        ({"data": 3}, "data must hold named options, got int"),
        ({"steps": True}, "steps must be int, got True"),
        ({"lr": float("nan")}, "lr must be positive and finite, got nan"),
        ({"betas": [0.9]}, "betas must be 2 numbers"),
        ({"betas": [0.9, 1.0]}, r"betas must lie in \[0, 1\)"),
        ({"min_lr_ratio": 2}, "min_lr_ratio must lie between 0 and 1"),
        ({"warm_up": -1}, "warm_up must not be negative"),
        ({"weight_decay": -1}, "weight_decay must be finite"),
        ({"data": {"validation": 1.0}}, "are shares of the text"),
        ({"data": {"overlap_words": -1}}, "data.overlap_words -1 is not a number of words"),
        ({"sample_prompt": "a\udcff"}, "sample_prompt is not UTF-8 text"),
        ({"seed": -1}, "seed must lie between"),
        ({"optimizer": "muon", "precision": "float16"}, "'muon' does not go with precision = 'float16'; choose bfloat"),
        ({"strategy": "fsdp2", "precision": "float16"}, "'fsdp2' does not go with precision = 'float16'; choose bfl"),
        ({"steps": 3, "tokens": 100}, "steps = 3 and tokens = 100 are two budgets: give one of them"),
        ({"model": {"variant": "softmax-exp-eulr"}}, "did you mean 'softmax-exp-euler'"),
        ({"model": {"preset": "tunde"}}, "did you mean 'tuned'"),
        ({"model": {"n_layers": 3}}, "did you mean 'n_layer'"),
        ({"model": {"n_layer": "three"}}, "n_layer must be int"),
        ({"model": {"causal": False}}, "sees the next token"),
    ],
)
def test_bad_values_get_one_sentence(values: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        choose_model(TrainConfig.from_dict(values).model)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_shipped_configs_name_a_model_and_the_command_line_reads_them_alike(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[TrainConfig] = []

    def train(config: TrainConfig, resume: bool = False) -> None:
        heard.append(config)

    config = load_config(path)
    assert config.total_steps(choose_model(config.model).block_size) > 1
    monkeypatch.setattr(cli, "load", lambda command: train)
    assert cli.main(["train", str(path), "--lr", "1e-3"]) == 0
    assert heard == [dataclasses.replace(config, lr=1e-3)]
