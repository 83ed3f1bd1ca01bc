"""The tutorials run, at a small size, and do what their text says."""

import runpy
from pathlib import Path
from typing import Any

import pytest

TUTORIALS = Path(__file__).resolve().parents[1] / "docs" / "tutorials"


def names_of(tutorial: str) -> dict[str, Any]:
    return runpy.run_path(str(TUTORIALS / f"{tutorial}.py"), run_name="tutorial")


def test_acceleration(capsys: pytest.CaptureFixture[str]) -> None:
    """At its full size: that takes seconds."""
    names = names_of("acceleration")
    system = names["valley"]()
    classical, accelerated = names["first_order"](system), names["with_momentum"](system)
    assert accelerated < classical / 3
    assert "in 60 evaluations" in capsys.readouterr().out
    energies = names["damping"](system)
    assert energies["2"] > energies["3/t"]  # too much damping, and momentum is not worth its name


def test_every_scheme_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    names = names_of("acceleration")
    names["which_scheme"].__globals__["STEPS"] = 4
    left = names["which_scheme"](names["valley"]())
    assert list(left) == list(names["flows"].INTEGRATORS)
    assert "rk4" in (shown := capsys.readouterr().out)
    assert "after 16 evaluations" in shown


def test_your_text(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SYMPFORMER_CACHE", str(tmp_path / "cache"))
    names = names_of("your_text")
    size = names["Size"](stories=60, tokenizer="byte", steps=3, n_layer=2, d_model=16, block_size=32)
    run = names["main"](tmp_path, size)
    assert run.model.cfg.n_layer == 2
    assert "One day" in capsys.readouterr().out


def test_looking_ahead(capsys: pytest.CaptureFixture[str]) -> None:
    names = names_of("looking_ahead")
    names["main"]()
    slip, repaired, *others = capsys.readouterr().out.splitlines()
    assert slip.startswith("with a slip: ")
    assert "later tokens" in slip
    assert repaired == "repaired: passes"
    assert others in (["GPT-2 of Hugging Face: passes"], ["transformers is not installed (the extra hf has it)"])
