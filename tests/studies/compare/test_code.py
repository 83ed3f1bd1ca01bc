"""Runs of different code under one table: refused, or said; the whole path with two hashes of the source."""

import csv
import io
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from sympformer import provenance
from sympformer.cli import main
from sympformer.nn.presets import STARTS
from sympformer.provenance import Code, this_code
from sympformer.studies.results.results import Results
from sympformer.training import run as runs

SIZE = {"n_layer": 1, "n_head": 2, "d_model": 16, "block_size": 16}
DATA = {"corpus": "storybook:200", "tokenizer": "byte", "validation": 0.1, "test": 0.1}
CONFIG: dict[str, Any] = {
    "baseline": "gpt",
    "models": {"gpt": {"variant": "softmax-baseline"}, "exp": {"variant": "softmax-exp-euler"}},
    "lr": [4e-3],
    "budget": {"steps": 2},
    "seeds": [1],
    "common": {"model": SIZE, "data": DATA, "batch_size": 2, "warm_up": 1, "eval_every": 1, "eval_tokens": 300},
}
OTHER = {"sympformer": "0.0.9", "source": "0123456789abcdef", "commit": "fedcba987654"}


@pytest.fixture(autouse=True, scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SYMPFORMER_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="module")
def made(cache: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished comparison of two models with one seed."""
    folder = tmp_path_factory.mktemp("code")
    (folder / "small.yaml").write_text(yaml.safe_dump(CONFIG, sort_keys=False))
    assert main(["compare", str(folder / "small.yaml"), "--out", str(folder / "out")]) == 0
    return folder / "out"


@pytest.fixture
def finished(made: Path, tmp_path: Path) -> Path:
    """A copy of it, to be changed."""
    return Path(shutil.copytree(made, tmp_path / "out"))


def made_by(run: Path, code: dict[str, str]) -> None:
    """Let a run say that this code made it; without one, as runs were before they said so."""
    environment = json.loads((run / runs.ENVIRONMENT).read_text())
    for name in ("sympformer", "source", "commit", "seal"):
        environment.pop(name)
    (run / runs.ENVIRONMENT).write_text(json.dumps(environment | code))


def test_everything_says_what_made_it(made: Path) -> None:
    here = this_code().to_dict()
    run = made / "runs/gpt/final-seed1"
    for file in (run / runs.ENVIRONMENT, made / "results.json"):
        record = json.loads(file.read_text())
        assert here.items() <= record.get("environment", record).items()
    for file in (run / "score.json", made / "costs.json"):
        assert json.loads(file.read_text())["code"] == here
    results = Results.load(made / "results.json")
    assert results.environment["runs"] == [here]
    assert results.mixed_code == []
    assert [model.code for model in results.models] == [[this_code().label]] * 2


def test_a_preset_that_has_changed_since_changes_no_figure(finished: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = {model.name: model.parameters for model in Results.load(finished / "results.json").models}
    for key, starts in STARTS.items():
        monkeypatch.setitem(STARTS, key, starts | {"tie_head": False})
    assert main(["compare", str(finished / "compare.yaml"), "--out", str(finished)]) == 0
    assert {model.name: model.parameters for model in Results.load(finished / "results.json").models} == before


def test_two_hashes_are_refused_and_then_said(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made_by(finished / "runs/exp/final-seed1", OTHER)
    before = {path: path.read_bytes() for path in finished.glob("*.*")}
    for command in (["report", str(finished)], ["compare", str(finished / "compare.yaml"), "--out", str(finished)]):
        capsys.readouterr()
        assert main(command) == 2
        error = capsys.readouterr().err.splitlines()[-1]
        assert f"different code ({this_code().label}" in error
        assert "0.0.9 (01234567) of commit fedcba987654" in error
        assert "--mixed_code true" in error
    assert {path: path.read_bytes() for path in finished.glob("*.*")} == before  # nothing is written
    assert main(["report", str(finished), "--mixed_code"]) == 0
    assert "0.0.9 (01234567)" in capsys.readouterr().out
    for table in ("table.md", "table.tex", "report.html"):
        text = (finished / table).read_text()
        assert "0.0.9 (01234567)" in text, table
        assert this_code().label in text, table
    rows = {row["model"]: row["code"] for row in csv.DictReader(io.StringIO((finished / "table.csv").read_text()))}
    assert rows == {"gpt": this_code().label, "exp": "0.0.9 (01234567)"}
    assert "made by different code" in (finished / "report.html").read_text()
    results = Results.load(finished / "results.json")
    assert results.notes[0].startswith("The runs were made by different code")
    assert [code["source"] for code in results.environment["runs"]] == [this_code().source, OTHER["source"]]


def test_two_runs_of_unknown_code_are_of_one(
    finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folders = [finished / f"runs/{name}/final-seed1" for name in ("gpt", "exp")]
    made_by(folders[0], {"sympformer": "0.1.0"})
    report = ["report", *map(str, folders), "--out", str(tmp_path / "page.html")]
    assert main(report) == 2
    assert "unknown code" in capsys.readouterr().err
    assert not (tmp_path / "page.html").exists()
    made_by(folders[1], {"sympformer": "0.1.0"})
    assert main(report) == 0
    assert "different code" not in (tmp_path / "page.html").read_text()


def test_a_comparison_taken_up_after_an_upgrade(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("gpt", "exp"):
        made_by(finished / f"runs/{name}/final-seed1", OTHER)
    command = ["compare", str(finished / "compare.yaml"), "--out", str(finished)]
    assert main(command) == 0  # all runs are there: only the tables are written again
    assert Results.load(finished / "results.json").environment["runs"] == [OTHER]
    shutil.rmtree(finished / "runs/exp")
    capsys.readouterr()
    assert main(command) == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert f"begun by other code, 0.0.9 (01234567), than this one, {this_code().label}" in error
    assert "go on with commit fedcba987654, begin again with another --out" in error
    assert not (finished / "runs/exp").exists()
    assert main([*command, "--mixed_code", "true"]) == 0
    assert Results.load(finished / "results.json").mixed_code == ["0.0.9 (01234567)", this_code().label]


def test_a_run_that_other_code_continues_keeps_both(
    finished: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = finished / "runs/gpt/final-seed1"
    upgraded = Code("7.0.0", "feedfeedfeedfeed")
    monkeypatch.setattr(runs, "this_code", lambda: upgraded)
    assert main(["train", "--resume", "--out", str(run)]) == 0
    assert runs.run_codes(run) == [this_code()], "it was finished: the upgrade trained nothing"
    shutil.rmtree(run / "checkpoints")
    capsys.readouterr()
    assert main(["train", "--resume", "--out", str(run)]) == 0
    assert f"this code, 7.0.0 (feedfeed), is not the one that the run had so far, {this_code().label}" in (
        capsys.readouterr().err
    )
    assert runs.run_codes(run) == [this_code(), upgraded]
    assert runs.note_code(run) is None
    assert main(["report", str(run)]) == 2  # one run, and yet two codes under its table
    assert "different code" in capsys.readouterr().err


def test_a_changed_copy_of_the_package_trains_a_run_of_other_code(made: Path, tmp_path: Path) -> None:
    """No record is edited here: the second run is trained by a package with one more line."""
    copy = tmp_path / "changed" / "sympformer"
    shutil.copytree(provenance.ROOT, copy, ignore=shutil.ignore_patterns("__pycache__"))
    (copy / "lazy.py").write_text((copy / "lazy.py").read_text() + "# changed\n")
    first = made / "runs/gpt/final-seed1"
    command = ["train", str(first / "config.yaml"), "--out", str(tmp_path / "second")]
    environment = os.environ | {"PYTHONPATH": str(copy.parent)}
    subprocess.run([sys.executable, "-m", "sympformer", *command], env=environment, check=True, capture_output=True)
    (second,) = runs.run_codes(tmp_path / "second")
    assert second.source not in (None, this_code().source)
    assert second.commit is None
    report = ["report", str(first), str(tmp_path / "second"), "--out", str(tmp_path / "page.html")]
    assert main(report) == 2
    assert main([*report, "--mixed_code", "true"]) == 0
    assert second.label in (tmp_path / "page.html").read_text()
