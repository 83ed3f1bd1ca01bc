"""Whole runs: resumed = uninterrupted, what a folder holds, divergence, signals, float16, what is refused."""

import errno
import json
import math
import os
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest
import torch

import sympformer as sf
from sympformer import cli
from sympformer.errors import DivergenceError, InputError
from sympformer.training import engine, run
from sympformer.training.checkpoint import Checkpoints
from sympformer.training.config import TrainConfig
from sympformer.training.folder import RunFolder
from sympformer.training.run import TrainResult, train
from sympformer.training.trainer import Trainer
from tests.training.conftest import ConfigMaker, Killed, assert_same_run, kill_at, metrics

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
    name: str, case: tuple[Any, Any], make_config: ConfigMaker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = make_config({"variant": name, **case[0]}, sample_every=2, **case[1])
    whole = train(config.replace(out=str(tmp_path / "whole")), bar=True)
    for step in (1, 5):  # before the first checkpoint, and between two
        with monkeypatch.context() as patch:
            kill_at(patch, step)
            with pytest.raises(Killed):
                train(config, resume=step > 1)
    resumed = train(config, resume=True)
    assert_same_run(whole.folder, resumed.folder)
    for figure in ("validation_loss", "best_loss", "sample"):
        assert getattr(whole, figure) == getattr(resumed, figure)


def test_a_run_is_a_model_with_its_records(finished: Path) -> None:
    names = {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json", "generation_config.json"}
    names |= {"train.yaml", "run.json", "metrics.jsonl", "samples.jsonl", "log.txt", "checkpoints"}
    assert names == {path.name for path in finished.iterdir() if not path.name.startswith(".sympformer")}
    rows = metrics(finished)
    assert [record["step"] for record in rows] == [3, 4, 6, 8]
    expected = {"loss", "lr", "tokens", "gradient_norm", "validation_loss", "perplexity", "bits_per_byte"}
    assert expected <= rows[-1].keys()
    assert {"h_x", "h_y", "alpha", "momentum_rms"} <= rows[-1]["layers"][1].keys()
    assert RunFolder(finished).checkpoints.steps() == [6, 8]
    record = RunFolder(finished).record
    assert record["data"]["corpus"].startswith("storybook")
    assert record["codes"][0]["sympformer"] == sf.__version__


@pytest.mark.parametrize("options", [{}, {"preset": "modern"}], ids=["tied", "untied"])
def test_transformers_loads_a_run(options: dict[str, Any], make_config: ConfigMaker) -> None:
    """The folder as it stands: equal logits, equal ids, no key missing or left over."""
    transformers: Any = pytest.importorskip("transformers")
    import sympformer.hf  # noqa: F401

    folder = train(make_config(options, steps=4)).folder
    auto = transformers.AutoModelForCausalLM
    theirs, found = auto.from_pretrained(folder, output_loading_info=True)
    assert not any(found[f"{what}_keys"] for what in ("missing", "unexpected", "mismatched"))
    ours, ids = sf.open_model(folder), torch.arange(1, 21).view(2, 10)
    with torch.no_grad():
        assert torch.equal(theirs(ids, use_cache=False).logits, ours.logits(ids))
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    assert tokenizer("Mia sät <|endoftext|>").input_ids == ours.tokenizer.encode("Mia sät <|endoftext|>")
    assert tokenizer.eos_token_id == theirs.generation_config.eos_token_id == ours.tokenizer.end_of_text
    theirs.save_pretrained(folder.parent / "again")
    again = sf.open_model(folder.parent / "again")
    assert (again.kind, again.tokenizer) == ("hf", None)
    assert again.about["sha256"] == ours.about["sha256"]


def test_which_weights(finished: Path, copied: Path, capsys: pytest.CaptureFixture[str]) -> None:
    losses = {row["step"]: row["validation_loss"] for row in metrics(finished) if "validation_loss" in row}
    best, last = sf.open_model(finished), sf.open_model(finished, "last")
    assert (best.step, last.step, last.kind) == (min(losses, key=losses.__getitem__), 8, "run")
    (copied / "model.safetensors").unlink()  # a run that has no evaluation behind it yet
    assert sf.open_model(copied).step == 8
    shutil.copy(finished / "model.safetensors", copied)
    shutil.rmtree(copied / "checkpoints")
    assert sf.open_model(copied, "last").step == best.step
    (copied / "model.safetensors").unlink()
    with pytest.raises(InputError, match="no usable checkpoint"):
        sf.open_model(copied)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_saves_and_ends(number: int, finished: Path, make_config: ConfigMaker, monkeypatch: Any) -> None:
    original, before, config = Trainer.step, signal.getsignal(number), make_config()

    def step(self: Trainer, place: int) -> None:
        if place == 4:
            os.kill(os.getpid(), number)
        original(self, place)

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "step", step)
        stopped = train(config)
    assert (stopped.stopped_by, stopped.steps) == (number, 5)
    assert signal.getsignal(number) is before
    train(config, resume=True)
    assert_same_run(finished, stopped.folder)


