"""Where a run computes: devices that are there or not, and the compiled model."""

from pathlib import Path
from typing import Any

import pytest
import torch

from sympformer.errors import InputError
from sympformer.training import TrainConfig, run_training
from sympformer.training.engine import pick_device
from sympformer.training.metrics import read_metrics
from tests.training.conftest import ConfigMaker


def test_mps_is_taken_where_torch_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    assert pick_device(TrainConfig(device="mps")) == "mps"
    with pytest.raises(InputError, match="float16' needs a CUDA device"):
        pick_device(TrainConfig(device="mps", precision="float16"))
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    with pytest.raises(InputError, match="device = 'mps' asks for a GPU and there is none"):
        pick_device(TrainConfig(device="mps"))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")  # of the compiler's own
def test_a_compiled_run_is_the_same_run(
    make_config: ConfigMaker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Through the engine, its checkpoints and its resume; the compiler's own code is tested with the models."""
    options: dict[str, Any] = {"model": {"n_layer": 1}, "steps": 4, "eval_every": 4}
    plain = run_training(make_config(**options, out=str(tmp_path / "plain")))
    compiled = []

    def traced(loss_of: Any, **options: Any) -> Any:
        compiled.append(loss_of)
        return whole(loss_of, backend="eager")

    whole: Any = torch.compile
    monkeypatch.setattr(torch, "compile", traced)
    run_training(make_config(**options, compile=True, out=str(tmp_path / "fast")))
    assert compiled
    losses = [[row["loss"] for row in read_metrics(tmp_path / name) if "loss" in row] for name in ("plain", "fast")]
    assert losses[0] == pytest.approx(losses[1], abs=1e-6)
    again = run_training(TrainConfig(out=str(tmp_path / "fast")), resume=True)
    assert again.validation_loss == pytest.approx(plain.validation_loss, abs=1e-6)
