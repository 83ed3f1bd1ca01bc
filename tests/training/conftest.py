"""Small prepared data and small configs, shared by all tests of training."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from sympformer import data
from sympformer.training import TrainConfig

MODEL: dict[str, Any] = {"n_layer": 2, "n_head": 2, "d_model": 16, "block_size": 16}
ConfigMaker = Callable[..., TrainConfig]


@pytest.fixture(scope="session")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A few stories as bytes."""
    return data.prepare("storybook:60", "byte", tmp_path_factory.mktemp("data") / "bytes", validation=0.2).folder


@pytest.fixture
def make_config(prepared: Path, tmp_path: Path) -> ConfigMaker:
    """Configs of runs that take a fraction of a second. `model` adds options to the small model."""

    def make(model: dict[str, Any] | None = None, **options: Any) -> TrainConfig:
        base: dict[str, Any] = {
            "data": {"folder": str(prepared)},
            "steps": 8,
            "batch_size": 4,
            "warm_up": 2,
            "log_every": 3,
            "eval_every": 4,
            "eval_tokens": 256,
            "checkpoint_every": 3,
            "sample_tokens": 5,
            "out": str(tmp_path / "run"),
        }
        return TrainConfig.from_dict(base | {"model": MODEL | (model or {})} | options)

    return make


@pytest.fixture(autouse=True)
def one_thread() -> None:
    """Bit-for-bit comparisons and small models are both better off with one."""
    torch.set_num_threads(1)
