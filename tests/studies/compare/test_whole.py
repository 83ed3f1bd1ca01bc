"""Whole comparisons, tiny: a factorial in a folder that a list of models began, and equal seconds, killed half-way."""

import csv
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from sympformer.cli import main
from sympformer.machine import usable_cores
from sympformer.models import variant
from sympformer.studies.compare import calibration, comparison
from sympformer.studies.compare.budgets import Budget
from sympformer.studies.compare.comparison import CALIBRATION, Comparison
from sympformer.studies.results.results import Results
from sympformer.training.config import TrainConfig, load_config
from sympformer.training.metrics import TIMED, read_metrics
from tests.studies.compare.test_damage import InPlace

DATA = {"corpus": "storybook:200", "tokenizer": "byte", "validation": 0.1, "test": 0.1}
COMMON: dict[str, Any] = {
    "model": {"n_layer": 1, "n_head": 2, "d_model": 8, "block_size": 16},
    "data": DATA, "batch_size": 2, "warm_up": 1, "eval_every": 4, "eval_tokens": 300, "checkpoint_every": 2,
    "sample_tokens": 2,
}  # fmt: skip
GPT, SYMP = {"variant": "softmax-baseline", "lr": 8e-3}, {"variant": "softmax-plain-euler", "lr": 8e-3}
FACTORIAL: dict[str, Any] = {
    "baseline": "gpt-tied",
    "factors": {"dynamics": {"gpt": GPT, "symp": SYMP}, "head": {"tied": {}, "untied": {"tie_head": False}}},
    "budget": {"steps": 4},
    "seeds": [1, 2],
    "common": COMMON,
}
LISTED = {key: value for key, value in FACTORIAL.items() if key != "factors"} | {
    "models": {
        "gpt-tied": GPT,
        "gpt-untied": GPT | {"tie_head": False},
        "symp-tied": SYMP,
        "symp-untied": SYMP | {"tie_head": False},
    }
}


@pytest.fixture(autouse=True, scope="module")
def setting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SYMPFORMER_CACHE", str(tmp_path_factory.mktemp("cache")))
        patch.setattr("sympformer.studies.compare.workers.Workers", InPlace)
        patch.setattr(comparison, "memory_mb", lambda models, batch: dict.fromkeys(models, 1.0))  # a process a model
        patch.setattr("sympformer.studies.results.page.pictures", lambda results: [])  # drawn in tests of their own
        yield


def write(file: Path, values: dict[str, Any]) -> str:
    file.write_text(yaml.safe_dump(values, sort_keys=False))
    return str(file)


