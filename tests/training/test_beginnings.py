"""Runs that begin with the weights of others, runs that are given more to do, and what may be said again."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import sympformer as sf
from sympformer import cli, data
from sympformer.errors import DivergenceError, InputError
from sympformer.training.checkpoint import Checkpoints, best_step, read_checkpoint
from sympformer.training.config import TrainConfig
from sympformer.training.folder import RunFolder
from sympformer.training.optimizer import learning_rate
from sympformer.training.run import resumed, train
from tests.training.conftest import ConfigMaker, Killed, assert_same_run, flip, kill_at, weights


@pytest.fixture(scope="module")
def first(prepared: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of another variant than the default. Not to be changed."""
    out = str(tmp_path_factory.mktemp("first") / "run")
    model = {"variant": "softmax-yuriiformer", "n_layer": 2, "n_head": 2, "d_model": 16, "block_size": 16}
    sizes = {"steps": 4, "batch_size": 4, "eval_tokens": 256, "sample_tokens": 5, "eval_every": 4}
    config = {"data": {"folder": str(prepared)}, "model": model, "out": out, **sizes}
    return train(TrainConfig.from_dict(config), bar=False).folder


def begun(make_config: ConfigMaker, first: Path, **options: Any) -> TrainConfig:
    """A run that begins with the first, which says nothing of the model."""
    config = make_config(init_from=str(first), **options).to_dict()
    return TrainConfig.from_dict({name: value for name, value in config.items() if name != "model"})


def last(folder: Path) -> dict[str, torch.Tensor]:
    return dict(sf.open_model(folder, "last").model.state_dict())


