"""Whole runs: resumed = uninterrupted, damaged checkpoints, full disks, divergence, signals, samples."""

import errno
import json
import os
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from sympformer import cli
from sympformer.errors import DivergenceError, InputError
from sympformer.training import TrainConfig, load_run, run_training
from sympformer.training import trainer as trainer_module
from sympformer.training.checkpoint import CheckpointFolder
from sympformer.training.launch import stored_config
from sympformer.training.metrics import TIMED, read_metrics
from sympformer.training.trainer import Trainer
from tests.training.conftest import ConfigMaker


class Killed(BaseException):
    """Stands for a process that ends without a word."""


def kill_at(monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    """Let the process die in the middle of a step."""
    original = trainer_module.clip_gradients
    steps = {"done": 0}

    def dying(*args: Any) -> Any:
        steps["done"] += 1
        if steps["done"] > step:
            raise Killed
        return original(*args)

    monkeypatch.setattr(trainer_module, "clip_gradients", dying)


def weights(run: Path) -> dict[str, torch.Tensor]:
    newest = sorted((run / "checkpoints").glob("step-*"))[-1]
    return load_file(newest / "model.safetensors") | load_file(newest / "optimizer.safetensors")


def metrics(run: Path) -> list[dict[str, Any]]:
    return [{k: v for k, v in record.items() if k not in TIMED} for record in read_metrics(run)]


def assert_same_run(a: Path, b: Path) -> None:
    left, right = weights(a), weights(b)
    assert left.keys() == right.keys()
    assert all(torch.equal(left[name], right[name]) for name in left)
    assert metrics(a) == metrics(b)
    assert (a / "samples.jsonl").read_text() == (b / "samples.jsonl").read_text()
    assert len((a / "metrics.csv").read_text().splitlines()) == len(metrics(a)) + 1


CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "softmax-exp-euler": ({}, {}),
    "softmax-etd-ab2": ({}, {}),
    "linear-presymp-euler": ({"preset": "paper"}, {}),
    "softmax-yuriiformer": ({}, {"optimizer": "muon"}),
    "softmax-baseline": ({"dropout": 0.1}, {"accumulate": 2}),
    "linear-plain-euler": ({}, {"precision": "bfloat16"}),
}


