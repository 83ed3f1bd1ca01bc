"""Tiny runs to export, made once: a trained one, and one of any variant without training."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

import sympformer as sf
from sympformer import audit, data
from sympformer.data import Tokens
from sympformer.export import export as exporting
from sympformer.models import perturb_
from sympformer.training.checkpoint import Progress, model_tensors, save_best
from sympformer.training.config import TrainConfig
from sympformer.training.folder import RunFolder
from sympformer.training.run import train

MODEL: dict[str, Any] = {"n_layer": 2, "n_head": 2, "d_model": 16, "block_size": 32}
STEPS: dict[str, Any] = {"steps": 2, "batch_size": 2, "warm_up": 1, "eval_every": 1, "eval_tokens": 256}
RunMaker = Callable[..., Path]


@pytest.fixture(autouse=True)
def own_places(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """No network, no shared caches, one thread."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("SYMPFORMER_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))
    torch.set_num_threads(1)


@pytest.fixture
def quick_audit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Exports that audit a few tokens only; `test_the_command` takes them all."""
    monkeypatch.setattr(exporting, "audit_model", partial(audit.audit_model, length=4, weights=("given",)))


@pytest.fixture(scope="session")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Tokens]:
    """A few stories, with both kinds of tokenizer."""
    base = tmp_path_factory.mktemp("data")
    names = {"byte": "byte", "bpe": "bpe:300"}
    return {key: data.prepare("storybook:200", name, base / key, validation=0.1) for key, name in names.items()}


def config(prepared: Tokens, out: Path, model: dict[str, Any]) -> TrainConfig:
    fields = {"data": {"folder": str(prepared.folder)}, "model": MODEL | model, "out": str(out), "sample_tokens": 3}
    return TrainConfig.from_dict(fields | STEPS)


@pytest.fixture(scope="session")
def trained(prepared: dict[str, Tokens], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two steps with a byte-pair tokenizer."""
    return train(config(prepared["bpe"], tmp_path_factory.mktemp("trained") / "run", {}), bar=False).folder


@pytest.fixture(scope="session")
def exported(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The trained run as a Hugging Face folder. Not to be changed."""
    exporting.export_run(trained, out := tmp_path_factory.mktemp("exported") / "model")
    return out


@pytest.fixture(scope="session")
def make_run(prepared: dict[str, Tokens], tmp_path_factory: pytest.TempPathFactory) -> RunMaker:
    """Write the run folder of a model with perturbed weights, which nobody trained."""

    def make(tokenizer: str = "byte", **model: Any) -> Path:
        tokens, out = prepared[tokenizer], tmp_path_factory.mktemp("made") / "run"
        options = {"vocab_size": tokens.tokenizer.padded_vocab_size, **MODEL, **model}
        cfg = sf.variant(options.pop("variant"), options.pop("preset", "tuned"), **options)
        RunFolder.create(config(tokens, out, model), cfg, tokens, None)
        network = sf.build_model(cfg, seed=1)
        perturb_(network)
        save_best(out, Progress(step=1), model_tensors(network))
        return out

    return make
