"""Small prepared data, small configs, one finished run, and what it means that two runs are the same."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from sympformer import data
from sympformer.training import trainer as trainer_module
from sympformer.training.checkpoint import read_best
from sympformer.training.config import TrainConfig
from sympformer.training.folder import TIMED, RunFolder
from sympformer.training.run import train

MODEL: dict[str, Any] = {"n_layer": 2, "n_head": 2, "d_model": 16, "block_size": 16}
SIZES: dict[str, Any] = {"steps": 8, "batch_size": 4, "warm_up": 2, "log_every": 3, "eval_every": 4, "eval_tokens": 256}
SIZES |= {"checkpoint_every": 3, "sample_tokens": 5}
ConfigMaker = Callable[..., TrainConfig]


@pytest.fixture(scope="session")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A few stories as bytes."""
    return data.prepare("storybook:60", "byte", tmp_path_factory.mktemp("data") / "bytes", validation=0.2).folder


@pytest.fixture
def make_config(prepared: Path, tmp_path: Path) -> ConfigMaker:
    """Configs of runs that take a fraction of a second. `model` adds options to the small model."""

    def make(model: dict[str, Any] | None = None, **options: Any) -> TrainConfig:
        base = {"data": {"folder": str(prepared)}, "out": str(tmp_path / "run"), **SIZES}
        return TrainConfig.from_dict(base | {"model": MODEL | (model or {})} | options)

    return make


@pytest.fixture(scope="session")
def finished(prepared: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of eight steps. Not to be changed: take `copied`."""
    torch.set_num_threads(1)
    out = tmp_path_factory.mktemp("finished") / "run"
    config = {"data": {"folder": str(prepared)}, "model": MODEL, "out": str(out), **SIZES}
    return train(TrainConfig.from_dict(config), bar=False).folder


@pytest.fixture
def copied(finished: Path, tmp_path: Path) -> Path:
    """A copy of the finished run."""
    return Path(shutil.copytree(finished, tmp_path / "run"))


@pytest.fixture(autouse=True)
def one_thread() -> None:
    """Bit-for-bit comparisons and small models are both better off with one."""
    torch.set_num_threads(1)


def weights(run: Path) -> dict[str, torch.Tensor]:
    """Weights and optimizer state of the newest checkpoint."""
    newest = RunFolder(run).checkpoints.steps()[-1]
    folder = RunFolder(run).checkpoints.path(newest)
    return load_file(folder / "model.safetensors") | load_file(folder / "optimizer.safetensors")


def metrics(run: Path) -> list[dict[str, Any]]:
    """The lines of metrics without what a clock says."""
    return [{k: v for k, v in record.items() if k not in TIMED} for record in RunFolder(run).metrics()]


def assert_same_run(a: Path, b: Path) -> None:
    """Weights, optimizer state, metrics and samples are equal to the bit, and so are the best weights."""
    left, right = weights(a), weights(b)
    assert left.keys() == right.keys()
    assert all(torch.equal(left[name], right[name]) for name in left)
    assert metrics(a) == metrics(b)
    assert (a / "samples.jsonl").read_text() == (b / "samples.jsonl").read_text()
    (best, about), (other, said) = (read_best(run, RunFolder(run).cfg) for run in (a, b))
    assert about == said
    assert all(torch.equal(best[name], other[name]) for name in best)


class Killed(BaseException):
    """Stands for a process that ends without a word."""


def kill_at(monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    """Let the process die in the middle of a step."""
    original, done = trainer_module.clip_gradients, list[None]()

    def dying(*args: Any) -> Any:
        done.append(None)
        if len(done) > step:
            raise Killed
        return original(*args)

    monkeypatch.setattr(trainer_module, "clip_gradients", dying)


def flip(file: Path, place: float = 0.5) -> None:
    """Change one bit."""
    content = bytearray(file.read_bytes())
    content[int(len(content) * place)] ^= 1
    file.write_bytes(content)
