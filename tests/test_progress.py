"""Progress where there is no terminal: a line at least every `INTERVAL` seconds, from anything that runs."""

import re
import sys
import time
from pathlib import Path

import pytest

from sympformer import cli, data, progress

SMALL = ["--model.n_layer", "1", "--model.d_model", "8", "--model.n_head", "1", "--model.block_size", "16"]


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Lines follow each other fast, in an empty folder."""
    monkeypatch.setenv("SYMPFORMER_INTERVAL", "0.02")
    monkeypatch.setenv("SYMPFORMER_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def lines_of(capsys: pytest.CaptureFixture[str], command: str) -> list[str]:
    pattern = rf"{command}: (.*) \(\d+ s\)"
    return [found[1] for line in capsys.readouterr().err.splitlines() if (found := re.fullmatch(pattern, line))]


def test_commands_say_what_is_under_way(quick: Path, capsys: pytest.CaptureFixture[str]) -> None:
    few = ["--log_every", "1", "--eval_tokens", "64", "--batch_size", "2", "--sample_tokens", "2"]
    prepare = ["data", "prepare", "--corpus", "storybook:3000", "--tokenizer", "byte", "--out", "d"]
    trained = ["train", *SMALL, "--data.folder", "d", "--steps", "20", *few, "--out", "r"]
    flow = ["flow", "--dim", "2", "--particles", "2", "--max_passes", "20", "--integrators", "ab2"]
    expected = {
        "data": (prepare, r"encoding storybook:3000, [\d,]+ documents, .* MB(, \d+%)?"),
        "train": (trained, r"step \d+ of 20, loss \d\.\d+, (best \d\.\d+, )?[\d,]+ tok/s"),
        "eval": (["eval", "r", "--tokens", "2000"], r"text \d+ of \d+|at work"),
        "audit": (["audit", "softmax-ab2", "--length", "4"], r"auditing \d+ of \d+"),
        "flow": (flow, r"racing \d+ of \d+"),
    }
    for command, (args, pattern) in expected.items():
        assert cli.main(args) == 0
        said = lines_of(capsys, command)
        assert any(re.fullmatch(pattern, line) for line in said), (command, said)


def test_no_silence_while_one_step_is_long(quick: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with progress.pulse("work"):
        for _ in progress.steps_with_progress(1, "stepping"):
            time.sleep(0.3)
    said = lines_of(capsys, "work")
    assert len(said) >= 5
    assert set(said) == {"stepping 0 of 1"}


def test_silence_on_a_terminal_and_in_other_processes(
    quick: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANK", "1")
    with progress.pulse("work"):
        time.sleep(0.1)
    monkeypatch.delenv("RANK")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with progress.pulse("work"):
        time.sleep(0.1)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("interval", [None, "often"])
def test_the_interval_is_a_quarter_of_a_minute_and_short_work_is_silent(
    interval: str | None, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SYMPFORMER_INTERVAL")
    if interval is not None:
        monkeypatch.setenv("SYMPFORMER_INTERVAL", interval)
    assert progress.INTERVAL == 15
    with progress.pulse("work"):
        assert [*progress.steps_with_progress(3, "stepping")] == [0, 1, 2]
        meter = progress.Meter("reading")
        meter.add(1, 10, 0.5)
    assert capsys.readouterr().err == ""


def test_bench_says_what_it_times(quick: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from sympformer.studies.bench.timing import interleaved

    with progress.pulse("bench"):
        interleaved({"a": lambda: time.sleep(0.05)}, rounds=2, warm_up=0, label="one layer")
    assert any(re.fullmatch(r"one layer [01] of 2", line) for line in lines_of(capsys, "bench"))


def test_prepared_data_needs_no_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data.prepare("storybook:30", "byte", tmp_path / "d")
    assert capsys.readouterr().err == ""
