"""Runs side by side: what is compared, what is refused, what a table says of their weights, codes and names."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from sympformer.cli import main
from sympformer.studies.compare.records import thinned
from sympformer.studies.results.results import Results
from tests.studies.conftest import CONFIG

pytestmark = pytest.mark.usefixtures("in_this_process")


@pytest.fixture
def runs(finished: Path, tmp_path: Path) -> list[str]:
    """Two runs, copied, as they were before anything scored them."""
    for name in ("gpt-tied", "symp-tied"):
        shutil.copytree(finished / f"runs/{name}/final-seed1", tmp_path / name)
        (tmp_path / name / "score.json").unlink()
    return [str(tmp_path / name) for name in ("gpt-tied", "symp-tied")]


def said(capsys: pytest.CaptureFixture[str]) -> str:
    out, err = capsys.readouterr()
    return " ".join((out + err).split())


def test_two_runs(runs: list[str], finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", *runs, "--out", str(tmp_path / "r.html"), "--baseline", runs[1]]) == 0
    text = said(capsys)
    loss = Results.load(finished / "results.json").models[0].last
    assert loss is not None
    assert f"{loss.values[0]:.3f}" in text
    assert "Single runs, trained by themselves" in text
    assert "Scored on the test split." in text
    assert "symp-tied" in (tmp_path / "r.html").read_text()


def test_a_comparison_is_reported_from_its_results_alone(
    finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "kept").mkdir()
    shutil.copy(finished / "results.json", tmp_path / "kept")
    assert main(["report", str(tmp_path / "kept")]) == 0
    for name in ("table.md", "table.csv", "table.tex", "effects.md"):
        assert (tmp_path / "kept" / name).read_text() == (finished / name).read_text()
    assert main(["report", str(finished), "--out", str(tmp_path / "page.html")]) == 0
    assert "symp-tied" in (tmp_path / "page.html").read_text()
    capsys.readouterr()
    assert main(["report", str(finished), str(tmp_path / "kept")]) == 2
    assert "with its own models, baseline and metric: name it alone" in said(capsys)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["missing"], "missing does not exist"),
        (["."], "holds no run"),
        (["gpt-tied", "gpt-tied"], "a run is named twice"),
        (["gpt-tied", "symp-tied", "--baseline", "gtp-tied"], "did you mean 'gpt-tied'"),
    ],
)
def test_refusals(
    words: list[str], why: str, runs: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["report", *words]) == 2
    assert why in said(capsys)


def test_different_tokenizers_and_corpora(runs: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sizes = [f"--model.{name}={value}" for name, value in CONFIG["common"]["model"].items()]
    few = ["--steps=1", "--batch_size=2", "--eval_tokens=300", "--data.validation=0.1", "--data.test=0.1", *sizes]
    bpe, other = str(tmp_path / "bpe"), str(tmp_path / "other")
    assert main(["train", "--data.corpus=storybook:200", "--data.tokenizer=bpe:300", *few, f"--out={bpe}"]) == 0
    assert main(["train", "--data.corpus=storybook:100", "--data.tokenizer=byte", *few, f"--out={other}"]) == 0
    page = ["--out", str(tmp_path / "r.html")]
    capsys.readouterr()
    assert main(["report", runs[0], bpe, *page]) == 2
    assert "have different tokenizers, so that their losses per token do not compare" in said(capsys)
    assert main(["report", runs[0], bpe, "--metric", "bits_per_byte", *page]) == 0
    assert main(["report", runs[0], other, *page]) == 2
    assert "were trained on different corpora; score both on the same text" in said(capsys)


def test_older_weights_are_named(runs: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "symp-tied/checkpoints/step-00000006/state.json").write_text("{}")
    assert main(["report", *runs, "--out", str(tmp_path / "r.html")]) == 0
    assert "Scored with older weights: checkpoint" in said(capsys)
    assert "Scored with older weights: checkpoint" in (tmp_path / "r.html").read_text()


@pytest.mark.parametrize("name", ["$x^{", "a[/]b", "c\x07\x1b[2J", "d&<e>"])
def test_names_of_runs_are_text(name: str, runs: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    shutil.copytree(runs[0], tmp_path / name)
    assert main(["report", runs[1], str(tmp_path / name), "--out", str(tmp_path / "r.html")]) == 0
    page = (tmp_path / "r.html").read_text()
    assert "<e>" not in page
    assert "\x1b" not in page + capsys.readouterr().out


def test_a_long_curve_is_thinned_by_means() -> None:
    points = [(step, float(step)) for step in range(1, 251)]
    found = thinned(points)
    assert found[0] == (3, 2.0)
    assert found[-1] == (250, 250.0)
    assert len(found) == 84
    assert thinned(points[:100]) == points[:100]
    assert thinned([]) == []
