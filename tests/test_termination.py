"""SIGTERM ends a command with code 143, and what was half-written is gone."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sympformer import cli
from sympformer.atomic import staged_files, staged_folder, write_file, write_synced

ME = f"{__name__}:"


def folder_command(out: Path) -> None:
    """Told to stop while it writes a folder."""
    with staged_folder(out / "new" / "deep") as work:
        (work / "half.txt").write_text("half")
        os.kill(os.getpid(), signal.SIGTERM)


def files_command(out: Path) -> None:
    """Told to stop while it writes files into a folder that holds others."""
    with staged_files(out) as work:
        (work / "half.txt").write_text("half")
        os.kill(os.getpid(), signal.SIGTERM)


def file_command(out: Path) -> None:
    """Told to stop before a file gets its name."""
    original = os.replace

    def told(work: Path, path: Path) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        original(work, path)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sympformer.atomic.os.replace", told)
        write_file(out / "half.txt", "half")


@pytest.mark.parametrize("name", ["folder_command", "files_command", "file_command"])
def test_nothing_half_written_stays(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_synced(tmp_path / "mine.txt", b"mine")
    monkeypatch.setitem(cli.COMMANDS, "slow", (ME + name, ""))
    before = signal.getsignal(signal.SIGTERM)
    assert cli.main(["slow", str(tmp_path)]) == 143
    assert capsys.readouterr().err == "sympformer: stopped\n"
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_handler_of_the_program_around_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(cli.COMMANDS, "slow", (f"{ME}files_command", ""))
    heard: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, frame: heard.append(number))
    try:
        assert cli.main(["slow", str(tmp_path)]) == 0
    finally:
        signal.signal(signal.SIGTERM, before)
    assert heard == [signal.SIGTERM]
    assert [path.name for path in tmp_path.iterdir()] == ["half.txt"]


@pytest.mark.slow
def test_a_flow_that_is_told_to_stop(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "sympformer", "flow", "--max_passes", "100000", "--out", str(tmp_path / "flow")]
    process = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    try:
        end = time.monotonic() + 60
        while not list(tmp_path.glob(".sympformer-*")) and process.poll() is None and time.monotonic() < end:
            time.sleep(0.02)
        assert list(tmp_path.glob(".sympformer-*"))
        process.terminate()
        _, said = process.communicate(timeout=30)
    finally:
        process.kill()
    assert process.returncode == 143
    assert said.splitlines()[-1] == "sympformer: stopped"
    assert "Traceback" not in said
    assert list(tmp_path.iterdir()) == []
