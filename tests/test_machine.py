"""bfloat16 on CPUs that advertise more than they run: everything that dies here dies in a child process."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from sympformer import machine
from sympformer.cli import main
from sympformer.errors import InputError
from sympformer.loading import open_target

FLAGS = "fpu avx2 avx512f avx512_bf16 avx512_fp16 amx_tile amx_bf16"
DIES = "import os, signal; os.environ.get('ONEDNN_MAX_CPU_ISA', '') in {alive} or os.kill(os.getpid(), signal.SIGILL)"
ALWAYS = DIES.format(alive=())
UNLESS_SET = DIES.format(alive=machine.LIMITS)

HERE = machine.flags()  # of the real CPU


def child(code: str) -> list[str]:
    return [sys.executable, "-c", code]


@pytest.fixture
def cpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A CPU that says it has AMX, nothing set, nothing kept yet; the cache folder."""
    info, cache = tmp_path / "cpuinfo", tmp_path / "cache"
    info.write_text(f"processor\t: 0\nmodel name\t: Advertised CPU\nflags\t\t: {FLAGS}\n\nprocessor\t: 1\n")
    monkeypatch.setattr(machine, "CPUINFO", info)
    monkeypatch.setenv("SYMPFORMER_CACHE", str(cache))
    monkeypatch.setenv(machine.VARIABLE, "")  # so that what a test sets is undone
    monkeypatch.delenv(machine.VARIABLE)
    return cache


# --- the trial


@pytest.mark.parametrize(
    ("code", "state", "limit"),
    [
        ("pass", "works", None),
        (UNLESS_SET, "limited", "AVX512_CORE_FP16"),
        (DIES.format(alive=("AVX512_CORE_BF16",)), "limited", "AVX512_CORE_BF16"),
        (DIES.format(alive=("AVX2",)), "limited", "AVX2"),
        (ALWAYS, "broken", None),
    ],
)
def test_the_least_limit_that_helps(cpu: Path, code: str, state: str, limit: str | None) -> None:
    assert machine.probe(child(code)) == machine.Bfloat16(state, limit)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("command", "why"),
    [
        (child("raise SystemExit('no torch here')"), "a trial ended with code 1: no torch here"),
        (child("import os; os.kill(os.getpid(), 9)"), "a trial ended with code -9"),  # short of memory, perhaps
        (child("import time; time.sleep(600)"), "a trial did not end within 0.5 s"),
        (["/no/such/python"], "a trial did not start: No such file or directory"),
    ],
)
def test_a_trial_that_tells_nothing(cpu: Path, command: list[str], why: str) -> None:
    assert machine.probe(command, patience=0.5) == machine.Bfloat16("untried", why=why)


def test_the_real_trial_tells(cpu: Path) -> None:
    """It runs to its end or dies; it does not fail in some third way."""
    assert machine.probe([sys.executable, "-P", "-c", machine.TRIAL]).state in ("works", "limited", "broken")


# --- what is kept


def test_the_answer_is_kept(cpu: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "TRIAL", UNLESS_SET)
    found = machine.bfloat16()
    assert found == machine.Bfloat16("limited", "AVX512_CORE_FP16")
    machine._kept.cache_clear()  # as in the next process
    monkeypatch.setattr(machine, "probe", lambda command: pytest.fail("tried again"))
    assert machine.bfloat16() == found
    assert [path.suffix for path in cpu.iterdir()] == [".json"]


@pytest.mark.parametrize("content", ["", "{", "[]", '{"state": "fine"}', '{"state": "limited"}', '{"mood": 1}', "\0"])
def test_a_damaged_answer_is_found_again(cpu: Path, content: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "TRIAL", ALWAYS)
    file = cpu / f"bfloat16-{machine._identity()}.json"
    cpu.mkdir()
    file.write_text(content)
    assert machine.bfloat16().state == "broken"
    assert json.loads(file.read_text())["state"] == "broken"