def same(mine: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return mine.keys() == other.keys() and all(torch.equal(mine[name], other[name]) for name in mine)


# --- the weights of others


def test_a_run_begins_with_the_weights_of_another(make_config: ConfigMaker, first: Path) -> None:
    config = begun(make_config, first, steps=1, lr=1e-12, weight_decay=0.0)
    folder = train(config.replace(model={"dropout": 0.3, "n_layer": 2})).folder  # dropout may be another
    before, after = sf.open_model(first), sf.open_model(folder, "last")
    weights = after.model.state_dict()
    assert all(np.allclose(value, weights[name], atol=1e-9) for name, value in before.model.state_dict().items())
    assert after.model.cfg == before.model.cfg.replace(dropout=0.3)
    run = RunFolder.open(folder)
    assert run.config.model["stepper"] == "nesterov"  # the recipe in full
    assert run.config.init_from == str(first)
    assert run.record["init_from"] == {"folder": str(first), "step": best_step(first), "sha256": before.about["sha256"]}
    assert run.metrics()[0]["step"] == 1  # its own steps, its own optimizer


def test_it_is_resumed_without_the_other(
    make_config: ConfigMaker, first: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Text is prepared with the other's tokenizer, which the new run keeps. Killed before its first own checkpoint,
    and after it, it is the same run.
    """
    other = Path(shutil.copytree(first, tmp_path / "other"))
    (tmp_path / "mine.txt").write_text("A fox sat on a box. " * 300)
    config = begun(make_config, other, data={"corpus": str(tmp_path / "mine.txt")}, steps=4, checkpoint_every=2)
    whole = train(config.replace(out=str(tmp_path / "whole"))).folder
    with monkeypatch.context() as patch:
        kill_at(patch, 1)
        with pytest.raises(Killed):
            train(config)
    folder = Path(str(config.out))
    assert same(last(folder), dict(sf.open_model(other).model.state_dict()))
    shutil.rmtree(other)
    for step in (3, 4):
        with monkeypatch.context() as patch:
            kill_at(patch, step - 1)
            with pytest.raises(Killed) if step == 3 else monkeypatch.context():
                train(TrainConfig(out=str(folder)), resume=True)
    assert_same_run(whole, folder)
    assert RunFolder(folder).tokens().tokenizer.fingerprint == RunFolder(first).tokenizer.fingerprint


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
        train(TrainConfig.from_dict(config | options))
    assert not (tmp_path / "run").exists()


def test_tokens_of_another_tokenizer_are_refused(make_config: ConfigMaker, first: Path, tmp_path: Path) -> None:
    other = data.prepare("storybook:60", "bpe:300", tmp_path / "bpe", validation=0.2).folder
    with pytest.raises(InputError, match=r"were made by bpe:300, another tokenizer than that of the model"):
        train(begun(make_config, first, data={"folder": str(other)}))


# --- what may be said again


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--lr 0.016", None),  # as by default: what was typed counts, not what differs
        ("--lr 16e-2", "has lr = 0.016, not 0.16: leave the option out to continue the run"),
        ("--model.n_layer 2 --model.d_model 16", None),
        ("--model.n_layer 4", "has model.n_layer = 2, not 4"),
        ("--model.transport none", "has model.transport = 'positions', not 'none'"),
        ("--data.corpus tinystories", "has data.corpus = 'storybook', not 'tinystories'"),
        ("--data.validation 0.5", "has data.validation = 0.05, not 0.5"),
        ("--seed 1", "has seed = 0, not 1"),
        ("--steps 8", None),
        ("--steps 7", "has 8 steps to do, and 7 are asked for: that can only grow"),
        ("--keep_last 7 --strategy ddp", None),
    ],
)
def test_options_of_a_run_that_is_continued(words: str, message: str | None, copied: Path, capsys: Any) -> None:
    capsys.readouterr()
    code = cli.main(["train", "--resume", "--out", str(copied), *words.split()])
    assert code == (0 if message is None else 2)
    assert (message or "the run is complete") in capsys.readouterr().err


def test_the_default_is_heard_where_the_run_has_another(make_config: ConfigMaker, capsys: Any) -> None:
    folder = train(make_config(steps=1, lr=0.006)).folder
    assert cli.main(["train", "--resume", "--lr", "16e-3", "--out", str(folder)]) == 2
    assert "has lr = 0.006, not 0.016" in capsys.readouterr().err


def test_what_changes_no_result_may_change(make_config: ConfigMaker) -> None:
    config = make_config(steps=4)
    run = RunFolder.open(train(config).folder)
    again = resumed(run, TrainConfig(out=config.out, keep_last=7, strategy="ddp").named())
    assert again == config.replace(keep_last=7, strategy="ddp")
    with pytest.raises(InputError, match="holds a run: continue it with --resume"):
        train(config)


# --- more to do


def test_more_steps_for_a_finished_run(make_config: ConfigMaker, tmp_path: Path, capsys: Any) -> None:
    """The rate is that of the longer cosine from there on; a resumed run keeps its new budget, bit for bit."""
    config = make_config(steps=4, checkpoint_every=2)
    folder = train(config).folder
    shutil.copytree(folder, tmp_path / "twin")
    capsys.readouterr()
    result = train(TrainConfig(out=str(folder), tokens=10 * config.batch_size * 16), resume=True)
    assert (result.steps, result.total_steps) == (10, 10)
    said = capsys.readouterr().err
    assert "the budget grows from 4 to 10 steps, and the rate follows the cosine of 10 steps from step 4 on" in said
    rates = {row["step"]: row["lr"] for row in RunFolder(folder).metrics()}
    assert rates[4] == learning_rate(3, config.lr, 2, 4, config.min_lr_ratio)
    assert rates[8] == learning_rate(7, config.lr, 2, 10, config.min_lr_ratio)
    twin = tmp_path / "twin"  # stopped on the way, it needs no word about its budget
    train(TrainConfig(out=str(twin), steps=10), resume=True)
    shutil.rmtree(twin / "checkpoints" / "step-00000010")
    assert train(TrainConfig(out=str(twin)), resume=True).total_steps == 10
    assert_same_run(folder, twin)
    for run in (folder, twin):
        assert RunFolder(run).record["budgets"] == [{"at": 4, "steps": 10}]


def test_best_weights_of_a_path_that_a_budget_leaves_are_dropped(make_config: ConfigMaker, capsys: Any) -> None:
    """Evaluated at step 4, killed before its checkpoint, resumed from step 3 with more to do: step 4 comes anew."""
    config = make_config(steps=5, eval_every=4)
    folder = train(config).folder
    for step in RunFolder(folder).checkpoints.steps():
        if step > 3:
            shutil.rmtree(RunFolder(folder).checkpoints.path(step))
    before = json.loads((folder / "checkpoints/step-00000003/state.json").read_text())
    assert (before["best_step"], best_step(folder)) == (None, 5)
    capsys.readouterr()
    train(TrainConfig(out=str(folder), steps=9), resume=True)
    assert "the best weights were made after this checkpoint, under the smaller budget" in capsys.readouterr().err
    rows = {row["step"]: row["validation_loss"] for row in RunFolder(folder).metrics() if "validation_loss" in row}
    assert best_step(folder) == min(rows, key=rows.__getitem__)


# --- good checkpoints stay, a model of no numbers is silent


def continued(run: Path) -> Path:
    return train(TrainConfig(out=str(run)), resume=True, bar=False).folder


@pytest.mark.parametrize("keep_last", [1, 3])
def test_damaged_checkpoints_do_not_drive_out_good_ones(
    keep_last: int, make_config: ConfigMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = make_config(checkpoint_every=1, keep_last=keep_last)
    run = train(config.replace(keep_last=8)).folder
    for step in (5, 6, 7, 8):
        flip(run / "checkpoints" / f"step-{step:08d}" / "model.safetensors")
    kept: list[list[int]] = []
    original = Checkpoints.save

    def save(self: Checkpoints, *args: Any) -> None:
        original(self, *args)
        kept.append([step for step in self.steps() if is_good(self.path(step))])

    monkeypatch.setattr(Checkpoints, "save", save)
    train(config, resume=True)
    assert kept == [list(range(step + 1 - keep_last, step + 1)) for step in (5, 6, 7, 8)]


def is_good(folder: Path) -> bool:
    try:
        return bool(read_checkpoint(folder))
    except InputError:
        return False


def test_a_model_of_no_numbers_does_not_speak(finished: Path) -> None:
    run = sf.open_model(finished)
    with torch.no_grad():
        run.model.tokens.weight.fill_(float("nan"))
    with pytest.raises(DivergenceError, match="not finite"):
        run.sample("A")


# --- two processes and one folder

# A command after "@" waits for a checkpoint of the first, which is killed when it has ended.
AT_ONCE = """
import glob, os, signal, sys, time, torch
torch.set_num_threads(1)
from sympformer import cli
children = []
for i, words in enumerate(sys.argv[1].split("|")):
    while words.startswith("@") and not glob.glob("run/checkpoints/step-*"):
        time.sleep(0.01)
    if (pid := os.fork()) == 0:
        os.dup2(os.open(f"said{i}", os.O_WRONLY | os.O_CREAT), 2)
        os._exit(cli.main(words.strip("@").split()))
    children.append(pid)
if "@" in sys.argv[1]:
    print(os.waitstatus_to_exitcode(os.waitpid(children.pop(), 0)[1]))
    os.kill(children[0], signal.SIGKILL)
for pid in children:
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""


def at_once(folder: Path, *commands: str) -> tuple[list[int], str]:
    """Run commands of the command line at the same time: exit codes, and what was said."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "SYMPFORMER_CACHE": str(folder / "cache")}
    command = [sys.executable, "-c", AT_ONCE, "|".join(commands)]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    said = "".join(file.read_text() for file in folder.glob("said*"))
    assert "Traceback" not in said
    return [int(line) for line in done.stdout.splitlines() if line.lstrip("-").isdigit()], said


def command(prepared: Path, seed: int, *more: str) -> str:
    options = "--steps 30 --batch_size 2 --eval_tokens 64 --sample_tokens 4 --checkpoint_every 2 --eval_every 5"
    model = "--model.n_layer 1 --model.n_head 2 --model.d_model 16 --model.block_size 16"
    return f"train --data.folder {prepared} {options} {model} --seed {seed} {' '.join(more)}"


def test_two_runs_into_one_folder_and_two_without_a_name(prepared: Path, tmp_path: Path) -> None:
    codes, said = at_once(tmp_path, *(command(prepared, i, "--out one" * (i < 3)) for i in (1, 2, 3, 4)))
    assert (sorted(codes[:2]), codes[2:]) == ([0, 2], [0, 0])
    assert any(words in said for words in ("in use by now", "holds a run", "is left alone"))
    run = RunFolder.open(tmp_path / "one")
    assert run.checkpoints.steps()[-1] == 30
    alone = train(run.config.replace(out=str(tmp_path / "alone")), bar=False).folder
    assert_same_run(alone, run.path)
    names = sorted(path.name for path in (tmp_path / "runs").iterdir() if not path.name.startswith("."))
    assert names == [f"softmax-exp-euler-bytes{end}" for end in ("", "-2")]
    assert {RunFolder(tmp_path / "runs" / name).config.seed for name in names} == {3, 4}


def test_a_run_that_is_alive_is_not_resumed(prepared: Path, copied: Path, tmp_path: Path) -> None:
    before = weights(copied)
    with (
        RunFolder(copied).locked(),
        pytest.raises(InputError, match=r"another process is training in .*run: wait until it ends, or stop it"),
    ):
        continued(copied)
    assert weights(continued(copied)).keys() == before.keys()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    endless = command(prepared, 1, "--out run").replace("--steps 30", "--steps 100000")
    codes, said = at_once(elsewhere, endless, "@train --resume --out run")
    assert codes == [2, -9]  # the first was still alive
    assert "another process is training in run" in said
    with RunFolder(elsewhere / "run").locked():
        pass  # a killed run leaves no lock behind
