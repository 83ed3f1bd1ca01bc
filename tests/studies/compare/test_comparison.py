"""A whole comparison, tiny: grid, resume, scores, outputs; and what happens when something is amiss."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from sympformer.cli import main
from sympformer.errors import InputError
from sympformer.studies.compare.comparison import Comparison
from sympformer.studies.compare.grid import DIVERGED, outcome
from sympformer.studies.compare.plan import Cell
from sympformer.studies.compare.workers import Workers
from sympformer.studies.results.results import Results
from sympformer.training.metrics import TIMED, read_metrics

SIZE = {"preset": "tuned", "n_layer": 2, "n_head": 2, "d_model": 16, "block_size": 32}
CONFIG: dict[str, Any] = {
    "baseline": "gpt",
    "models": {
        "gpt": {"variant": "softmax-baseline"},
        "exp": {"variant": "softmax-exp-euler", "lr": 8e-3},
        "linear": {"variant": "linear-presymp-euler", "lr": 8e-3},
    },
    "lr": [4e-3, 8e-3],
    "extend": 1,  # at four steps the larger rate is the better one: a third follows
    "choose": {"steps": 4},
    "budget": {"steps": 6},
    "seeds": [1, 2],
    "common": {
        "model": SIZE,
        "data": {"corpus": "storybook:300", "tokenizer": "bpe:300", "validation": 0.1, "test": 0.1},
        "batch_size": 4,
        "warm_up": 2,
        "eval_every": 3,
        "eval_tokens": 1000,
        "checkpoint_every": 2,
    },
}


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SYMPFORMER_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


def write(folder: Path, **changes: Any) -> Path:
    file = folder / "small.yaml"
    file.write_text(yaml.safe_dump(CONFIG | changes, sort_keys=False))
    return file


@pytest.fixture(scope="module")
def finished(cache: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a finished comparison."""
    folder = tmp_path_factory.mktemp("compare")
    assert main(["compare", str(write(folder)), "--out", str(folder / "out"), "--jobs", "2"]) == 0
    return folder / "out"


def test_everything_is_there(finished: Path) -> None:
    names = {path.name for path in finished.iterdir()}
    assert {"compare.yaml", "costs.json", "results.json", "table.csv", "table.md", "table.tex", "report.html"} <= names
    results = Results.load(finished / "results.json")
    assert [model.name for model in results.models] == ["gpt", "exp", "linear"]
    assert sorted(model.rank or 0 for model in results.models) == [1, 2, 3]
    gpt, exp, _ = results.models
    assert set(gpt.rates) == {"0.004", "0.008", "0.016"}
    assert gpt.lr == float(min(gpt.rates, key=lambda rate: gpt.rates[rate] or 1e9))
    assert gpt.difference is None
    assert exp.difference is not None
    assert exp.difference.low is not None
    for model in results.models:
        assert model.passed
        assert model.last is not None
        assert len(model.last.values) == 2
        assert model.tokens_per_second
        assert model.tokens_per_second > 0
        assert model.memory_mb is not None
        assert len(model.curves) == 2
        assert model.curves[0].tokens[-1] == 6 * 4 * 32
        assert model.samples[0]["prompt"] == "One day"
        assert model.probes
    assert len(exp.layers) == 2
    assert {"h_x", "h_y", "momentum_rms"} <= set(exp.layers[0])