def test_an_answer_that_cannot_be_kept(cpu: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cpu.write_text("a file in the folder's place")
    monkeypatch.setattr(machine, "TRIAL", UNLESS_SET)
    assert machine.bfloat16().limit == "AVX512_CORE_FP16"


def test_an_answer_that_tells_nothing_is_not_kept(cpu: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "TRIAL", "raise SystemExit(3)")
    assert machine.bfloat16().state == "untried"
    assert not cpu.exists()


def test_another_cpu_is_another_question(cpu: Path) -> None:
    before = machine._identity()
    machine.CPUINFO.write_text(machine.CPUINFO.read_text().replace("amx_bf16", ""))
    assert machine._identity() != before


# --- where no trial is needed


def test_what_is_set_stays(cpu: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv(machine.VARIABLE, "AVX2")
    monkeypatch.setattr(machine, "TRIAL", ALWAYS)
    machine.use_bfloat16()
    assert machine.bfloat16().sentence == "works with ONEDNN_MAX_CPU_ISA=AVX2 (set in the environment)"
    assert os.environ[machine.VARIABLE] == "AVX2"
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("content", ["model name : Old CPU\nflags : fpu avx2\n", None])
def test_no_trial_without_suspect_instructions(cpu: Path, content: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    machine.CPUINFO.unlink() if content is None else machine.CPUINFO.write_text(content)
    monkeypatch.setattr(machine, "TRIAL", ALWAYS)
    machine.use_bfloat16()
    assert machine.bfloat16().sentence.startswith("not tried (this CPU has no instructions of its own")
    assert machine.VARIABLE not in os.environ


# --- users


@pytest.mark.parametrize(
    ("option", "instead"),
    [(("--precision", "bfloat16"), "precision = 'float32'"), (("--optimizer", "muon"), "optimizer = 'adamw'")],
)
def test_nothing_helps(
    option: tuple[str, str],
    instead: str,
    cpu: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(machine, "TRIAL", ALWAYS)
    out = tmp_path / "run"
    assert main(["train", *option, "--device", "cpu", "--steps", "1", "--out", str(out)]) == 2
    said = capsys.readouterr().err
    assert said.startswith("sympformer: error: bfloat16 does not run on this CPU: it dies of an illegal instruction")
    assert said.endswith(f"; choose {instead}, or another machine\n")
    assert not out.exists()
    with pytest.raises(InputError, match="bfloat16 does not run on this CPU"):
        machine.use_bfloat16()
    machine.use_bfloat16(needed=False)
    assert machine.VARIABLE not in os.environ


def test_a_comparison_asks_before_it_begins(
    cpu: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(machine, "TRIAL", ALWAYS)
    config = Path(__file__).parent.parent / "configs" / "compare" / "demo.yaml"
    options = ["--common.precision", "bfloat16", "--common.device", "cpu", "--out", str(tmp_path / "out")]
    assert main(["compare", str(config), *options]) == 2
    assert "bfloat16 does not run on this CPU" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_model_of_others(cpu: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """It may compute in bfloat16, so the variable is set before it is made, and said once."""
    monkeypatch.setattr(machine, "TRIAL", UNLESS_SET)
    for _ in range(2):
        open_target(f"{Path(__file__).parent / 'audit' / 'toys.py'}:Causal")
    assert os.environ[machine.VARIABLE] == "AVX512_CORE_FP16"
    assert capsys.readouterr().err.splitlines() == [
        "sympformer: this CPU advertises instructions for bfloat16 that do not run: "
        "ONEDNN_MAX_CPU_ISA=AVX512_CORE_FP16 is set to do without them"
    ]


@pytest.mark.skipif(machine.bfloat16().state == "broken", reason="nothing helps on this CPU")
def test_a_run_goes_on(cpu: Path, tmp_path: Path) -> None:
    """The trial dies of SIGILL; the command sets the variable, says so, and oneDNN heeds it: it comes early enough."""
    out = tmp_path / "run"
    options = ["--precision", "bfloat16", "--device", "cpu", "--steps", "2", "--warm_up", "1", "--batch_size", "2"]
    sizes = ["--model.n_layer", "1", "--model.d_model", "64", "--model.n_head", "2", "--model.block_size", "64"]
    data = ["--data.corpus", "storybook:60", "--data.tokenizer", "byte"]
    code = f"""
from pathlib import Path
from sympformer import cli, machine
machine.CPUINFO, machine.TRIAL, machine.LIMITS = Path({str(machine.CPUINFO)!r}), {UNLESS_SET!r}, ("AVX512_CORE",)
raise SystemExit(cli.main({["train", *options, *sizes, *data, "--out", str(out)]!r}))
"""
    environment = os.environ | {"ONEDNN_VERBOSE": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(child(code), env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("ONEDNN_MAX_CPU_ISA=AVX512_CORE is set to do without them\n") == 1
    used = [line for line in done.stdout.splitlines() if "cpu,isa:" in line]
    assert used or not machine.SUSPECT & HERE  # a lesser CPU does without oneDNN
    assert not any("bfloat16" in line or "AMX" in line for line in used)
    assert f"the model is in {out}" in done.stdout
    assert json.loads((out / "environment.json").read_text())["onednn_limit"] == "AVX512_CORE"


def test_describe_the_machine(cpu: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(machine, "TRIAL", UNLESS_SET)
    assert main(["describe", "--machine"]) == 0
    rows = dict(line.split("  ", 1) for line in capsys.readouterr().out.splitlines())
    shown = {name: value.strip() for name, value in rows.items()}
    assert shown["processor"] == "Advertised CPU"
    assert shown["instruction sets"] == "avx2, avx512f, avx512_bf16, avx512_fp16, amx_tile, amx_bf16"
    assert shown["bfloat16"] == "works with ONEDNN_MAX_CPU_ISA=AVX512_CORE_FP16"
    assert shown["threads"] == str(torch.get_num_threads())
    assert shown["cores"] == str(machine.usable_cores())
    assert shown["torch"] == torch.__version__
    assert float(shown["memory gb"]) > 0
    assert "accelerator" in shown
