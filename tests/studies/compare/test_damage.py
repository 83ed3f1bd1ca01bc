"""What a comparison must not report: old weights, losses that are no numbers, damaged files."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from sympformer.cli import main
from sympformer.errors import InputError
from sympformer.studies.compare.comparison import COSTS, Comparison
from sympformer.studies.compare.grid import Outcome, outcome, train_cell
from sympformer.studies.compare.workers import Workers
from sympformer.studies.results.results import Results
from sympformer.studies.scoring import score
from sympformer.training.checkpoint import CheckpointFolder
from sympformer.training.trainer import Trainer
from tests.studies.compare.test_comparison import CONFIG

SMALL: dict[str, Any] = CONFIG | {
    "models": {"gpt": {"variant": "softmax-baseline"}, "exp": {"variant": "softmax-exp-euler", "lr": 8e-3}},
    "seeds": [1],
    "extend": 0,
}


class InPlace(Workers):
    """Workers that are no processes."""

    def run(self, function: Any, tasks: Any) -> Any:
        for i, task in enumerate(tasks):
            yield i, function(*task)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A finished comparison of two models, one seed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SYMPFORMER_CACHE", str(tmp_path_factory.mktemp("cache")))
        patch.setattr("sympformer.studies.compare.workers.Workers", InPlace)
        folder = tmp_path_factory.mktemp("whole")
        (folder / "small.yaml").write_text(yaml.safe_dump(SMALL, sort_keys=False))
        assert main(["compare", str(folder / "small.yaml"), "--out", str(folder / "out")]) == 0
        yield folder / "out"


def last_losses(folder: Path) -> list[Any]:
    return [model.last for model in Results.load(folder / "results.json").models]


def again(folder: Path) -> int:
    return main(["compare", str(folder / "compare.yaml"), "--out", str(folder)])


def test_a_kill_between_the_last_line_of_metrics_and_the_last_checkpoint(whole: Path, tmp_path: Path) -> None:
    """What `outcome` sees then: all metrics, and the checkpoint of two steps before."""
    out = tmp_path / "out"
    shutil.copytree(whole, out)
    for run in out.glob("runs/*/*"):
        kept = CheckpointFolder(run / "checkpoints")
        assert len(kept.steps("step")) == 2
        shutil.rmtree(run / "checkpoints" / f"step-{kept.steps('step')[-1]:08d}")
        (run / "score.json").unlink(missing_ok=True)
    comparison = Comparison.open(out)
    cells = comparison.config.choosing_cells({}, {})
    assert [outcome(out, cell, 4) for cell in cells] == [None, None]
    with pytest.raises(InputError, match="half-finished"):
        comparison.finished()
    assert again(out) == 0
    assert last_losses(out) == last_losses(whole)


def test_a_damaged_last_checkpoint_is_made_again(whole: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    shutil.copytree(whole, out)
    run = out / "runs/exp/final-seed1"
    weights = run / "checkpoints/step-00000006/model.safetensors"
    before = weights.read_bytes()
    weights.write_bytes(before[:-1] + bytes([before[-1] ^ 1]))
    assert again(out) == 0
    assert weights.read_bytes() == before
    assert last_losses(out) == last_losses(whole)


def test_a_rate_without_a_number_does_not_hide_the_others(whole: Path) -> None:
    comparison = Comparison.open(whole)
    nan = float("nan")
    tried = {4e-3: Outcome(nan, 1.0), 8e-3: Outcome(5.34, 1.0)}
    assert comparison._rates({"gpt": tried})["gpt"] == 8e-3
    assert "gpt" not in comparison._rates({"gpt": {4e-3: Outcome(nan, 1.0), 8e-3: Outcome(float("inf"), 1.0)}})


def test_a_run_that_is_no_number_withholds_nobody_elses_results(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    original = Trainer._score

    def score(self: Trainer) -> Any:
        evaluation = original(self)
        bad = self.model.cfg.architecture == "sympformer" and self.progress.step == 6
        return replace(evaluation, loss=float("nan")) if bad else evaluation

    out = tmp_path / "out"
    monkeypatch.setattr(Trainer, "_score", score)
    assert main(["compare", str(whole.parent / "small.yaml"), "--out", str(out)]) == 0
    gpt, exp = Results.load(out / "results.json").models
    assert (gpt.rank, gpt.last) == (1, last_losses(whole)[0])
    assert exp.last is None
    assert [why[:45] for why in exp.diverged] == ["the validation loss is not finite at step 6; "]


def test_weights_that_are_no_numbers_on_test_data(whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "out"
    shutil.copytree(whole, out)
    (out / "runs/exp/final-seed1/score.json").unlink()
    monkeypatch.setattr(score, "_test", lambda *args: {"loss": float("nan")})
    assert again(out) == 0
    gpt, exp = Results.load(out / "results.json").models
    assert gpt.last == last_losses(whole)[0]
    assert (exp.last, exp.rank) == (None, None)
    assert "on test data is not finite" in exp.diverged[0]


def test_older_weights_are_named(whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = []
    for name in ("gpt", "exp"):
        runs.append(str(tmp_path / name))
        shutil.copytree(whole / f"runs/{name}/final-seed1", tmp_path / name)
        (tmp_path / name / "score.json").unlink()
    (tmp_path / "exp/checkpoints/step-00000006/state.json").write_text("{}")
    assert main(["report", *runs, "--out", str(tmp_path / "r.html")]) == 0
    assert "Scored with older weights: checkpoint" in " ".join(capsys.readouterr().out.split())
    assert "Scored with older weights: checkpoint" in (tmp_path / "r.html").read_text()


def test_a_score_of_other_checkpoints_or_a_damaged_one_is_made_again(whole: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(whole / "runs/exp/final-seed1", run)
    assert score.kept_score(run) is not None
    kept = json.loads((run / "score.json").read_text())
    kept["last"]["loss"] -= 1
    (run / "score.json").write_text(json.dumps(kept))
    assert score.kept_score(run) is None
    shutil.copy(whole / "runs/exp/final-seed1/score.json", run)
    shutil.rmtree(run / "checkpoints/step-00000006")
    assert score.kept_score(run) is None


def test_costs_are_protected(whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    shutil.copytree(whole, out)
    costs = json.loads((out / COSTS).read_text())
    costs["tokens_per_second"]["exp"] *= 2
    (out / COSTS).write_text(json.dumps(costs))
    assert again(out) == 2
    assert "costs.json has changed since it was written" in capsys.readouterr().err


def test_two_at_work_on_one_comparison(whole: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Comparison.open(whole).lock():
        assert again(whole) == 2
    assert "another process is at work on the comparison" in capsys.readouterr().err
    assert train_cell.__module__ == "sympformer.studies.compare.grid"  # found by name in a worker


@pytest.mark.parametrize("name", ["$x^{", "a[/]b", "c\x07\x1b[2J", "d&<e>", "e\\frac{"])
def test_names_of_runs_are_text(name: str, whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for run in ("gpt", name):
        shutil.copytree(whole / "runs/gpt/final-seed1", tmp_path / run)
    assert main(["report", str(tmp_path / "gpt"), str(tmp_path / name), "--out", str(tmp_path / "r.html")]) == 0
    page = (tmp_path / "r.html").read_text()
    assert "<e>" not in page
    assert "\x1b" not in page + capsys.readouterr().out
