"""`sympformer describe` prints what a model is: a variant, a run, an exported folder; `bench` what it costs."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import sympformer as sf
from benchmarks import choices
from benchmarks.plain import PlainGPT
from sympformer import machine
from sympformer.cli import main
from sympformer.errors import InputError
from sympformer.models import build_model
from sympformer.models.describe import LEGEND
from sympformer.provenance import this_code
from sympformer.studies.bench import bench, timing
from sympformer.studies.bench.bench import Row, bare
from tests.test_cli import error_of


def test_describe_prints_counts_and_scalars(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["describe", "linear-etd-ab2", "--vocab_size", "2048"]) == 0
    text = capsys.readouterr().out
    assert "parameters" in text
    assert "c_log" in text
    assert main(["describe", "--name", "linear-etd-ab2", "--vocab_size", "2048"]) == 0
    assert capsys.readouterr().out == text


@pytest.mark.parametrize("preset", sf.models.PRESETS)
@pytest.mark.parametrize("name", sf.VARIANTS)
def test_every_column_has_its_line(name: str, preset: str) -> None:
    model = sf.build_model(sf.variant(name, preset, n_layer=1, d_model=8, n_head=2, vocab_size=64))
    lines = model.describe().splitlines()
    for column in model.layer_scalars()[0]:
        assert any(line.split(maxsplit=1) == [column, LEGEND[column]] for line in lines)


def test_a_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from sympformer.hf import SympFormerForCausalLM

    model = sf.build_model(sf.variant("softmax-ab2", n_layer=1, d_model=8, n_head=2, vocab_size=64), seed=0)
    SympFormerForCausalLM.from_language_model(model).save_pretrained(tmp_path / "hf")
    capsys.readouterr()
    assert main(["describe", str(tmp_path / "hf")]) == 0
    assert capsys.readouterr().out == model.describe() + "\n"
    assert "leave n_layer out" in error_of(capsys, "describe", str(tmp_path / "hf"), "--n_layer", "3")


def test_models_of_others_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "theirs.py"
    file.write_text("from torch import nn\ndef build():\n    return nn.Embedding(9, 9)\n")
    assert "describe knows the models of this package" in error_of(capsys, "describe", f"{file}:build")


# --- `sympformer bench` measures what it says, in ratios; no figure of a machine is asserted here
TINY = {"n_layer": 1, "n_head": 2, "d_model": 16, "block_size": 16}


def test_works_take_turns_and_a_ratio_is_the_median_of_rounds() -> None:
    order: list[str] = []
    made = timing.PreparedWork(lambda: order.append("made") or 7, lambda seven: order.append(f"b{seven}"))  # type: ignore[func-returns-value]
    seconds = timing.interleaved({"a": lambda: order.append("a"), "b": made}, rounds=2, warm_up=1)
    assert order == ["a", "made", "b7"] * 3
    assert {name: len(values) for name, values in seconds.items()} == {"a": 2, "b": 2}
    assert timing.ratio({"a": [2.0, 3.0, 100.0], "b": [1.0, 2.0, 1.0]}, "a", "b") == 2.0


def test_rows_know_their_bounds() -> None:
    rows = Row("s", "w", 0.4, 0.45), Row("s", "w", 0.5, 0.45), Row("s", "w", 1.0)
    assert [row.met for row in rows] == [True, False, None]
    assert [row.cells[2] for row in rows] == ["<= 0.45", "<= 0.45", ""]


def test_memory_is_that_of_a_fresh_process() -> None:
    """What a step holds at least is in it; what a process says before it fails is in the one sentence."""
    cfg = bare("softmax-exp-euler", vocab_size=40, **(TINY | {"block_size": 512}))
    floats = 10 * 16 * 512  # per token: momentum, position, norms, four widths in the MLP
    assert 4 * floats < bench.peak_memory(cfg, 4) < 1_000 * floats
    with pytest.raises(InputError, match=r"measures math:sqrt failed \(ValueError: math domain error\)"):
        timing.in_fresh_process("math:sqrt", -1)


@pytest.mark.parametrize("width", [0, 16])
def test_the_plain_block_is_our_baseline(width: int) -> None:
    """Same weights, same loss: the ruler of `benchmarks` measures the same thing, also with widened heads."""
    cfg = bare("softmax-baseline", vocab_size=40, **TINY)
    ours: Any = build_model(cfg, seed=0)
    plain: Any = PlainGPT(cfg, width)
    plain.load_state_dict(dict(zip(plain.state_dict(), ours.state_dict().values(), strict=True)))  # in one order
    idx, targets = torch.randint(40, (2, 3, 16))
    torch.testing.assert_close(plain.loss(idx, targets), ours(idx, targets=targets).loss)


def test_choices_give_threads_back() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        for work in [*choices.heads().values(), *choices.threads().values()]:
            work()
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_the_command_writes_figures_and_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    """All suites, made small: every figure is there, above each table the CPU, its instruction sets, threads, torch."""
    monkeypatch.setattr(bench, "BODY", TINY)
    monkeypatch.setattr(bench, "VOCABULARIES", (40, 60))
    monkeypatch.setattr(bench, "peak_memory", lambda cfg, batch: 110)
    out = tmp_path / "deep" / "bench.json"
    assert main(["bench", "--suites", "[memory, step]", "--rounds", "1", "--out", str(out)]) == 0
    content = json.loads(out.read_text())
    here = content["machine"]
    assert (here["torch"], here["threads"]) == (torch.__version__, torch.get_num_threads())
    assert {"processor", "instruction_sets", "onednn_limit"} <= here.keys()
    assert content["code"] == this_code().to_dict()
    figures = {row["what"]: row for row in content["figures"]}
    assert figures["tuned, vocabulary 60: step / GPT"]["bound"] == 0.6
    assert len(figures) == 3 + 2 * len(bench.STEPS)
    printed = " ".join(capsys.readouterr().out.split())
    assert f"step: {machine.headline()}" in printed
