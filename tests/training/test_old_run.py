"""A run folder made by the code of commit 28773e3, before runs said what made them, still serves."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from sympformer.cli import main
from sympformer.provenance import Code
from sympformer.training.metrics import read_metrics
from sympformer.training.run import load_run, run_codes

OLD = Path(__file__).parent / "old_run"


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SYMPFORMER_CACHE", str(tmp_path / "cache"))
    return Path(shutil.copytree(OLD, tmp_path / "run"))


def test_it_loads_and_speaks(run: Path) -> None:
    trained: Any = load_run(run)
    assert trained.checkpoint.progress.step == 4
    assert trained.sample("One day", max_new_tokens=4).startswith("One day")


def test_its_losses_are_what_they_were(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["eval", str(run), "--tokens", "200"]) == 0
    assert f"{read_metrics(run)[-1]['validation_loss']:.4f} nats per token" in capsys.readouterr().out


def test_it_is_of_unknown_code_and_can_be_reported(run: Path, tmp_path: Path) -> None:
    assert run_codes(run) == [Code(None, None)]
    assert main(["report", str(run), "--out", str(tmp_path / "page.html")]) == 0
    assert "different code" not in (tmp_path / "page.html").read_text()
