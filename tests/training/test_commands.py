"""What `sympformer train` says at the end."""

from pathlib import Path

import pytest

from sympformer.cli import main
from sympformer.training import launch
from sympformer.training.launch import TrainResult


@pytest.mark.parametrize(("stopped_by", "code", "words"), [(None, 0, "the model is in"), (15, 143, "continue with")])
@pytest.mark.parametrize("rank", [0, 1])
def test_the_first_process_speaks_for_all(
    rank: int,
    stopped_by: int | None,
    code: int,
    words: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    result = TrainResult(Path("runs/mine"), 7, 7, 2.5, 2.4, "One day", stopped_by, rank)
    monkeypatch.setattr(launch, "run_training", lambda config, resume, trust_data: result)
    assert main(["train"]) == code
    said = capsys.readouterr().out
    assert (words in said and "runs/mine" in said) if rank == 0 else said == ""
