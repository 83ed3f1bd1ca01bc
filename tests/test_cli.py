"""The command line: help, exit codes, what the system does, SIGTERM, and the configs that ship, found by name."""

import io
import json
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from rich.console import Console

from sympformer import __version__, cli
from sympformer.configs import config_file, shipped
from sympformer.errors import InputError
from sympformer.files import new_folder, write
from sympformer.tables import Head, markdown_table, terminal_table

CONFIGS = Path(__file__).parents[1] / "configs"
HERE = f"{__name__}:"


def error_of(capsys: pytest.CaptureFixture[str], *args: str) -> str:
    """Run a command that must fail with exit code 2 and one line on stderr; return the line."""
    capsys.readouterr()
    assert cli.main(list(args)) == 2
    captured = capsys.readouterr()
    assert (captured.out, captured.err.count("\n")) == ("", 1)
    assert captured.err.startswith("sympformer: error: ")
    return captured.err


# --- help


def test_help_and_version(capsys: pytest.CaptureFixture[str]) -> None:
    for flag in ("-h", "--help"):
        assert cli.main([flag]) == 0
        text = capsys.readouterr().out
        assert text.startswith("usage: sympformer")
        assert all(f"\n  {name}" in text for name in cli.COMMANDS)
    assert cli.main([]) == 2
    assert "usage: sympformer" in capsys.readouterr().out
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out == f"sympformer {__version__}\n"
    assert cli.main(["data", "--help"]) == 0
    assert "\n  prepare " in capsys.readouterr().out


def test_help_imports_no_torch() -> None:
    lines = ["", "configs", "data prepare", "data info", "describe", "export", "play", "sample", "train"]
    pages = [[*line.split(), "--help"] for line in lines]
    code = f"import sys; from sympformer.cli import main; [main(page) for page in {pages!r}]; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = done.stdout.splitlines()[-1].split()
    assert "sympformer.cli" in loaded
    assert not {"torch", "matplotlib", "rich"} & set(loaded)


def test_python_m_is_the_command() -> None:
    done = subprocess.run([sys.executable, "-m", "sympformer", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == f"sympformer {__version__}\n"


# --- errors, and what the system does


def raising(error: BaseException) -> Any:
    def load(command: str) -> Any:
        raise error

    return load


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (PermissionError(13, "Permission denied", "/x/log.txt"), "Permission denied (/x/log.txt)"),
        (OSError(28, "No space left on device"), "No space left on device"),
        (OSError(24, "Too many open files"), "Too many open files"),
        (MemoryError(), "not enough memory"),
        (RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: 9 bytes"), "not enough memory"),
        (ImportError("libtorch.so: failed to map segment from shared object"), "not enough memory"),
    ],
)
def test_what_the_system_refuses(
    error: Exception, message: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cli, "load", raising(error))
    assert message in error_of(capsys, "train")


@pytest.mark.parametrize("error", [RuntimeError("a bug"), ZeroDivisionError("a bug")])
def test_bugs_keep_their_tracebacks(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli, "load", raising(error))
    with pytest.raises(type(error), match="a bug"):
        cli.main(["train"])


def test_control_c_is_one_line_and_130(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli, "load", raising(KeyboardInterrupt()))
    assert cli.main(["flow"]) == 130
    assert capsys.readouterr().err == "sympformer: stopped\n"


def test_whoever_reads_us_may_leave(tiny_run: str) -> None:
    command = f"{sys.executable} -m sympformer sample {tiny_run} --n 2000 --max_new_tokens 2 | head -n 1"
    done = subprocess.run(["bash", "-c", f"set -o pipefail; {command}"], capture_output=True, text=True, timeout=120)
    assert (done.stderr, done.returncode) == ("", 141)


def test_too_few_descriptors(tiny_run: str, capsys: pytest.CaptureFixture[str]) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken = max(map(int, os.listdir("/proc/self/fd")))
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 3), hard))
    try:
        code = cli.main(["sample", tiny_run])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert (code, taken > 2) == (2, True)
    assert "Too many open files" in capsys.readouterr().err


