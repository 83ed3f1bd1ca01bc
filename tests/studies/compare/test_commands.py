"""What `compare` and `report` leave behind for people."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sympformer.studies.compare.commands import write_outputs
from sympformer.studies.results import plots
from tests.studies.results import made_up


def test_every_plot_is_drawn_and_written_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []

    def counted(name: str) -> Callable[..., Any]:
        real = getattr(plots, name)

        def call(*arguments: Any) -> Any:
            calls.append(name)
            return real(*arguments)

        return call

    for name in ("ranking", "loss_curves", "layers", "svg_text"):
        monkeypatch.setattr(plots, name, counted(name))
    page = write_outputs(made_up.results(["gpt", "exp-euler"]), tmp_path / "out")
    drawn = len(list((tmp_path / "out").glob("*.svg")))
    assert drawn == 5
    assert page.read_text().count("<svg") == drawn
    assert calls.count("svg_text") == drawn
    assert len(calls) == 2 * drawn
