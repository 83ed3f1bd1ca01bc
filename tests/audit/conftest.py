"""Shared by the tests of the audit's command."""

from pathlib import Path

import pytest

from sympformer import data
from sympformer.training import TrainConfig, run_training


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two steps on a few stories."""
    folder = tmp_path_factory.mktemp("run")
    prepared = data.prepare("storybook:60", "byte", folder / "bytes", validation=0.2).folder
    options = {
        "model": {"n_layer": 2, "n_head": 2, "d_model": 16, "block_size": 16},
        "data": {"folder": str(prepared)},
        "steps": 2,
        "batch_size": 2,
        "eval_tokens": 64,
        "sample_tokens": 1,
        "out": str(folder / "run"),
    }
    return run_training(TrainConfig.from_dict(options)).folder
