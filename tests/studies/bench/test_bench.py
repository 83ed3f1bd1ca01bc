"""The benchmark measures what it says, in ratios; no figure of a machine is asserted here."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from sympformer import machine
from sympformer.cli import main
from sympformer.models import build_model, variant
from sympformer.ops import flash, loss
from sympformer.provenance import this_code
from sympformer.studies.bench import choices, layers, peers, sizes, suites, timing
from sympformer.studies.bench.costs import bare, model_step
from sympformer.studies.bench.suites import PlainGPT
from sympformer.studies.bench.timing import Row

TINY = {"n_layer": 1, "n_head": 2, "d_model": 16, "block_size": 16}


def test_ratio_is_the_median_of_rounds() -> None:
    seconds = {"a": [2.0, 3.0, 100.0], "b": [1.0, 2.0, 1.0]}
    assert timing.ratio(seconds, "a", "b") == 2.0


def test_interleaved_runs_every_work_in_every_round() -> None:
    order: list[str] = []
    made = timing.PreparedWork(lambda: order.append("made") or 7, lambda seven: order.append(f"b{seven}"))  # type: ignore[func-returns-value]
    seconds = timing.interleaved({"a": lambda: order.append("a"), "b": made}, rounds=2, warm_up=1)
    assert order == ["a", "made", "b7"] * 3
    assert {name: len(values) for name, values in seconds.items()} == {"a": 2, "b": 2}


def test_rows_know_their_bounds() -> None:
    assert Row("s", "w", 0.4, 0.45).met
    assert not Row("s", "w", 0.5, 0.45).met
    assert Row("s", "w", 16, 15, at_least=True).met
    assert Row("s", "w", 1.0).met is None
    assert (Row("s", "w", 1.0, 2.0).wanted, Row("s", "w", 1.0).wanted) == ("<= 2.00", "")


@pytest.mark.parametrize("width", [0, 16])
def test_the_plain_block_is_our_baseline(width: int) -> None:
    """Same weights, same loss: the ruler measures the same thing, also with widened heads."""
    cfg = bare("softmax-baseline", vocab_size=40, **TINY)
    ours: Any = build_model(cfg, seed=0)
    plain: Any = PlainGPT(cfg, width)
    with torch.no_grad():
        pairs = [(plain.wte, ours.tokens), (plain.wpe, ours.positions), (plain.ln_f, ours.norm)]
        for theirs, block in zip(plain.blocks, ours.blocks, strict=True):
            pairs += [
                (theirs.ln_1, block.norm_attention), (theirs.ln_2, block.mlp.norm),
                (theirs.c_attn, block.attention.qkv), (theirs.c_proj, block.attention.out),
                (theirs.c_fc, block.mlp.up), (theirs.c_out, block.mlp.down),
            ]  # fmt: skip
        for target, source in pairs:
            target.weight.copy_(source.weight)
    idx, targets = torch.randint(40, (2, 3, 16))
    torch.testing.assert_close(plain.loss(idx, targets), ours(idx, targets=targets).loss)


def test_a_step_trains() -> None:
    cfg = variant("softmax-exp-euler", vocab_size=40, **TINY)  # type: ignore[arg-type]
    model_step(cfg, batch=2)()


def test_the_command_writes_figures_and_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(suites, "BODY", TINY)
    monkeypatch.setattr(suites, "peak_memory", lambda cfg, batch: 100 if cfg.architecture == "gpt" else 110)
    out = tmp_path / "deep" / "bench.json"
    assert main(["bench", "--suites", "[memory, step]", "--rounds", "1", "--out", str(out)]) == 0
    content = json.loads(out.read_text())
    here = content["machine"]
    assert (here["torch"], here["threads"]) == (torch.__version__, torch.get_num_threads())
    assert here["processor"]
    assert {"instruction_sets", "bfloat16"} <= here.keys()
    assert content["code"] == this_code().to_dict()
    figures = {row["what"]: row for row in content["figures"]}
    assert figures["softmax-exp-euler: peak of a step at T 4,096 / GPT baseline"]["value"] == 1.1
    assert sum(row["suite"] == "step" for row in content["figures"]) == 15
    printed = " ".join(capsys.readouterr().out.split())
    assert "step / our GPT" in printed
    assert f"step: {machine.headline()}" in printed  # above the figures: the CPU, its instruction sets, threads, torch


def test_sizes_stand_beside_their_peers(monkeypatch: pytest.MonkeyPatch) -> None:
    tiny = sizes.SIZES[-1]._replace(body=TINY | {"vocab_size": 40}, batch=1, peers=sizes._peers(2, 1))
    monkeypatch.setattr(sizes, "SIZES", (tiny,))
    monkeypatch.setattr(sizes, "peak_memory", lambda cfg, batch: 3 if cfg.architecture == "sympformer" else cfg.n_head)
    rows = {row.what.removeprefix("L1 d16 T16: SympFormer / "): row for row in sizes.bench_sizes(rounds=1)}
    assert rows["YuriiFormer, 1 head, step"].bound == 0.95
    assert rows["L1 d16 T16: SympFormer, full / YuriiFormer, 1 head, step"].bound is None
    assert rows["GPT, 2 heads, memory"].value == 1.5
    assert rows["GPT, 1 head, memory"].value == 3.0
    assert len(rows) == 16


def test_the_rows_of_the_peers_stand_beside_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    tiny = sizes.SIZES[-1]._replace(body=TINY | {"vocab_size": 40}, batch=1)
    monkeypatch.setattr(peers, "SIZES", (tiny, tiny))
    monkeypatch.setattr(peers, "peak_memory", lambda cfg, batch: 3 if cfg.attention_step == "r2" else 2)
    rows = peers.bench_peers(rounds=1)
    assert {row.what: row.value for row in rows}["L1 d16 T16 H2: R2 / H0, memory"] == 1.5
    assert len(rows) == 2 * 2 * len(peers.RULERS)
    assert all(row.value > 0 for row in rows)


def test_padding_stands_beside_its_rulers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layers, "ENCODER", {"d_model": 16, "n_head": 2, "n_layer": 1})
    monkeypatch.setattr(layers, "PROMPTS", TINY | {"vocab_size": 40})
    monkeypatch.setattr(layers, "NEW", 2)
    rows = layers.bench_layers(rounds=1)
    assert [row.bound for row in rows] == [1.1, None, None, 1.3, 1.3]
    assert all(row.value > 0 for row in rows)


def test_every_choice_stands_beside_its_alternatives(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the package does comes first, and the constants are the package's own; each work runs."""
    monkeypatch.setattr(choices, "interleaved", lambda works, rounds, label: {name: [1.0] for name in works})
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        for works in (choices.heads(), choices.threads()):
            for work in works.values():
                work()
            assert torch.get_num_threads() == 2  # the one that takes one thread gives them back
        rows = choices.bench_choices(rounds=1)
    finally:
        torch.set_num_threads(before)
    assert [row.what for row in rows] == [
        f"heads of 8 filled up to {flash.CPU.least} / as they are",
        f"loss, {loss.CPU_ROWS} rows at a time / {loss.CPU_ROWS // 2} rows",
        f"loss, {loss.CPU_ROWS} rows at a time / {loss.CPU_ROWS * 2} rows",
        "small step, 2 threads / one thread",
    ]
    assert {(row.suite, row.value, row.bound) for row in rows} == {("choices", 1.0, choices.SLACK)}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--rounds", "0"], "rounds must be at least 1"),
        (["--suites", "[speed]"], "speed"),
        (["--out", "."], "out must name a file"),
    ],
)
def test_bad_input(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", *arguments]) == 2
    assert message in capsys.readouterr().err
