"""What the machine is, and AMX on virtual machines, which oneDNN is told to do without."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from sympformer import machine
from sympformer.cli import main

LIMIT = machine.VARIABLE


@pytest.fixture
def cpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file in which a made-up CPU tells what it has; nothing is set."""
    monkeypatch.setattr(machine, "CPUINFO", tmp_path / "cpuinfo")
    monkeypatch.setenv(LIMIT, "")  # so that what a test sets is undone
    monkeypatch.delenv(LIMIT)
    return tmp_path / "cpuinfo"


def tell(cpu: Path, flags: str) -> None:
    cpu.write_text(f"processor\t: 0\nmodel name\t: Advertised CPU\nflags\t\t: {flags}\n\nprocessor\t: 1\n")


@pytest.mark.parametrize(
    ("flags", "limit"),
    [
        ("avx512f avx512_bf16 amx_tile amx_bf16 hypervisor", "AVX512_CORE_BF16"),
        ("avx512f amx_tile hypervisor", "AVX512_CORE"),
        ("avx512f avx512_bf16 amx_tile amx_bf16", None),
        ("avx512f avx512_bf16 hypervisor", None),
        (None, None),
    ],
)
def test_a_virtual_machine_with_amx_does_without(
    flags: str | None, limit: str | None, cpu: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if flags is not None:
        tell(cpu, flags)
    for _ in range(2):
        machine.calm_onednn()
    assert os.environ.get(LIMIT) == limit
    said = capsys.readouterr().err
    assert said.count("\n") == (limit is not None)  # once
    assert limit is None or f"{LIMIT}={limit} does without it; where AMX works, {LIMIT}=DEFAULT lifts" in said


def test_what_is_set_stays_and_other_processes_are_silent(
    cpu: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tell(cpu, "amx_tile hypervisor")
    monkeypatch.setenv("RANK", "1")
    machine.calm_onednn()
    monkeypatch.setenv(LIMIT, "DEFAULT")
    monkeypatch.delenv("RANK")
    machine.calm_onednn()
    assert os.environ[LIMIT] == "DEFAULT"
    assert capsys.readouterr().err == ""


def test_a_command_sets_it_before_torch_is_there(cpu: Path, tmp_path: Path) -> None:
    tell(cpu, "amx_tile hypervisor")
    code = f"""
import os, pathlib, sys
from sympformer import cli, machine
machine.CPUINFO = pathlib.Path({str(cpu)!r})
cli.load = lambda command: lambda: print(os.environ["{LIMIT}"], "torch" in sys.modules)
cli.main(["flow"])
"""
    environment = {name: value for name, value in os.environ.items() if name != LIMIT}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert (done.stdout, done.stderr.count("\n")) == ("AVX512_CORE False\n", 1), done.stderr


def test_describe_the_machine(cpu: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tell(cpu, "fpu avx2 avx512f avx512_bf16 amx_tile")
    assert main(["describe", "--machine"]) == 0
    rows = dict(line.split("  ", 1) for line in capsys.readouterr().out.splitlines())
    shown = {name: value.strip() for name, value in rows.items()}
    assert shown["processor"] == "Advertised CPU"
    assert shown["instruction sets"] == "avx2, avx512f, avx512_bf16, amx_tile"
    assert (shown["onednn limit"], shown["torch"]) == ("none", torch.__version__)
    assert shown["threads"] == str(torch.get_num_threads())
    assert shown["cores"] == str(machine.usable_cores())
    assert float(shown["memory gb"]) > 0
    assert "accelerator" in shown