@pytest.mark.parametrize(("name", "case"), CASES.items(), ids=CASES)
def test_a_resumed_run_is_the_same_run(
    name: str,
    case: tuple[dict[str, Any], dict[str, Any]],
    make_config: ConfigMaker,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model, options = case
    config = make_config({"variant": name, **model}, sample_every=2, **options)
    whole = run_training(config.replace(out=str(tmp_path / "whole")))
    for step in (1, 5):  # before the first checkpoint, and between two
        with monkeypatch.context() as patch:
            kill_at(patch, step)
            with pytest.raises(Killed):
                run_training(config, resume=step > 1)
    resumed = run_training(config, resume=True)
    assert_same_run(whole.folder, resumed.folder)
    assert (whole.validation_loss, whole.best_loss, whole.sample) == (
        resumed.validation_loss,
        resumed.best_loss,
        resumed.sample,
    )


def test_a_run_leaves_all_it_promises(make_config: ConfigMaker) -> None:
    config = make_config(steps=8, tensorboard=False)
    run = run_training(config).folder
    names = {"config.yaml", "model.json", "environment.json", "tokenizer", "metrics.jsonl", "metrics.csv", "log.txt"}
    assert names | {"samples.jsonl", "checkpoints"} == {path.name for path in run.iterdir()}
    last = metrics(run)[-1]
    assert last["step"] == 8
    assert {"loss", "lr", "tokens", "gradient_norm", "validation_loss", "perplexity", "bits_per_byte"} <= last.keys()
    assert {"h_x", "h_y", "alpha", "momentum_rms"} <= last["layers"][1].keys()
    assert [record["step"] for record in metrics(run)] == [3, 4, 6, 8]
    kept = {path.name for path in (run / "checkpoints").iterdir()}
    assert {"step-00000006", "step-00000008"} == {name for name in kept if name.startswith("step")}
    assert len([name for name in kept if name.startswith("best")]) == 1


def test_tensorboard_if_asked(make_config: ConfigMaker) -> None:
    pytest.importorskip("tensorboard")
    run = run_training(make_config(tensorboard=True)).folder
    assert len(list((run / "tensorboard").glob("events*"))) == 1


def test_tensorboard_not_installed(make_config: ConfigMaker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sympformer.training.run_files.find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"pip install '.\[tensorboard\]'"):
        run_training(make_config(tensorboard=True))
    assert list(tmp_path.iterdir()) == []


def test_a_complete_run_resumed_stays_as_it_is(make_config: ConfigMaker) -> None:
    config = make_config()
    first = run_training(config)
    before, drawn = metrics(first.folder), weights(first.folder)
    again = run_training(config, resume=True)
    assert again.validation_loss == first.validation_loss
    assert metrics(first.folder) == before
    assert all(torch.equal(value, drawn[name]) for name, value in weights(first.folder).items())


# --- damage


@pytest.mark.parametrize("damage", ["truncate", "flip", "remove"])
def test_a_damaged_checkpoint_is_named_and_the_one_before_used(
    damage: str, make_config: ConfigMaker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = make_config()
    whole = run_training(config)
    shutil.copytree(whole.folder, tmp_path / "copy")
    newest = tmp_path / "copy" / "checkpoints" / "step-00000008"
    file = newest / "optimizer.safetensors"
    content = bytearray(file.read_bytes())
    if damage == "truncate":
        file.write_bytes(content[: len(content) // 2])
    elif damage == "flip":
        content[len(content) // 2] ^= 1
        file.write_bytes(content)
    else:
        file.unlink()
    capsys.readouterr()
    run_training(config.replace(out=str(tmp_path / "copy")), resume=True)
    said = capsys.readouterr().err
    assert "step-00000008 is damaged" in said
    assert "passed over" in said
    assert "continuing at step 6" in said
    assert_same_run(whole.folder, tmp_path / "copy")


def test_a_full_disk_is_one_sentence_and_a_usable_checkpoint(
    make_config: ConfigMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = make_config(steps=8)
    original = CheckpointFolder.save

    def save(self: CheckpointFolder, progress: Any, *tensors: Any) -> Path:
        if progress.step > 3:
            raise OSError(errno.ENOSPC, "No space left on device")
        return original(self, progress, *tensors)

    with monkeypatch.context() as patch:
        patch.setattr(CheckpointFolder, "save", save)
        with pytest.raises(InputError, match=r"the disk of .* is full; the checkpoint of step 3 is usable"):
            run_training(config)
    assert run_training(config, resume=True).steps == 8


def test_a_run_that_diverges_keeps_its_last_good_checkpoint(
    make_config: ConfigMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = Trainer.step

    def step(self: Trainer, number: int) -> None:
        if number == 4:
            with torch.no_grad():
                self.model.tokens.weight.fill_(float("nan"))
        original(self, number)

    monkeypatch.setattr(Trainer, "step", step)
    config = make_config()
    with pytest.raises(
        DivergenceError, match=r"loss is not finite at step 5; the last good checkpoint is step 3\. Try"
    ):
        run_training(config)
    checkpoint = CheckpointFolder(Path(str(config.out)) / "checkpoints").newest(print)
    assert checkpoint is not None
    assert checkpoint.progress.step == 3
    assert all(tensor.isfinite().all() for tensor in checkpoint.model.values())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_saves_and_ends(
    number: int, make_config: ConfigMaker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = make_config()
    whole = run_training(config.replace(out=str(tmp_path / "whole")))
    original, before = Trainer.step, signal.getsignal(number)

    def step(self: Trainer, place: int) -> None:
        if place == 4:
            os.kill(os.getpid(), number)
        original(self, place)

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "step", step)
        stopped = run_training(config)
    assert (stopped.stopped_by, stopped.steps) == (number, 5)
    assert signal.getsignal(number) is before
    run_training(config, resume=True)
    assert_same_run(whole.folder, stopped.folder)


# --- what is refused


def test_refusals_leave_nothing_behind(make_config: ConfigMaker, tmp_path: Path) -> None:
    config = make_config()
    for bad in (
        {"model": {"variant": "nope"}},
        {"model": {"vocab_size": 7}},
        {"model": {"block_size": 10**7}},
        {"data": {"folder": str(tmp_path / "nowhere")}},
        {"precision": "float16", "device": "cpu"},
        {"strategy": "fsdp2"},
    ):
        with pytest.raises(InputError):
            run_training(type(config).from_dict(config.to_dict() | bad))
    assert list(tmp_path.iterdir()) == []


def test_a_folder_in_use_is_left_alone(make_config: ConfigMaker, tmp_path: Path) -> None:
    config = make_config()
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "mine.txt").write_text("mine")
    with pytest.raises(InputError, match="is not empty"):
        run_training(config)
    with pytest.raises(InputError, match="holds no run to continue"):
        run_training(config, resume=True)
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["mine.txt"]


def test_a_run_is_not_continued_with_another_config(make_config: ConfigMaker) -> None:
    config = make_config()
    run_training(config)
    with pytest.raises(InputError, match="holds a run: continue it with --resume"):
        run_training(config)
    with pytest.raises(InputError, match=r"has lr = 0\.016, not 0\.5"):
        run_training(config.replace(lr=0.5), resume=True)


def test_what_changes_no_result_may_change(make_config: ConfigMaker) -> None:
    config = make_config(steps=4)
    run_training(config)
    again = stored_config(TrainConfig(out=config.out, keep_last=7, strategy="ddp"))
    assert again == config.replace(keep_last=7, strategy="ddp")


def test_the_progress_line(make_config: ConfigMaker, capsys: pytest.CaptureFixture[str]) -> None:
    run_training(make_config(), bar=True)
    said = capsys.readouterr().err
    assert "validation loss" in said


# --- using a run


def test_a_run_folder_is_enough_to_sample(
    make_config: ConfigMaker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run_training(make_config())
    shutil.move(tmp_path / "run", tmp_path / "elsewhere")
    run = load_run(tmp_path / "elsewhere", "last")
    assert run.checkpoint.progress.step == 8
    assert run.sample("A b", 6, seed=1).startswith("A b")
    assert run.sample("", 6, seed=1) == run.sample("", 6, seed=1)
    monkeypatch.setitem(cli.COMMANDS, "sample", ("sympformer.training.commands:sample", ""))
    place = str(tmp_path / "elsewhere")
    assert cli.main(["sample", place, "--prompt", "Mia", "--n", "2"]) == 0
    assert capsys.readouterr().out.count("Mia") >= 2


def test_a_folder_without_a_run(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="does not exist"):
        load_run(tmp_path / "nothing")
    with pytest.raises(InputError, match="holds no run"):
        load_run(tmp_path)


@pytest.mark.parametrize(
    "args",
    [
        ["--steps", "0"],
        ["--stesp", "3"],
        ["--model.n_layers", "3"],
        ["--model.variant", "softmax"],
        ["--data.corpus", "/nowhere.txt"],
        ["--data.corpsu", "x"],
        ["--data.tokenizer", "bpe:x"],
        ["--precision", "float16", "--device", "cpu"],
        ["--config", "missing.yaml"],
        ["--resume", "true"],
        ["--betas", "1"],
    ],
)
def test_bad_command_lines(
    args: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SYMPFORMER_CACHE", str(tmp_path / "cache"))
    monkeypatch.setitem(cli.COMMANDS, "train", ("sympformer.training.commands:train", ""))
    assert cli.main(["train", *args]) == 2
    said = capsys.readouterr().err
    assert said.startswith("sympformer: error: ")
    assert said.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_a_run_from_the_command_line(
    prepared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(cli.COMMANDS, "train", ("sympformer.training.commands:train", ""))
    flags = f"--data.folder {prepared} --steps 2 --batch_size 2 --eval_tokens 64 --sample_tokens 4 --model.n_layer 1"
    for name in ("softmax-exp-euler-bytes", "softmax-exp-euler-bytes-2"):
        assert cli.main(["train", *flags.split()]) == 0
        assert f"the model is in runs/{name}" in capsys.readouterr().out
    recorded = json.loads((tmp_path / "runs" / name / "environment.json").read_text())
    assert recorded["data"]["corpus"].startswith("storybook")