def test_under_torchrun_the_sentence_is_kept_for_the_last_lines(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCHELASTIC_ERROR_FILE", str(tmp_path / "error.json"))
    said = error_of(capsys, "train", "nothere")
    assert json.loads((tmp_path / "error.json").read_text())["message"]["message"] == said.rstrip("\n")
    monkeypatch.setenv("TORCHELASTIC_ERROR_FILE", str(tmp_path / "no" / "error.json"))
    assert error_of(capsys, "train", "nothere") == said


# --- SIGTERM


def folder_command(out: Path) -> None:
    """Told to stop while it writes a folder."""
    with new_folder(out / "new" / "deep") as work:
        (work / "half.txt").write_text("half")
        os.kill(os.getpid(), signal.SIGTERM)


def file_command(out: Path) -> None:
    """Told to stop before a file gets its name."""
    original = os.replace

    def told(work: Path, path: Path) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        original(work, path)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sympformer.files.os.replace", told)
        write(out / "half.txt", "half")


@pytest.mark.parametrize("name", ["folder_command", "file_command"])
def test_nothing_half_written_stays(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    monkeypatch.setitem(cli.COMMANDS, "slow", (HERE + name, ""))
    before = signal.getsignal(signal.SIGTERM)
    assert cli.main(["slow", str(tmp_path)]) == 143
    assert capsys.readouterr().err == "sympformer: stopped\n"
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_handler_of_the_program_around_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(cli.COMMANDS, "slow", (f"{HERE}file_command", ""))
    heard: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, frame: heard.append(number))
    try:
        assert cli.main(["slow", str(tmp_path)]) == 0
    finally:
        signal.signal(signal.SIGTERM, before)
    assert heard == [signal.SIGTERM]
    assert [path.name for path in tmp_path.iterdir()] == ["half.txt"]


# --- the configs that ship


def test_every_config_has_a_name_of_its_own_and_a_command(capsys: pytest.CaptureFixture[str]) -> None:
    found = shipped()
    assert {one.file for one in found.values()} == set(CONFIGS.rglob("*.yaml"))
    for one in found.values():
        several = {"models", "factors"} & set(yaml.safe_load(one.file.read_text()))
        assert one.command == ("compare" if several else "train")
        assert one.file.read_text().startswith(f"# {one.summary}")
    assert cli.main(["configs"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(found)
    assert lines[0].split(maxsplit=3)[:3] == ["sympformer", "train", "cpu-small"]
    assert all(len(line) <= 150 and len(line.split(maxsplit=3)[3]) > 20 for line in lines)


def test_words_are_names_or_paths() -> None:
    assert config_file("demo", "compare") == str(CONFIGS / "compare" / "demo.yaml")
    assert config_file("demo.yaml", "compare") == "demo.yaml"
    assert config_file("my/demo", "compare") == "my/demo"
    with pytest.raises(InputError, match="did you mean 'cpu-small'"):
        config_file("cpu-smal", "train")


def test_a_copy_overwrites_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main(["configs", "cpu-small", "--out", "my.yaml"]) == 0
    assert "sympformer train my.yaml" in capsys.readouterr().out
    assert cli.main(["configs", "cpu-small"]) == 0
    assert Path("my.yaml").read_text() == capsys.readouterr().out
    Path("my.yaml").write_text("mine")
    assert "is left alone" in error_of(capsys, "configs", "cpu-small", "--out", "my.yaml")
    assert Path("my.yaml").read_text() == "mine"


# --- tables for people: one set of heads and rows, on a terminal and as Markdown


HEADS = [Head("model", left=True), Head("loss")]


def test_markdown_keeps_its_columns_whatever_stands_in_a_cell() -> None:
    assert markdown_table(HEADS, [("a|b", "1.5"), ("two\nlines", "10")]) == (
        "| model | loss |\n| --- | --: |\n| a\\|b | 1.5 |\n| two lines | 10 |\n"
    )


def test_terminal_puts_words_left_and_figures_right() -> None:
    console = Console(width=60, record=True, file=io.StringIO())
    console.print(terminal_table("title", HEADS, [("gpt", "1.5"), ("yuriiformer", "10")], ["strike", None]))
    lines = console.export_text().splitlines()
    assert lines[0].strip() == "title"
    assert "│ gpt         │  1.5 │" in lines
    assert "│ yuriiformer │   10 │" in lines
