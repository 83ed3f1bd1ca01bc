"""What must not pass for a result: losses that are no numbers, damaged checkpoints, files that changed behind a run."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from sympformer import cli
from sympformer.errors import DivergenceError, InputError
from sympformer.training import load_run, run_training
from sympformer.training.checkpoint import CheckpointFolder, read_checkpoint
from sympformer.training.trainer import Trainer
from tests.training.conftest import ConfigMaker
from tests.training.test_runs import assert_same_run


def checkpoints(run: Path) -> CheckpointFolder:
    return CheckpointFolder(run / "checkpoints")


def flip(file: Path, place: float = 0.5) -> None:
    """Change one bit."""
    content = bytearray(file.read_bytes())
    content[int(len(content) * place)] ^= 1
    file.write_bytes(content)


# --- losses that are no numbers


def nan_from(monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    """From a step on the validation text, and no other, makes the model leave the finite numbers."""
    original = Trainer._score

    def score(self: Trainer) -> Any:
        with torch.no_grad():
            if self.progress.step >= step:
                kept = self.model.tokens.weight.clone()
                self.model.tokens.weight.fill_(float("nan"))
                evaluation = original(self)
                self.model.tokens.weight.copy_(kept)
                return evaluation
        return original(self)

    monkeypatch.setattr(Trainer, "_score", score)


@pytest.mark.parametrize("step", [4, 8])
def test_a_validation_loss_that_is_no_number_ends_the_run(
    step: int,
    make_config: ConfigMaker,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    nan_from(monkeypatch, step)
    (tmp_path / "config.yaml").write_text(make_config().to_yaml())
    assert cli.main(["train", str(tmp_path / "config.yaml")]) == 2
    said = capsys.readouterr().err
    assert f"the validation loss is not finite at step {step}; the last good checkpoint is step" in said
    assert "Traceback" not in said
    assert "nan" not in (tmp_path / "run" / "metrics.jsonl").read_text().lower()
    assert checkpoints(tmp_path / "run").steps("best") == ([4] if step == 8 else [])


def test_a_model_of_no_numbers_does_not_speak(make_config: ConfigMaker) -> None:
    run = load_run(run_training(make_config()).folder)
    with torch.no_grad():
        run.model.tokens.weight.fill_(float("nan"))
    with pytest.raises(DivergenceError, match="not finite"):
        run.sample("A")


# --- checkpoints


@pytest.mark.parametrize("keep_last", [1, 3])
def test_damaged_checkpoints_do_not_drive_out_good_ones(keep_last: int, make_config: ConfigMaker) -> None:
    config = make_config(checkpoint_every=1, keep_last=keep_last)
    run = run_training(config.replace(keep_last=8)).folder
    for step in (5, 6, 7, 8):
        flip(run / "checkpoints" / f"step-{step:08d}" / "model.safetensors")

    kept: list[list[int]] = []
    original = CheckpointFolder.save

    def save(self: CheckpointFolder, *args: Any) -> Path:
        folder = original(self, *args)
        kept.append([step for step in self.steps("step") if is_good(self.folder / f"step-{step:08d}")])
        return folder

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CheckpointFolder, "save", save)
        run_training(config, resume=True)
    assert kept == [list(range(step + 1 - keep_last, step + 1)) for step in (5, 6, 7, 8)]


def is_good(folder: Path) -> bool:
    try:
        read_checkpoint(folder)
    except InputError:
        return False
    return True


def with_manifest(folder: Path, **changes: Any) -> Path:
    manifest = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps(manifest | changes))
    return folder


def test_a_manifest_names_only_what_a_checkpoint_has(make_config: ConfigMaker, tmp_path: Path) -> None:
    folder = run_training(make_config()).folder / "checkpoints" / "step-00000008"
    for name in ("/dev/zero", "../../config.yaml", "more.bin"):
        shutil.copytree(folder, tmp_path / "copy")
        with pytest.raises(InputError, match="names other files than a checkpoint has"):
            read_checkpoint(with_manifest(tmp_path / "copy", **{name: {"bytes": 1, "sha256": ""}}))
        shutil.rmtree(tmp_path / "copy")
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors").symlink_to("/dev/zero")
    with pytest.raises(InputError, match="not a regular file"):
        read_checkpoint(folder)


def test_a_bad_header_with_a_matching_checksum(make_config: ConfigMaker) -> None:
    from sympformer.safe_files import sha256

    folder = run_training(make_config()).folder / "checkpoints" / "step-00000008"
    for content in (b"", b"\xff" * 64, b"\x08" + b"\0" * 7 + b"{" * 8):
        (folder / "model.safetensors").write_bytes(content)
        described = {"bytes": len(content), "sha256": sha256(content)}
        with pytest.raises(InputError, match="is damaged"):
            read_checkpoint(with_manifest(folder, **{"model.safetensors": described}))


# --- the other files of a run


@pytest.fixture(scope="module")
def finished(prepared: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    from sympformer.training import TrainConfig
    from tests.training.conftest import MODEL

    out = str(tmp_path_factory.mktemp("finished") / "run")
    sizes = {"steps": 8, "batch_size": 4, "eval_every": 4, "eval_tokens": 256, "checkpoint_every": 3}
    config = {"model": MODEL, "data": {"folder": str(prepared)}, "sample_tokens": 5, "out": out, "log_every": 3}
    return run_training(TrainConfig.from_dict(config | sizes)).folder


DECIDE = ("config.yaml", "model.json", "environment.json", "metrics.jsonl", "tokenizer/tokenizer.json")


@pytest.mark.parametrize("name", DECIDE)
@pytest.mark.parametrize("place", [0.1, 0.5, 0.9])
def test_what_decides_a_result_is_protected(name: str, place: float, finished: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(finished, run)
    flip(run / name, place)
    with pytest.raises(InputError):
        load_run(run)
    with pytest.raises(InputError):
        run_training(load_run(finished).config.replace(out=str(run)), resume=True)


def test_a_finished_run_taken_up_again_says_nothing_twice(finished: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(finished, run)
    for _ in range(3):
        run_training(load_run(finished).config.replace(out=str(run)), resume=True)
    assert_same_run(finished, run)


def test_a_config_of_any_size_allocates_nothing(finished: Path, tmp_path: Path) -> None:
    shutil.copytree(finished, tmp_path / "run")
    (tmp_path / "run" / "environment.json").write_text('{"data": {"corpus": "x"}}')
    for checkpoint in (tmp_path / "run" / "checkpoints").iterdir():  # a run from before there were checksums
        state = json.loads((checkpoint / "state.json").read_text()) | {"metrics": None}
        (checkpoint / "state.json").write_text(json.dumps(state))
        content = (checkpoint / "state.json").read_bytes()
        from sympformer.safe_files import sha256

        with_manifest(checkpoint, **{"state.json": {"bytes": len(content), "sha256": sha256(content)}})
    model = json.loads((finished / "model.json").read_text())
    assert load_run(tmp_path / "run").model.cfg.to_dict() == model
    for change in ({"n_layer": 10**9}, {"vocab_size": 10**9}, {"block_size": 10**12}, {"d_model": 10**6},
                   {"mlp_ratio": 10**9}, {"n_layer": 10**9, "share_layers": True}):  # fmt: skip
        (tmp_path / "run" / "model.json").write_text(json.dumps(model | change))
        with pytest.raises(InputError, match="belong to another model"):
            load_run(tmp_path / "run")