def test_a_full_disk_is_one_sentence_and_a_usable_checkpoint(make_config: ConfigMaker, monkeypatch: Any) -> None:
    config, original = make_config(), Checkpoints.save

    def save(self: Checkpoints, progress: Any, *tensors: Any) -> None:
        if progress.step > 3:
            raise OSError(errno.ENOSPC, "No space left on device")
        original(self, progress, *tensors)

    with monkeypatch.context() as patch:
        patch.setattr(Checkpoints, "save", save)
        with pytest.raises(InputError, match=r"the disk of .* is full; the checkpoint of step 3 is usable"):
            train(config)
    assert train(config, resume=True).steps == 8


def test_tensorboard(make_config: ConfigMaker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("sympformer.training.report.find_spec", lambda name: None)
        with pytest.raises(InputError, match=r"pip install '.\[tensorboard\]'"):
            train(make_config(tensorboard=True))
    assert list(tmp_path.iterdir()) == []
    pytest.importorskip("tensorboard")
    assert len(list((train(make_config(tensorboard=True)).folder / "tensorboard").glob("events*"))) == 1


# --- losses that are no numbers


def nan_at(monkeypatch: pytest.MonkeyPatch, method: str, step: int) -> None:
    """From a step on, the model is of no numbers in one of the trainer's methods."""
    original = getattr(Trainer, method)

    def broken(self: Trainer, *args: Any) -> Any:
        weight = self.model.tokens.weight.detach()
        kept = weight.clone()
        if self.progress.step >= step:
            weight.fill_(float("nan"))
        try:
            return original(self, *args)
        finally:
            if self.progress.step >= step:
                weight.copy_(kept)

    monkeypatch.setattr(Trainer, method, broken)


@pytest.mark.parametrize(
    ("method", "step", "message"),
    [
        ("step", 4, r"the loss is not finite at step 5; the last good checkpoint is step 3\."),
        ("_score", 4, "validation loss is not finite at step 4; the last good"),
        ("_score", 8, "validation loss is not finite at step 8; the last good"),
    ],
)
def test_a_run_that_diverges_keeps_its_last_good_checkpoint(
    method: str, step: int, message: str, make_config: ConfigMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    nan_at(monkeypatch, method, step)
    config = make_config()
    with pytest.raises(DivergenceError, match=message):
        train(config)
    folder = Path(str(config.out))
    checkpoint = Checkpoints(folder).newest(print)
    assert checkpoint is not None
    assert checkpoint.progress.step == {4: 3, 8: 6}[step]
    assert all(tensor.isfinite().all() for tensor in checkpoint.model.values())
    assert "nan" not in (folder / "metrics.jsonl").read_text().lower()
    assert (folder / "model.safetensors").exists() == (step == 8 or method == "step")


# --- float16 as far as a CPU goes: autocast and the scaling of the loss, under an engine that takes it for a GPU

HIGH, LOW = 2.0**26, 2.0**8  # scales of the loss to start at: the first gradients overflow, or none does


@pytest.fixture
def scalers(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> list[torch.amp.GradScaler]:
    """Let the CPU pass for a GPU; the scalers of the runs. Parameter: the scale to start at."""
    made, original = list[torch.amp.GradScaler](), torch.amp.GradScaler

    def scaler(device: str, enabled: bool) -> torch.amp.GradScaler:
        found = original(device, init_scale=request.param, enabled=enabled)
        made.extend([found] * enabled)
        return found

    monkeypatch.setattr(torch.amp, "GradScaler", scaler)
    for module in (engine, run):
        monkeypatch.setattr(module, "pick_device", lambda config: "cpu")
    return made


def validation(folder: str | None) -> list[float]:
    return [row["validation_loss"] for row in metrics(Path(str(folder))) if "validation_loss" in row]


KINDS = [{"variant": f"softmax-{name}", "preset": "paper"} for name in ("baseline", "yuriiformer", "exp-euler")]
KINDS += [{"variant": "softmax-etd-ab2", "preset": "paper-spd"}, {"variant": "linear-presymp-euler", "preset": "paper"}]
every_kind = pytest.mark.parametrize("model", KINDS, ids=lambda model: model["variant"])


@every_kind
@pytest.mark.parametrize("scalers", [HIGH], indirect=True)
def test_steps_that_overflow_are_skipped(model: dict[str, Any], scalers: Any, make_config: ConfigMaker) -> None:
    config = make_config(model=model, steps=30, precision="float16", lr=3e-3)
    train(config, bar=False)
    assert 1 <= math.log2(HIGH / scalers[0].get_scale()) < 20  # each skipped step halves the scale
    losses = validation(config.out)
    assert losses[-1] < losses[0] - 0.1  # the others train


@every_kind
@pytest.mark.parametrize("scalers", [LOW], indirect=True)
def test_float16_is_near_float32(model: dict[str, Any], scalers: Any, make_config: ConfigMaker, tmp_path: Path) -> None:
    half = make_config(model=model, steps=12, precision="float16", out=str(tmp_path / "half"))
    full = half.replace(precision="float32", out=str(tmp_path / "full"))
    for config in (half, full):
        train(config, bar=False)
    assert [scaler.get_scale() for scaler in scalers] == [LOW]
    assert 0 < abs(validation(half.out)[-1] - validation(full.out)[-1]) < 0.02


@pytest.mark.parametrize("scalers", [HIGH], indirect=True)
def test_a_resumed_run_keeps_its_scale(
    scalers: Any, make_config: ConfigMaker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = make_config(model={"preset": "paper"}, steps=20, precision="float16", out=str(tmp_path / "whole"))
    train(whole, bar=False)
    cut = whole.replace(out=str(tmp_path / "cut"))
    with monkeypatch.context() as patch:
        kill_at(patch, 14)
        with pytest.raises(Killed):
            train(cut, bar=False)
    train(cut, resume=True, bar=False)
    assert scalers[0].get_scale() == scalers[2].get_scale() < HIGH
    assert validation(cut.out) == validation(whole.out)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")  # of the compiler's own
def test_a_compiled_run_is_the_same_run(make_config: ConfigMaker, tmp_path: Path, monkeypatch: Any) -> None:
    """Through the engine, its checkpoints and its resume; the compiler's own code is tested with the models."""
    options: dict[str, Any] = {"model": {"n_layer": 1}, "steps": 4, "eval_every": 4}
    plain = train(make_config(**options, out=str(tmp_path / "plain")))
    whole: Any = torch.compile
    compiled: list[Any] = []

    def traced(loss_of: Any) -> Any:
        compiled.append(loss_of)
        return whole(loss_of, backend="eager")

    monkeypatch.setattr(torch, "compile", traced)
    train(make_config(**options, compile=True, out=str(tmp_path / "fast")))
    assert compiled
    losses = [[row["loss"] for row in metrics(tmp_path / name) if "loss" in row] for name in ("plain", "fast")]
    assert losses[0] == pytest.approx(losses[1], abs=1e-6)
    again = train(TrainConfig(out=str(tmp_path / "fast")), resume=True)
    assert again.validation_loss == pytest.approx(plain.validation_loss, abs=1e-6)


# --- what is refused, and what is said


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
            train(TrainConfig.from_dict(config.to_dict() | bad))
    assert list(tmp_path.iterdir()) == []


def test_a_folder_in_use_is_left_alone(make_config: ConfigMaker, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "mine.txt").write_text("mine")
    with pytest.raises(InputError, match="exists and is left alone"):
        train(make_config())
    with pytest.raises(InputError, match="holds no run to continue"):
        train(make_config(), resume=True)
    with pytest.raises(InputError, match="say which run to continue"):
        train(TrainConfig(), resume=True)
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["mine.txt"]


def test_a_run_from_the_command_line(prepared: Path, tmp_path: Path, monkeypatch: Any, capsys: Any) -> None:
    monkeypatch.chdir(tmp_path)
    flags = f"--data.folder {prepared} --steps 2 --batch_size 2 --eval_tokens 64 --sample_tokens 4 --model.n_layer 1"
    for name in ("softmax-exp-euler-bytes", "softmax-exp-euler-bytes-2"):
        assert cli.main(["train", *flags.split()]) == 0
        assert f"the model is in runs/{name}" in capsys.readouterr().out
    assert json.loads((tmp_path / "runs" / name / "run.json").read_text())["processes"] == 1


@pytest.mark.parametrize(("stopped_by", "code", "words"), [(None, 0, "the model is in"), (15, 143, "continue with")])
@pytest.mark.parametrize("rank", [0, 1])
def test_the_first_process_speaks_for_all(
    rank: int, stopped_by: int | None, code: int, words: str, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    result = TrainResult(Path("runs/mine"), 7, 7, 2.5, 2.4, "One day", stopped_by, rank)
    monkeypatch.setattr(run, "train", lambda config, resume, given: result)
    assert cli.main(["train"]) == code
    said = capsys.readouterr().out
    assert (words in said and "runs/mine" in said) if rank == 0 else said == ""
