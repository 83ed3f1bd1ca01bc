"""The command line: help, versions, exit codes and one-sentence errors."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sympformer import __version__, cli


def error_of(capsys: pytest.CaptureFixture[str], *args: str) -> str:
    """Run a command that must fail with exit code 2, one line on stderr and none on stdout; return the line."""
    assert cli.main(list(args)) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert captured.err.startswith("sympformer: error: ")
    return captured.err


def test_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    for flag in ("-h", "--help"):
        assert cli.main([flag]) == 0
        text = capsys.readouterr().out
        assert text.startswith("usage: sympformer")
        assert all(f"\n  {name}" in text for name in cli.COMMANDS)


def test_no_arguments_show_the_help_and_fail(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([]) == 2
    assert "usage: sympformer" in capsys.readouterr().out


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out == f"sympformer {__version__}\n"


def test_help_is_light() -> None:
    code = "import sys; from sympformer.cli import main; main(['--help']); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = done.stdout.splitlines()[-1].split()
    assert "sympformer.cli" in loaded
    assert not {"torch", "numpy", "matplotlib", "rich"} & set(loaded)


def test_python_m_is_the_command() -> None:
    done = subprocess.run([sys.executable, "-m", "sympformer", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == f"sympformer {__version__}\n"


def test_command_help_comes_from_the_signature(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["flow", "--help"]) == 0
    text = capsys.readouterr().out
    for flag in ("--system {linear,softmax,quadratic,wasserstein,stein}", "--step", "--max_passes", "--seed", "--out"):
        assert flag in text
    assert "Number of tokens." in text


def test_a_run_from_flags(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    flags = "--dim 2 --particles 4 --max_passes 20 --step 0.2 --integrators ab2,rk4 --causal true"
    assert cli.main(["flow", *flags.split(), "--out", str(tmp_path / "run")]) == 0
    captured = capsys.readouterr()
    assert "gradient_flow" in captured.out
    assert captured.err == ""
    assert (tmp_path / "run" / "flow.json").exists()


def test_control_c_is_one_line_and_130(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*args: Any) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "_run", interrupted)
    assert cli.main(["flow"]) == 130
    assert capsys.readouterr().err == "sympformer: stopped\n"


def test_a_bug_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: Any) -> int:
        raise ZeroDivisionError

    monkeypatch.setattr(cli, "_run", broken)
    with pytest.raises(ZeroDivisionError):
        cli.main(["flow"])


def test_a_command_without_arguments_takes_its_defaults(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["describe"]) == 0
    assert "parameters" in capsys.readouterr().out


def test_under_torchrun_the_sentence_is_kept_for_the_last_lines(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCHELASTIC_ERROR_FILE", str(tmp_path / "error.json"))
    said = error_of(capsys, "train", "nothere")
    assert json.loads((tmp_path / "error.json").read_text())["message"]["message"] == said.rstrip("\n")
    monkeypatch.setenv("TORCHELASTIC_ERROR_FILE", str(tmp_path / "no" / "error.json"))
    assert error_of(capsys, "train", "nothere") == said


@pytest.mark.slow
def test_torchrun_ends_with_the_sentence(tmp_path: Path) -> None:
    launch = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone", "-m"]
    done = subprocess.run(
        [*launch, "sympformer", "train", "nothere"], cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 1
    *_, last, rule = done.stderr.splitlines()
    assert set(rule) == {"="}  # torchrun's own frame
    assert last.split(" : ")[1].startswith("sympformer: error: unknown config 'nothere'")
