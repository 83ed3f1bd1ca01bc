"""float16 as far as a CPU goes: autocast and the scaling of the loss, under an engine that takes the CPU for a GPU.

What a GPU's own kernels do in float16 is not tested here; a user's CPU is refused (test_runs.py).
"""

import math
from pathlib import Path
from typing import Any

import pytest
import torch

from sympformer.training import engine, launch, run_training
from sympformer.training.metrics import read_metrics
from tests.training.conftest import ConfigMaker
from tests.training.test_runs import Killed, kill_at

HIGH, LOW = 2.0**26, 2.0**8  # scales of the loss to start at: the first gradients overflow, or none does


@pytest.fixture
def scalers(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> list[torch.amp.GradScaler]:
    """Let the CPU pass for a GPU; the scalers of the runs. Parameter: the scale to start at."""
    made: list[torch.amp.GradScaler] = []

    original = torch.amp.GradScaler

    def scaler(device: str, enabled: bool) -> torch.amp.GradScaler:
        found = original(device, init_scale=request.param, enabled=enabled)
        made.extend([found] * enabled)
        return found

    monkeypatch.setattr(torch.amp, "GradScaler", scaler)
    for module in (engine, launch):
        monkeypatch.setattr(module, "pick_device", lambda config: "cpu")
    return made


def validation(folder: str | None) -> float:
    assert folder is not None
    return [record["validation_loss"] for record in read_metrics(Path(folder)) if "validation_loss" in record][-1]


every_kind = pytest.mark.parametrize(
    "model",
    [
        {"variant": "softmax-baseline", "preset": "paper"},
        {"variant": "softmax-yuriiformer", "preset": "paper"},
        {"variant": "softmax-exp-euler", "preset": "paper"},
        {"variant": "softmax-etd-ab2", "preset": "paper-spd"},
        {"variant": "linear-presymp-euler", "preset": "paper"},
    ],
    ids=lambda model: f"{model['variant']}-{model['preset']}",
)


@every_kind
@pytest.mark.parametrize("scalers", [HIGH], indirect=True)
def test_steps_that_overflow_are_skipped(
    model: dict[str, Any], scalers: list[torch.amp.GradScaler], make_config: ConfigMaker
) -> None:
    config = make_config(model=model, steps=30, precision="float16", lr=3e-3)
    run_training(config, bar=False)
    skipped = math.log2(HIGH / scalers[0].get_scale())  # each halves the scale
    assert 1 <= skipped < 20
    assert config.out is not None
    losses = [record["validation_loss"] for record in read_metrics(Path(config.out)) if "validation_loss" in record]
    assert losses[-1] < losses[0] - 0.1  # the others train


@every_kind
@pytest.mark.parametrize("scalers", [LOW], indirect=True)
def test_float16_is_near_float32(
    model: dict[str, Any], scalers: list[torch.amp.GradScaler], make_config: ConfigMaker, tmp_path: Path
) -> None:
    half = make_config(model=model, steps=12, precision="float16", out=str(tmp_path / "half"))
    full = half.replace(precision="float32", out=str(tmp_path / "full"))
    for config in (half, full):
        run_training(config, bar=False)
    assert [scaler.get_scale() for scaler in scalers] == [LOW]
    assert 0 < abs(validation(half.out) - validation(full.out)) < 0.02


@pytest.mark.parametrize("scalers", [HIGH], indirect=True)
def test_a_resumed_run_keeps_its_scale(
    scalers: list[torch.amp.GradScaler], make_config: ConfigMaker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = {"variant": "softmax-exp-euler", "preset": "paper"}
    whole = make_config(model=model, steps=20, precision="float16", out=str(tmp_path / "whole"))
    run_training(whole, bar=False)
    cut = whole.replace(out=str(tmp_path / "cut"))
    with monkeypatch.context() as patch:
        kill_at(patch, 14)
        with pytest.raises(Killed):
            run_training(cut, bar=False)
    run_training(cut, resume=True, bar=False)
    assert scalers[0].get_scale() == scalers[2].get_scale() < HIGH
    assert validation(cut.out) == validation(whole.out)
