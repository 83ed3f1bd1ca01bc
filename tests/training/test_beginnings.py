"""Runs that begin with the weights of others, and runs that are given more to do."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sympformer import data
from sympformer.errors import InputError
from sympformer.training import TrainConfig, load_run, run_training
from sympformer.training import run as runs
from sympformer.training.checkpoint import CheckpointFolder
from sympformer.training.metrics import read_metrics
from sympformer.training.optimizer import learning_rate
from tests.training.conftest import ConfigMaker


@pytest.fixture
def first(make_config: ConfigMaker, tmp_path: Path) -> Path:
    """A run of another variant than the default."""
    config = make_config({"variant": "softmax-yuriiformer"}, out=str(tmp_path / "first"), steps=4)
    return run_training(config).folder


def begun(make_config: ConfigMaker, first: Path, **options: Any) -> TrainConfig:
    """A run that begins with the first, which says nothing of the model."""
    config = make_config(init_from=str(first), **options).to_dict()
    return TrainConfig.from_dict({name: value for name, value in config.items() if name != "model"})


def environment(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "environment.json").read_text())
    return found


def weights(folder: Path, which: str = "last") -> dict[str, Any]:
    return dict(load_run(folder, which).model.state_dict())


def same(mine: dict[str, Any], other: dict[str, Any]) -> bool:
    return mine.keys() == other.keys() and all(bool((mine[name] == other[name]).all()) for name in mine)


# --- the weights of others


def test_a_run_begins_with_the_weights_of_another(make_config: ConfigMaker, first: Path) -> None:
    config = begun(make_config, first, steps=1, lr=1e-12, weight_decay=0.0)
    folder = run_training(config).folder
    before, after = weights(first, "best"), weights(folder)
    assert all(np.allclose(before[name], after[name], atol=1e-9) for name in before)
    stored = load_run(folder)
    assert stored.model.cfg == load_run(first).model.cfg
    assert stored.config.model["stepper"] == "nesterov"  # the recipe in full
    assert stored.config.init_from == str(first)
    best = CheckpointFolder(first / runs.CHECKPOINTS).steps("best")[-1]
    note = environment(folder)["init_from"]
    assert (note["folder"], note["step"]) == (str(first), best)
    manifest = json.loads((first / runs.CHECKPOINTS / f"best-{best:08d}" / "manifest.json").read_text())
    assert note["sha256"] == [manifest["model.safetensors"]["sha256"]]
    assert read_metrics(folder)[0]["step"] == 1  # its own steps, its own optimizer


def test_it_is_resumed_without_the_other(make_config: ConfigMaker, first: Path, tmp_path: Path) -> None:
    """Text is prepared with the other's tokenizer, which the new run keeps. Killed at any step, it is the same run."""
    (tmp_path / "mine.txt").write_text("A fox sat on a box. " * 300)
    text = {"corpus": str(tmp_path / "mine.txt")}
    config = begun(make_config, first, data=text, steps=4, checkpoint_every=2)
    whole = weights(run_training(config.replace(out=str(tmp_path / "whole"))).folder)
    folder = run_training(config).folder
    assert load_run(folder).tokenizer.fingerprint == load_run(first).tokenizer.fingerprint
    shutil.rmtree(folder / runs.CHECKPOINTS / "step-00000004")
    shutil.rmtree(first)
    run_training(config, resume=True)
    assert same(weights(folder), whole)
    assert runs.open_own_data(folder, load_run(folder).config).tokenizer.name == "byte"


