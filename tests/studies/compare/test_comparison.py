"""A whole comparison, tiny: its runs, resumes, scores and outputs; and what happens when something is amiss."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from sympformer.cli import main
from sympformer.data import BlockSampler, open_tokens
from sympformer.files import locked
from sympformer.models import variant
from sympformer.provenance import this_code
from sympformer.studies.compare import steps
from sympformer.studies.compare.records import Run, thinned
from sympformer.studies.results.results import Results
from sympformer.studies.scoring import score
from sympformer.training.config import TrainConfig
from sympformer.training.engine import Engine
from sympformer.training.folder import TIMED
from sympformer.training.trainer import Trainer
from tests.studies.conftest import CONFIG, GPT, SYMP, write

pytestmark = pytest.mark.usefixtures("in_this_process")
MODELS = ["gpt-tied", "gpt-untied", "symp-tied", "symp-untied", "deep"]


def again(folder: Path, *options: str) -> int:
    return main(["compare", str(folder / "compare.yaml"), "--out", str(folder), *options])


def models_in(folder: Path) -> dict[str, Any]:
    return {model.name: model for model in Results.load(folder / "results.json").models}


def losses(folder: Path) -> dict[str, list[float]]:
    return {name: model.last.values for name, model in models_in(folder).items() if model.last is not None}


def times(folder: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in folder.glob("runs/*/*/metrics.jsonl")}


def metrics(folder: Path) -> dict[str, list[dict[str, Any]]]:
    runs = [Run(path.parent) for path in folder.glob("runs/*/*/metrics.jsonl")]
    return {
        str(run.path.relative_to(folder)): [{k: v for k, v in row.items() if k not in TIMED} for row in run.metrics()]
        for run in runs
    }


# --- what is there


def test_everything_is_there(finished: Path) -> None:
    names = {path.name for path in finished.iterdir()}
    assert {"compare.yaml", "steps.json", "results.json", "table.csv", "table.md", "table.tex", "report.html"} <= names
    results, here = Results.load(finished / "results.json"), this_code()
    assert [model.name for model in results.models] == MODELS
    assert sorted(model.rank or 0 for model in results.models) == [1, 2, 3, 4, 5]
    for model in results.models:
        assert model.passed
        assert model.last is not None
        assert len(model.last.values) == len(model.curves) == 2
        assert model.tokens_per_second
        assert model.memory_mb is not None
        assert model.curves[0].tokens[-1] == 6 * 4 * 16
        assert model.samples[0]["prompt"] == "One day"
        assert model.probes
        assert (model.difference is None) == (model.name == "gpt-tied")
        assert model.difference is None or model.difference.p_holm is not None
        assert model.code == [here.label]
    assert results.environment["runs"] == [here.to_dict()]
    assert all(cost["code"] == here.to_dict() for cost in json.loads((finished / "steps.json").read_text()).values())
    gpt, deep = results.models[0], results.models[-1]
    assert set(deep.rates) == {"0.004", "0.008", "0.016"}
    assert deep.lr == float(min(deep.rates, key=lambda rate: deep.rates[rate] or 1e9))
    assert (gpt.rates, gpt.lr) == ({}, 8e-3)
    assert (deep.parent, deep.changes) == ("gpt-tied", ["n_layer 2 → 3"])
    assert deep.to_parent is not None
    assert len(deep.layers) == 3
    assert {"h_x", "h_y", "momentum_rms"} <= set(results.models[2].layers[0])
    # the effects are those of the cells
    loss, first = losses(finished), results.effects[0]
    pairs = [("symp-tied", "gpt-tied"), ("symp-untied", "gpt-untied")]
    by_seed = [sum(loss[mine][seed] - loss[other][seed] for mine, other in pairs) / 2 for seed in (0, 1)]
    assert (first.factors, first.levels, first.pairs) == (["dynamics"], ["symp"], 2)
    assert first.difference is not None
    assert first.difference.mean == pytest.approx(sum(by_seed) / 2)
    assert results.factors == {"dynamics": ["gpt", "symp"], "head": ["tied", "untied"]}


def test_test_loss_is_that_of_the_test_split(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["eval", str(finished / "runs/symp-tied/final-seed1"), "--split", "test", "--which", "last"]) == 0
    assert f"{losses(finished)['symp-tied'][0]:.4f} nats per token" in capsys.readouterr().out


def test_models_of_a_seed_see_the_same_batches(finished: Path) -> None:
    starts = []
    for name in MODELS:
        config = Run(finished / f"runs/{name}/final-seed2").config
        sampler = BlockSampler(open_tokens(config.data).tokens("train"), 16, config.global_batch(), config.seed)
        starts.append([sampler.starts(step).tolist() for step in range(6)])
    assert all(one == starts[0] for one in starts)


# --- going on


def test_again_trains_nothing_and_models_and_seeds_may_be_added(copy: Path, tmp_path: Path, capsys: Any) -> None:
    """The list of the same models goes on with what the factors began, another reference only reads it anew."""
    before, steps_before = times(copy), json.loads((copy / "steps.json").read_text())
    assert len(before) == 3 + 10
    listed = {"gpt-tied": GPT, "symp-tied": SYMP, "symp-untied": SYMP | {"tie_head": False}, "new": SYMP | {"mu": 0.0}}
    more = write(tmp_path / "more", factors={}, models=listed, seeds=[1, 2, 3], reference="symp-tied")
    assert main(["compare", more, "--out", str(copy)]) == 0
    assert before.items() <= times(copy).items()  # trained once
    added = {str(path.parent.relative_to(copy)) for path in times(copy).keys() - before.keys()}
    assert added == {"runs/new/final-seed1", "runs/new/final-seed2"} | {f"runs/{n}/final-seed3" for n in listed}
    steps_after = json.loads((copy / "steps.json").read_text())
    assert steps_after.keys() - steps_before.keys() == {"new"}  # measured; the others keep their figures
    assert steps_before.items() <= steps_after.items()
    said = capsys.readouterr().err
    assert "training: 6 of 12 are done already" in said
    assert "training 12/12  " in said
    results = Results.load(copy / "results.json")
    assert (results.against, results.seeds) == ("symp-tied", [1, 2, 3])
    changed = write(tmp_path / "less", reference="symp-tied", families={"heads": ["gpt-untied"]})
    assert main(["compare", changed, "--out", str(copy)]) == 0
    differences = {name: model.difference for name, model in models_in(copy).items()}
    assert differences["symp-tied"] is None
    alone = differences["gpt-untied"]
    assert alone.p_holm == alone.p  # a family of one
    assert len(times(copy)) == len(before) + len(added)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"budget": {"steps": 7}}, "steps"),
        ({"common": CONFIG["common"] | {"batch_size": 2}}, "batch_size"),
        ({"models": {"deep": CONFIG["models"]["deep"] | {"n_layer": 1}}}, "model"),
        ({"models": {"deep": CONFIG["models"]["deep"] | {"lr": 0.5}}}, "lr"),
    ],
)
def test_other_settings_need_another_folder(
    changes: dict[str, Any], named: str, copy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = (copy / "compare.yaml").read_text()
    assert main(["compare", write(tmp_path / "other", **changes), "--out", str(copy)]) == 2
    assert f"holds a run with other settings ({named})" in capsys.readouterr().err
    assert named == "lr" or (copy / "compare.yaml").read_text() == before


def kill_before_the_last_checkpoint(copy: Path) -> None:
    for run in copy.glob("runs/*/*"):
        shutil.rmtree(sorted(run.glob("checkpoints/step-*"))[-1])
        (run / "score.json").unlink(missing_ok=True)


def damage_the_last_checkpoint(copy: Path) -> None:
    weights = copy / "runs/symp-tied/final-seed1/checkpoints/step-00000006/model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"x")


def damage_a_score(copy: Path) -> None:
    score = copy / "runs/deep/final-seed1/score.json"
    score.write_text(score.read_text()[:-5])


@pytest.mark.parametrize("harm", [kill_before_the_last_checkpoint, damage_the_last_checkpoint, damage_a_score])
def test_what_is_missing_or_damaged_is_made_again(harm: Callable[[Path], None], copy: Path, finished: Path) -> None:
    """A kill comes between the last line of metrics and the last checkpoint, too."""
    harm(copy)
    assert again(copy) == 0
    assert losses(copy) == losses(finished)
    assert metrics(copy) == metrics(finished)
    for file in finished.glob("runs/*/final*/checkpoints/*/model.safetensors"):
        assert (copy / file.relative_to(finished)).read_bytes() == file.read_bytes()
    assert score.kept_score(copy / "runs/deep/final-seed1") is not None
    shutil.rmtree(copy / "runs/deep/final-seed1/checkpoints/step-00000006")
    assert score.kept_score(copy / "runs/deep/final-seed1") is None  # it is of other checkpoints than are there


@pytest.mark.slow
def test_stopped_and_taken_up_again(finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """SIGTERM to the command with real children; the same command then ends where an uninterrupted one does."""
    config, out = write(tmp_path, factors={}, models={"gpt-tied": GPT, "symp-tied": SYMP}, seeds=[2]), tmp_path / "out"
    out.mkdir()
    shutil.copy(config, out / "compare.yaml")
    measured = json.loads((finished / "steps.json").read_text())  # of one of the models: the other's steps are missing
    (out / "steps.json").write_text(json.dumps({"gpt-tied": measured["gpt-tied"]}))
    command = [sys.executable, "-m", "sympformer", "compare", config, "--out", str(out), "--jobs", "2"]
    one_thread = os.environ | {"OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=one_thread)
    waited = time.monotonic()
    while not list(out.glob("runs/*/*/metrics.jsonl")) and time.monotonic() - waited < 300:
        assert process.poll() is None, process.stderr.read() if process.stderr else ""
        time.sleep(0.02)
    process.send_signal(signal.SIGTERM)
    _, error = process.communicate(timeout=120)
    assert process.returncode == 143, error
    assert "Traceback" not in error
    assert main(["report", str(out)]) == 2
    assert "is half-finished: go on with" in capsys.readouterr().err
    assert main(["compare", config, "--out", str(out)]) == 0
    assert metrics(out).items() <= metrics(finished).items()
    assert losses(out) == {name: losses(finished)[name][1:] for name in ("gpt-tied", "symp-tied")}


def test_two_at_work_on_one_comparison(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with locked(copy / "compare.yaml"):
        assert again(copy) == 2
    assert "another process is at work on the comparison" in capsys.readouterr().err


# --- what must not be reported


@pytest.mark.parametrize("where", ["training", "test data"])
def test_a_diverged_run_counts_as_no_figure(where: str, copy: Path, finished: Path, monkeypatch: Any) -> None:
    run, why = copy / "runs/symp-tied/final-seed2", "the loss is not finite at step 3"
    if where == "training":
        (run / "diverged.json").write_text(json.dumps({"why": why, "seconds": 1.0}))
    else:
        (run / "score.json").unlink()
        monkeypatch.setattr(score, "_test", lambda *args: {"loss": float("nan")})
    assert again(copy) == 0
    model = models_in(copy)["symp-tied"]
    assert (model.last, model.rank) == (None, None)
    assert model.diverged[0] == why if where == "training" else "on test data is not finite" in model.diverged[0]
    assert losses(copy)["gpt-tied"] == losses(finished)["gpt-tied"]
    assert Results.load(copy / "results.json").effects[0].pairs == 1


def test_a_run_that_is_no_number_withholds_nobody_elses_results(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = Trainer._score

    def scored(self: Trainer) -> Any:
        evaluation = original(self)
        bad = self.model.cfg.n_layer == 3 and (self.progress.step == 6 or self.config.lr == 4e-3)
        return replace(evaluation, loss=float("nan")) if bad else evaluation

    monkeypatch.setattr(Trainer, "_score", scored)
    few = write(tmp_path, factors={}, models={"gpt-tied": GPT, **CONFIG["models"]}, extend=0, seeds=[1])
    assert main(["compare", few, "--out", str(tmp_path / "out")]) == 0
    gpt, deep = models_in(tmp_path / "out").values()
    assert gpt.rank == 1
    assert gpt.last.values == losses(finished)["gpt-tied"][:1]
    assert (deep.rates["0.004"], deep.lr, deep.last) == (None, 8e-3, None)
    assert [why[:45] for why in deep.diverged] == ["the validation loss is not finite at step 6; "]


def test_a_failed_audit_is_not_ranked(copy: Path) -> None:
    file = copy / "runs/symp-tied/final-seed1/score.json"
    failed = json.loads(file.read_text())
    failed["audit"]["passed"] = failed["audit"]["rows"][0]["passed"] = False
    failed["audit"]["rows"][0]["deviation"] = "inf"  # as a check that raised has it
    file.write_text(json.dumps(failed))
    assert again(copy) == 0
    results = Results.load(copy / "results.json")
    model = models_in(copy)["symp-tied"]
    assert (model.passed, model.rank) == (False, None)
    assert model.last is not None  # listed all the same
    assert results.ranked()[-1].name == "symp-tied"
    assert model.difference.p_holm is None  # it is in no family


def test_runs_of_two_codes_are_compared_and_said(copy: Path) -> None:
    """Also where one of them has only chosen a rate."""
    file = copy / "runs/deep/choose-lr0.004-seed0/run.json"
    record = json.loads(file.read_text())
    record["codes"] = [{"sympformer": "0.0.9", "source": "0123456789abcdef", "commit": "fedcba987654"}]
    file.write_text(json.dumps(record))
    assert again(copy) == 0
    results = Results.load(copy / "results.json")
    assert results.notes[0].startswith("The runs were made by different code")
    assert "0.0.9 (01234567) of commit fedcba987654" in results.notes[0]
    assert models_in(copy)["deep"].code == ["0.0.9 (01234567)", this_code().label]
    assert models_in(copy)["gpt-tied"].code == [this_code().label]


def test_a_preset_that_has_changed_since_changes_no_figure(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = {name: model.parameters for name, model in models_in(copy).items()}
    from sympformer.nn.presets import STARTS

    for key, starts in STARTS.items():
        monkeypatch.setitem(STARTS, key, starts | {"mlp_ratio": 2})
    assert again(copy) == 0
    assert {name: model.parameters for name, model in models_in(copy).items()} == before


# --- equal seconds


def test_equal_seconds_are_measured_once_and_the_same_after_a_stop(tmp_path: Path, monkeypatch: Any) -> None:
    """Another comparison with the same measurement, never interrupted, ends where the stopped one does."""
    models = {"gpt": {"variant": "softmax-baseline"}, "deep": {"parent": "gpt", "n_layer": 6, "lr": 8e-3}}
    config = write(
        tmp_path, factors={}, models=models, baseline="gpt", lr=[4e-3, 8e-3], extend=0, seeds=[1],
        choose={"steps": 1, "seconds_of": "deep"}, budget={"tokens": 40 * 4 * 16, "seconds_of": "deep"},
        common=CONFIG["common"] | {"eval_every": 20},
    )  # fmt: skip
    out, whole, original = tmp_path / "out", tmp_path / "whole", Trainer.step

    def stopping(self: Trainer, step: int) -> None:
        if step == 30:
            raise KeyboardInterrupt
        original(self, step)

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "step", stopping)
        assert main(["compare", config, "--out", str(out)]) == 130
    measured = (out / "steps.json").read_text()
    seconds = {name: cost["seconds"] for name, cost in json.loads(measured).items()}
    assert seconds["deep"] > seconds["gpt"]
    monkeypatch.setattr("sympformer.studies.compare.steps.time_steps", None)  # nobody measures again
    assert main(["compare", config, "--out", str(out)]) == 0
    assert (out / "steps.json").read_text() == measured
    whole.mkdir()
    for name in ("steps.json", "compare.yaml"):
        shutil.copy(out / name, whole)
    assert main(["compare", config, "--out", str(whole)]) == 0
    assert metrics(out) == metrics(whole)
    # the model that the seconds are of has its tokens, the other as many steps as fit into them
    final = {name: round(40 * seconds["deep"] / seconds[name]) for name in models}
    assert final["deep"] == 40 < final["gpt"]
    results = Results.load(out / "results.json")
    assert results.budget == "the seconds that deep needs for 2,560 tokens"
    assert any(f"made the seconds into steps: gpt {final['gpt']:,}, deep 40." in note for note in results.notes)
    assert [model.tokens for model in results.models] == [final[name] * 64 for name in models]
    assert results.models[0].tokens_per_second == pytest.approx(64 / seconds["gpt"])


@pytest.mark.parametrize(("threads", "clock"), [(1, "CPU time"), (2, "wall-clock time")])
def test_a_step_is_measured_as_a_run_makes_it(threads: int, clock: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With its passes, its precision and its clock."""
    passes: list[Any] = []
    original = Engine.loss

    def loss(self: Engine, inputs: Any, targets: Any) -> Any:
        passes.append((self.half, len(inputs)))
        return original(self, inputs, targets)

    monkeypatch.setattr(Engine, "loss", loss)
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    config = TrainConfig(batch_size=3, accumulate=2, precision="bfloat16")
    cfg = variant("softmax-baseline", n_layer=1, n_head=2, d_model=8, block_size=8, vocab_size=64)
    found = steps.time_steps(config, cfg)
    assert (len(found["seconds"]), found["threads"], found["clock"]) == (steps.STEPS, threads, clock)
    assert passes == [(torch.bfloat16, 3)] * 2 * (2 + steps.STEPS)  # two steps warm up
    assert steps.weigh_step(config, cfg)["memory_mb"] >= 0


