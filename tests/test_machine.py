"""What the machine is, what it says while it works, and what made a result."""

import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from sympformer import __version__, machine, progress, provenance
from sympformer.cli import main
from sympformer.provenance import Code, code_in, distinct, source_hash, this_code

LIMIT = machine.VARIABLE
SMALL = ["--model.n_layer", "1", "--model.d_model", "8", "--model.n_head", "1", "--model.block_size", "16"]


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


# --- progress: where there is no terminal, a line at least every `INTERVAL` seconds


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
    prepared = ["data", "prepare", "--corpus", "storybook:3000", "--tokenizer", "byte", "--out", "d"]
    trained = ["train", *SMALL, "--data.folder", "d", "--steps", "20", *few, "--out", "r"]
    flow = ["flow", "--dim", "2", "--particles", "2", "--max_passes", "20", "--integrators", "ab2"]
    expected = {
        "data": (prepared, r"encoding storybook:3000, [\d,]+ documents(, \d+%)?"),
        "train": (trained, r"step \d+ of 20, loss \d\.\d+, (best \d\.\d+, )?[\d,]+ tok/s"),
        "eval": (["eval", "r", "--tokens", "2000"], r"text \d+ of \d+|at work"),
        "audit": (["audit", "softmax-ab2", "--length", "4"], r"auditing \d+ of \d+"),
        "flow": (flow, r"racing \d+ of \d+"),
    }
    for command, (args, pattern) in expected.items():
        assert main(args) == 0
        said = lines_of(capsys, command)
        assert any(re.fullmatch(pattern, line) for line in said), (command, said)


def test_no_silence_while_one_step_is_long(quick: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with progress.pulse("work"):
        for _ in progress.steps_with_progress(1, "stepping"):
            time.sleep(0.3)
    said = lines_of(capsys, "work")
    assert len(said) >= 5
    assert set(said) - {"at work"} == {"stepping 0 of 1"}


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


def test_the_interval_is_a_quarter_of_a_minute_and_short_work_is_silent(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SYMPFORMER_INTERVAL")
    assert progress.INTERVAL == 15
    with progress.pulse("work"):
        assert [*progress.steps_with_progress(3, "stepping")] == [0, 1, 2]
        with progress.Bar("reading") as bar:
            bar.update(1, "50%")
    assert capsys.readouterr().err == ""


# --- provenance: the hash sees every change of the source and nothing else


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The package somewhere else, as a wheel would put it: no tests, no git."""
    root = tmp_path / "site-packages" / "sympformer"
    shutil.copytree(provenance.ROOT, root, ignore=shutil.ignore_patterns("__pycache__"))
    return root


def test_the_same_source_has_the_same_hash_wherever_it_lies(copy: Path) -> None:
    assert source_hash(copy) == this_code().source
    (copy / "__pycache__").mkdir()
    (copy / "__pycache__" / "cli.cpython-311.pyc").write_bytes(b"compiled")
    file = copy / "cli.py"
    file.write_bytes(file.read_bytes().replace(b"\n", b"\r\n"))  # as git writes files on Windows
    assert source_hash(copy) == this_code().source


def test_every_change_of_the_source_shows(copy: Path) -> None:
    seen = {source_hash(copy)}
    (copy / "models" / "config.py").write_text((copy / "models" / "config.py").read_text() + "\n")
    seen.add(source_hash(copy))
    (copy / "cli.py").rename(copy / "command_line.py")
    seen.add(source_hash(copy))
    (copy / "data" / "more.py").touch()
    seen.add(source_hash(copy))
    assert len(seen) == 4


def test_a_commit_is_named_where_git_keeps_the_source(tmp_path: Path) -> None:
    def git(*arguments: str) -> None:
        name = ("-c", "user.name=a", "-c", "user.email=a@b.c")
        subprocess.run(["git", *name, *arguments], cwd=tmp_path, check=True, capture_output=True)

    root = tmp_path / "sympformer"
    root.mkdir()
    file = root / "__init__.py"
    file.write_text("a = 1\n")
    assert provenance._commit(root) is None
    git("init")
    (tmp_path / "notes.txt").write_text("a project that has the package installed\n")
    git("add", "notes.txt")
    git("commit", "-m", "notes")
    assert provenance._commit(root) is None
    git("add", ".")
    git("commit", "-m", "source")
    commit = provenance._commit(root)
    assert commit is not None
    assert len(commit) == 12
    file.write_text("a = 2\n")
    assert provenance._commit(root) == f"{commit}-dirty"


def test_codes_go_through_a_record_and_back() -> None:
    here = this_code()
    assert here.version == __version__
    assert code_in({"torch": "2", **here.to_dict()}) == here
    assert set(provenance.environment()) > {"sympformer", "source", "commit", "torch", "command", "date", "processor"}


def test_records_without_a_hash_are_of_one_unknown_code() -> None:
    old = [code_in({"sympformer": "0.1.0", "torch": "2"}), code_in({"sympformer": "0.0.9"})]
    assert [code.label for code in distinct(old)] == ["unknown code"]
    assert len(distinct([*old, this_code()])) == 2
    # a commit that left the source alone makes no other code
    assert len(distinct([Code("1", "beef", "aaa"), Code("1", "beef", "bbb")])) == 1