def test_a_run_that_did_not_come_to_its_first_checkpoint(make_config: ConfigMaker, first: Path) -> None:
    config = begun(make_config, first, steps=2, checkpoint_every=1)
    folder = run_training(config).folder
    last = weights(folder)
    for path in (folder / runs.CHECKPOINTS).glob("*-0000000[12]"):
        shutil.rmtree(path)
    (folder / "metrics.jsonl").unlink()
    # keep_last took the start away; put it back as it was at the beginning
    fresh = run_training(config.replace(out=str(folder.parent / "fresh"), keep_last=9)).folder
    shutil.copytree(fresh / runs.CHECKPOINTS / "step-00000000", folder / runs.CHECKPOINTS / "step-00000000")
    assert same(weights(folder), weights(first, "best"))
    run_training(TrainConfig(out=str(folder)), resume=True)
    assert same(weights(folder), last)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"model": {"n_layer": 3}}, "has n_layer = 2, not 3: leave the option out"),
        ({"model": {"n_layers": 2}}, "unknown model option 'n_layers'.*did you mean 'n_layer'"),
        ({"model": {"preset": "paper"}}, "is taken as it is: leave out model.preset"),
        ({"model": {"variant": "linear-ab2"}}, "has stepper = 'nesterov', not 'hamiltonian'"),
        ({"data": {"corpus": "storybook:60", "tokenizer": "bpe:300"}}, "has the tokenizer byte, not bpe:300"),
        ({"init_from": "nowhere"}, "nowhere does not exist"),
    ],
)
def test_another_model_is_refused(
    options: dict[str, Any], message: str, make_config: ConfigMaker, first: Path, tmp_path: Path
) -> None:
    config = begun(make_config, first).to_dict() | {"model": {}}
    with pytest.raises(InputError, match=message):
        run_training(TrainConfig.from_dict(config | options))
    assert not (tmp_path / "run").exists()


def test_other_tokens_are_refused(make_config: ConfigMaker, first: Path, tmp_path: Path) -> None:
    other = data.prepare("storybook:60", "bpe:300", tmp_path / "bpe", validation=0.2).folder
    with pytest.raises(InputError, match=r"were made by bpe:300, another tokenizer than that of the model"):
        run_training(begun(make_config, first, data={"folder": str(other)}))


def test_dropout_may_be_another(make_config: ConfigMaker, first: Path) -> None:
    config = begun(make_config, first, steps=1).replace(model={"dropout": 0.3, "n_layer": 2})
    assert load_run(run_training(config).folder).model.cfg.dropout == 0.3


# --- more to do


def test_more_steps_for_a_finished_run(
    make_config: ConfigMaker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The rate is that of the longer cosine from there on; a resumed run keeps its new budget, bit for bit."""
    config = make_config(steps=4, checkpoint_every=2)
    folder = run_training(config).folder
    tokens = 10 * config.batch_size * 16
    shutil.copytree(folder, tmp_path / "twin")
    capsys.readouterr()
    result = run_training(TrainConfig(out=str(folder), tokens=tokens), resume=True)
    assert (result.steps, result.total_steps) == (10, 10)
    said = capsys.readouterr().err
    assert "the budget grows from 4 to 10 steps, and the rate follows the cosine of 10 steps from step 4 on" in said
    rates = {row["step"]: row["lr"] for row in read_metrics(folder)}
    assert rates[4] == learning_rate(3, config.lr, 2, 4, config.min_lr_ratio)
    assert rates[8] == learning_rate(7, config.lr, 2, 10, config.min_lr_ratio)
    assert environment(folder)["extended"] == [{"at": 4, "steps": 10}]

    twin = tmp_path / "twin"  # stopped on the way, it needs no word about its budget
    run_training(TrainConfig(out=str(twin), steps=10), resume=True)
    shutil.rmtree(twin / runs.CHECKPOINTS / "step-00000010")
    assert run_training(TrainConfig(out=str(twin)), resume=True).total_steps == 10
    assert same(weights(folder), weights(twin))
    assert environment(twin)["extended"] == [{"at": 4, "steps": 10}]


def test_a_budget_only_grows(make_config: ConfigMaker) -> None:
    config = make_config(steps=4)
    folder = run_training(config).folder
    before = weights(folder)
    run_training(config, resume=True)  # the same again changes nothing
    assert "extended" not in environment(folder)
    assert same(weights(folder), before)
    with pytest.raises(InputError, match="has 4 steps to do, and 3 are asked for: that can only grow"):
        run_training(TrainConfig(out=str(folder), steps=3), resume=True)