@pytest.fixture(scope="module")
def factorial(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Begun by a list of models with one seed, gone on with by the factors that are the same models, with two."""
    folder = tmp_path_factory.mktemp("factorial")
    listed, out = write(folder / "listed.yaml", LISTED | {"seeds": [1]}), str(folder / "out")
    assert main(["compare", listed, "--out", out]) == 0
    assert not (folder / "out/effects.md").exists()
    before = {run: run.stat().st_mtime_ns for run in folder.glob("out/runs/*/*/metrics.jsonl")}
    assert len(before) == 4
    assert main(["compare", write(folder / "factors.yaml", FACTORIAL), "--out", out]) == 0
    assert {run: run.stat().st_mtime_ns for run in before} == before  # trained once
    return folder / "out"


def test_effects_are_those_of_the_cells(factorial: Path) -> None:
    results = Results.load(factorial / "results.json")
    loss = {model.name: model.last.values for model in results.models if model.last is not None}
    assert list(loss) == list(LISTED["models"])
    by_seed = [
        (loss["symp-tied"][s] - loss["gpt-tied"][s] + loss["symp-untied"][s] - loss["gpt-untied"][s]) / 2
        for s in (0, 1)
    ]
    found = results.effects[0].difference
    assert found is not None
    assert found.mean == pytest.approx(sum(by_seed) / 2)
    assert results.factors == {"dynamics": ["gpt", "symp"], "head": ["tied", "untied"]}
    row = next(csv.DictReader(io.StringIO((factorial / "effects.csv").read_text())))
    assert (row["factor"], row["level"], row["pairs"]) == ("dynamics", "symp", "2")
    assert float(row["difference"]) == found.mean
    assert "| dynamics x head | symp, untied | gpt, tied | 1 of 1 |" in (factorial / "interactions.md").read_text()
    page = (factorial / "report.html").read_text()
    assert "Effects of the factors" in page
    assert "Interactions of two factors" in page
    assert all(model.difference.p_holm is not None for model in results.models if model.difference is not None)


def test_the_reading_may_change_and_the_runs_may_not(
    factorial: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Another reference and families: the tables are written anew. Other models, or fewer seeds: another comparison."""
    families = {"heads": ["gpt-untied"]}
    changed = FACTORIAL | {"reference": "symp-tied", "families": families}
    assert main(["compare", write(tmp_path / "a.yaml", changed), "--out", str(factorial)]) == 0
    results = Results.load(factorial / "results.json")
    assert results.against == "symp-tied"
    differences = {model.name: model.difference for model in results.models}
    assert differences.pop("symp-tied") is None
    alone = differences["gpt-untied"]
    assert alone is not None
    assert alone.p_holm == alone.p  # a family of one
    assert Comparison.open(factorial).config.reference == "symp-tied"
    assert main(["report", str(factorial)]) == 0  # reads what was noted
    capsys.readouterr()
    for values, why in ((FACTORIAL | {"seeds": [2]}, "seeds"), (LISTED | {"models": {"gpt-tied": GPT}}, "models")):
        assert main(["compare", write(tmp_path / "b.yaml", values), "--out", str(factorial)]) == 2
        assert f"holds another comparison ({why};" in capsys.readouterr().err
    assert Comparison.open(factorial).config.reference == "symp-tied"


def test_the_plan_is_shown_and_nothing_made(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    factors = FACTORIAL["factors"] | {"table": {"none": {}, "start": {"start_momentum": "embedded"}}}
    match = {"parent": "gpt-tied-none", "match": {"parameters": "symp-tied-start", "by": "d_model"}}
    values = FACTORIAL | {"factors": factors, "models": {"wide": match}, "baseline": "gpt-tied-none"}
    out = tmp_path / "out"
    assert main(["compare", write(tmp_path / "a.yaml", values), "--out", str(out), "--plan"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert not out.exists()
    assert "symp-untied-start" in shown
    assert "wide has d_model = " in shown
    assert "parameters are nearest to the" in shown
    assert "Refused: gpt-tied-start, gpt-untied-start: start_momentum = 'embedded' belongs to" in shown
    assert "14 runs are reported: 4 steps." in shown


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--models.deep.lr", "0.25"], {"deep": ("0.25", "n_layer 6"), "gpt": ("softmax-baseline",)}),
        (["--models.deep.lr=[0.5]", "--models.deep.tie_head=false"], {"deep": ("0.5", "n_layer 6", "tie_head false")}),
        (["--models.new.variant", "softmax-ab2", "--models.new.beta", "0.5"], {"new": ("softmax-ab2", "beta 0.5")}),
    ],
)
def test_one_option_of_one_model_leaves_its_others(
    options: list[str], expected: dict[str, tuple[str, ...]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compare", write(tmp_path / "a.yaml", SECONDS), "--plan", *options]) == 0
    rows = {line.split()[1]: line for line in capsys.readouterr().out.splitlines() if line.startswith("│")}
    for name, words in expected.items():
        assert all(word in rows[name] for word in words), rows[name]


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["--models.deep.lr.x", "1"], "--models.deep.lr.x: lr is no group of options"),
        (["--models.deep.lr", "[1"], "'[1' is not YAML"),
        (["--models.deep.lr"], "--models.deep.lr needs a value"),
    ],
)
def test_what_is_no_option_of_a_model(
    options: list[str], why: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compare", write(tmp_path / "a.yaml", SECONDS), "--plan", *options]) == 2
    assert why in capsys.readouterr().err


# --- changes to a parent, and equal seconds

SECONDS: dict[str, Any] = {
    "baseline": "gpt",
    "models": {
        "gpt": {"variant": "softmax-baseline"},
        "deep": {"parent": "gpt", "n_layer": 6, "lr": 8e-3},
    },
    "lr": [4e-3, 8e-3],
    "extend": 0,
    "choose": {"steps": 1, "seconds_of": "deep"},
    "budget": {"tokens": 40 * 2 * 16, "seconds_of": "deep"},
    "seeds": [1, 2],
    "common": COMMON | {"eval_every": 20},
}


def steps_in(folder: Path) -> dict[str, int | None]:
    return {str(run.relative_to(folder)): load_config(run / "config.yaml").steps for run in folder.glob("runs/*/*")}


def metrics_in(folder: Path) -> dict[str, list[dict[str, Any]]]:
    return {
        str(run.relative_to(folder)): [
            {key: value for key, value in row.items() if key not in TIMED} for row in read_metrics(run)
        ]
        for run in folder.glob("runs/*/*")
    }


def killed_half_way(config: str, out: Path) -> None:
    """Every process at once, when the second seed has begun."""
    jobs = ("--jobs", str(usable_cores()))  # a thread each, whose CPU time does not depend on who else is there
    command = [sys.executable, "-m", "sympformer", "compare", config, "--out", str(out), *jobs]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    waited = time.monotonic()
    while not (out / "runs/gpt/final-seed2/metrics.jsonl").is_file() and time.monotonic() - waited < 400:
        assert process.poll() is None
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert not (out / "results.json").exists()


@pytest.fixture
def one_thread() -> Iterator[None]:
    """As many as a worker has where there is one for every core: more of them sum in another order."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def test_equal_seconds_are_measured_once_and_the_same_after_a_kill(
    one_thread: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    config, out, whole = write(tmp_path / "a.yaml", SECONDS), tmp_path / "out", tmp_path / "whole"
    killed_half_way(config, out)
    measured = (out / CALIBRATION).read_text()
    a_step = json.loads(measured)["seconds_a_step"]
    assert a_step["deep"] > a_step["gpt"]
    monkeypatch.setattr(comparison, "time_steps", None)  # nobody measures again
    assert main(["compare", config, "--out", str(out)]) == 0
    assert (out / CALIBRATION).read_text() == measured
    # another one with the same measurement, never interrupted, ends where this one does
    whole.mkdir()
    for name in (CALIBRATION, "compare.yaml"):
        shutil.copy(out / name, whole)
    assert main(["compare", config, "--out", str(whole)]) == 0
    assert metrics_in(out) == metrics_in(whole)
    # the model that the seconds are of has its tokens, the other as many steps as fit into them
    final = Budget(tokens=40 * 2 * 16, seconds_of="deep").steps_of(a_step, 40)
    choosing = Budget(steps=1, seconds_of="deep").steps_of(a_step, 1)
    assert final["deep"] == 40 < final["gpt"] == round(40 * a_step["deep"] / a_step["gpt"])
    assert steps_in(out) == {f"runs/{name}/final-seed{seed}": final[name] for name in final for seed in (1, 2)} | {
        f"runs/gpt/choose-lr{rate}-seed0": choosing["gpt"] for rate in ("0.004", "0.008")
    }
    check_what_is_said(out, final, a_step)
    (out / CALIBRATION).write_text(measured.replace('"passes": 5', '"passes": 4'))
    capsys.readouterr()
    assert main(["compare", config, "--out", str(out)]) == 2
    assert "calibration.json has changed since it was written" in capsys.readouterr().err


def check_what_is_said(out: Path, steps: dict[str, int], a_step: dict[str, float]) -> None:
    """The table of equal seconds, and that of the change to the parent."""
    results = Results.load(out / "results.json")
    assert results.budget == "the seconds that deep needs for 1,280 tokens"
    assert any("made the seconds into steps: gpt " in note for note in results.notes)
    assert [model.tokens for model in results.models] == [steps[name] * 32 for name in ("gpt", "deep")]
    assert results.models[0].tokens_per_second == pytest.approx(32 / a_step["gpt"])
    assert "| tokens a run |" in (out / "table.md").read_text()
    deep = results.models[1]
    assert (deep.parent, deep.changes) == ("gpt", ["n_layer 1 → 6"])
    assert deep.to_parent == deep.difference  # the parent is the baseline here
    assert "| deep | gpt | n_layer 1 → 6 |" in (out / "ablation.md").read_text()


def test_a_report_before_anything_was_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    parts = {name: Budget(**SECONDS[name]) for name in ("choose", "budget")}
    values = SECONDS | parts | {"common": TrainConfig.from_dict(COMMON)}
    Comparison.create(tmp_path / "out", comparison.CompareConfig(**values))
    assert main(["report", str(tmp_path / "out")]) == 2
    assert "is half-finished: go on with" in capsys.readouterr().err


@pytest.mark.parametrize(("threads", "clock"), [(1, "CPU time"), (2, "wall-clock time")])
def test_which_clock(threads: int, clock: str, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: dict[str, Any] = {"d_model": 8, "n_head": 2, "block_size": 8, "vocab_size": 64}
    models = {name: variant("softmax-baseline", n_layer=n, **sizes) for name, n in (("a", 1), ("b", 8))}
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    config = TrainConfig(batch_size=2, accumulate=2)
    timings = {name: [calibration.time_steps(config, cfg, steps=5) for _ in range(2)] for name, cfg in models.items()}
    assert all(len(timing.seconds) == 5 for found in timings.values() for timing in found)
    found = calibration.seconds_a_step(timings)
    assert (found["threads"], found["clock"]) == (threads, clock)
    assert 0 < found["seconds_a_step"]["a"] < found["seconds_a_step"]["b"]