def test_test_loss_is_that_of_the_test_split(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = Results.load(finished / "results.json").models[1]
    assert main(["eval", str(finished / "runs/exp/final-seed1"), "--split", "test", "--which", "last"]) == 0
    assert model.last is not None
    assert f"{model.last.values[0]:.4f} nats per token" in capsys.readouterr().out


def test_models_of_a_seed_see_the_same_batches(finished: Path) -> None:
    from sympformer.data import BlockSampler
    from sympformer.training.choices import open_data
    from sympformer.training.config import load_config

    starts = []
    for name in ("gpt", "exp", "linear"):
        config = load_config(finished / f"runs/{name}/final-seed2/config.yaml")
        sampler = BlockSampler(open_data(config.data).tokens("train"), 32, config.global_batch(), config.seed)
        starts.append([sampler.starts(step).tolist() for step in range(6)])
    assert starts[0] == starts[1] == starts[2]


def test_again_trains_nothing(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = {path: path.stat().st_mtime_ns for path in finished.glob("runs/*/*/metrics.jsonl")}
    assert len(before) == 9
    assert main(["compare", str(finished / "compare.yaml"), "--out", str(finished)]) == 0
    assert {path: path.stat().st_mtime_ns for path in finished.glob("runs/*/*/metrics.jsonl")} == before
    assert "exp" in capsys.readouterr().out


def test_report_of_a_comparison_and_of_runs_with_a_page_for_each_model(finished: Path, tmp_path: Path) -> None:
    assert main(["report", str(finished), "--out", str(tmp_path / "a" / "report.html"), "--watch"]) == 0
    runs = [str(finished / f"runs/{name}/final-seed1") for name in ("gpt", "exp")]
    assert main(["report", *runs, "--out", str(tmp_path / "b" / "report.html"), "--watch"]) == 0
    linked = {}
    for place in ("a", "b"):
        text = (tmp_path / place / "report.html").read_text()
        assert "exp" in text
        assert "Watch their tokens move: " in text
        linked[place] = re.findall(r'<a href="(watch-[^"]+)">', text)
        pages = [(tmp_path / place / name).read_text() for name in linked[place]]
        texts = {found for page in pages for found in re.findall("<q><bdi>(.*?)</bdi></q>", page, re.DOTALL)}
        assert len(texts) == 1  # the same held-out text for all
        assert len(texts.pop()) > 20
        assert {path.name for path in (tmp_path / place).iterdir()} == {"report.html", *linked[place]}
    assert linked["a"] == ["watch-1-gpt.html", "watch-2-exp.html", "watch-3-linear.html"]
    assert linked["b"] == ["watch-1-gpt-final-seed1.html", "watch-2-exp-final-seed1.html"]
    assert not [path for path in finished.iterdir() if path.name.startswith("watch-")]
    assert "Watch their tokens" not in (finished / "report.html").read_text()


def test_other_settings_need_another_folder(finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = write(tmp_path, budget={"steps": 7})
    assert main(["compare", str(file), "--out", str(finished)]) == 2
    assert "holds another comparison" in capsys.readouterr().err


def test_a_changed_run_is_not_taken_for_the_one_asked_for(finished: Path) -> None:
    comparison = Comparison.open(finished)
    cell = next(comparison.config.final_cells({"exp": 8e-3}, {}))
    other = Cell(cell.model, cell.stage, cell.lr, cell.seed, cell.config.replace(warm_up=3))
    assert outcome(finished, cell, 6) is not None
    with pytest.raises(InputError, match="warm_up"):
        outcome(finished, other, 6)


def test_a_diverged_run_counts_as_no_figure(finished: Path) -> None:
    comparison = Comparison.open(finished)
    marker = finished / "runs/linear/final-seed2" / DIVERGED
    marker.write_text(json.dumps({"why": "the loss is not finite at step 3", "seconds": 1.0}))
    try:
        with Workers(1) as workers:
            results = comparison.results(comparison.finished(), workers)
    finally:
        marker.unlink()
    linear = results.models[2]
    assert linear.diverged == ["the loss is not finite at step 3"]
    assert linear.last is None
    assert linear.rank is None
    assert results.models[0].rank in (1, 2)


def test_a_failed_audit_is_not_ranked(finished: Path) -> None:
    comparison = Comparison.open(finished)
    score = finished / "runs/exp/final-seed1/score.json"
    before = score.read_text()
    failed = json.loads(before)
    del failed["seal"]
    failed["audit"]["passed"] = failed["audit"]["rows"][0]["passed"] = False
    score.write_text(json.dumps(failed))
    try:
        with Workers(1) as workers:
            results = comparison.results(comparison.finished(), workers)
    finally:
        score.write_text(before)
    exp = results.models[1]
    assert not exp.passed
    assert exp.rank is None
    assert exp.last is not None  # listed all the same
    assert results.ranked()[-1].name == "exp"


def test_half_finished(cache: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from sympformer.studies.compare.budgets import Budget
    from sympformer.studies.compare.plan import CompareConfig
    from sympformer.training import TrainConfig

    values = CONFIG | {"common": TrainConfig.from_dict(CONFIG["common"])}
    values |= {name: Budget(**CONFIG[name]) for name in ("choose", "budget")}
    Comparison.create(tmp_path / "out", CompareConfig(**values))
    assert main(["report", str(tmp_path / "out")]) == 2
    error = capsys.readouterr().err
    assert "half-finished" in error
    assert "2 of the 2 runs" in error


@pytest.mark.parametrize("argument", ["missing", "."])
def test_no_comparison_there(argument: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(tmp_path / argument)]) == 2
    assert "sympformer" in capsys.readouterr().err


def test_different_tokenizers(finished: Path, cache: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = ["--data.corpus=storybook:300", "--data.tokenizer=byte", "--data.validation=0.1", "--data.test=0.1"]
    model = [f"--model.{name}={value}" for name, value in SIZE.items()]
    run = str(tmp_path / "byte")
    assert main(["train", *data, *model, "--steps=2", "--batch_size=2", "--eval_tokens=500", f"--out={run}"]) == 0
    other = str(finished / "runs/gpt/final-seed1")
    capsys.readouterr()
    assert main(["report", other, run, "--out", str(tmp_path / "r.html")]) == 2
    error = capsys.readouterr().err
    assert "different tokenizers" in error
    assert "--metric bits_per_byte" in error
    assert not (tmp_path / "r.html").exists()
    assert main(["report", other, run, "--metric", "bits_per_byte", "--out", str(tmp_path / "r.html")]) == 0
    assert (tmp_path / "r.html").exists()


def test_no_test_split(cache: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    common = CONFIG["common"] | {"data": {"corpus": "storybook:300", "tokenizer": "bpe:300"}}
    assert main(["compare", str(write(tmp_path, common=common)), "--out", str(tmp_path / "out")]) == 2
    assert "common.data.test" in capsys.readouterr().err


def test_stopped_and_taken_up_again(finished: Path, cache: None, tmp_path: Path) -> None:
    """SIGTERM in the middle of the grid; the same command then ends where an uninterrupted one does."""
    command = [sys.executable, "-m", "sympformer", "compare", str(write(tmp_path)), "--out", str(tmp_path / "out")]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=os.environ)
    waited = time.monotonic()
    while not list((tmp_path / "out").glob("runs/*/*/metrics.jsonl")) and time.monotonic() - waited < 120:
        assert process.poll() is None, process.stderr.read() if process.stderr else ""
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    _, error = process.communicate(timeout=120)
    assert process.returncode == 143, error
    assert "Traceback" not in error
    with pytest.raises(InputError, match="half-finished"):
        Comparison.open(tmp_path / "out").finished()
    assert main(command[3:]) == 0
    for path in finished.glob("runs/*/*"):
        mine, theirs = (
            [
                {k: v for k, v in row.items() if k not in TIMED}
                for row in read_metrics(root / path.relative_to(finished))
            ]
            for root in (finished, tmp_path / "out")
        )
        assert mine == theirs, path.name