# --- the command


def test_the_plan_is_shown_and_nothing_made(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    factors = CONFIG["factors"] | {"table": {"none": {}, "start": {"start_momentum": "embedded"}}}
    match = {"parent": "gpt-tied-none", "lr": [4e-3, 8e-3], "match": {"parameters": "symp-tied-start", "by": "d_model"}}
    asked = write(tmp_path, factors=factors, models={"wide": match}, baseline="gpt-tied-none")
    assert main(["compare", asked, "--out", str(tmp_path / "out"), "--plan"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert not (tmp_path / "out").exists()
    assert "symp-untied-start" in shown
    assert "wide has d_model = " in shown
    assert "parameters are nearest to the" in shown
    assert "Refused: gpt-tied-start, gpt-untied-start: start_momentum = 'embedded' has no effect with" in shown
    assert "2 runs choose the rates, and more where one is the outermost: 4 steps." in shown
    assert "14 runs are reported: 6 steps." in shown


@pytest.mark.parametrize(
    ("data", "why"),
    [
        ({"corpus": "storybook:200"}, "has no test split: give common.data.test a share"),
        (CONFIG["common"]["data"], "exists and is left alone"),
    ],
)
def test_refusals(data: dict[str, Any], why: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    if "test" in data:
        out.mkdir()
        (out / "file").touch()
    assert main(["compare", write(tmp_path, common=CONFIG["common"] | {"data": data}), "--out", str(out)]) == 2
    assert why in capsys.readouterr().err
    assert not (out / "compare.yaml").exists()


# --- runs side by side: what is compared, what is refused, what a table says of their weights, codes and names


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


def test_a_comparison_is_reported_from_its_results_alone(finished: Path, tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    shutil.copy(finished / "results.json", tmp_path / "kept")
    assert main(["report", str(tmp_path / "kept")]) == 0
    for name in ("table.md", "table.csv", "table.tex", "effects.md"):
        assert (tmp_path / "kept" / name).read_text() == (finished / name).read_text()
    assert main(["report", str(finished), "--out", str(tmp_path / "page.html")]) == 0
    assert "symp-tied" in (tmp_path / "page.html").read_text()


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["missing"], "missing does not exist"),
        (["."], "holds no run"),
        (["gpt-tied", "gpt-tied"], "a run is named twice"),
        (["gpt-tied", "symp-tied", "--baseline", "gtp-tied"], "did you mean 'gpt-tied'"),
    ],
)
def test_refusals_of_reports(
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
