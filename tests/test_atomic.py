"""Locks, staging and leftovers: what other processes, links and kills cannot break."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from sympformer import locks
from sympformer.atomic import HIDDEN, Taken, is_new, one_at_a_time, staged_files, staged_folder, write_file
from sympformer.errors import InputError
from sympformer.locks import Busy, Lock

HOLD = """
import sys, time
from pathlib import Path
from sympformer.atomic import staged_folder
from sympformer.locks import Lock
if sys.argv[1] == "lock":
    lock = Lock(Path(sys.argv[2]))
    print("held", flush=True)
    time.sleep(60)
with staged_folder(Path(sys.argv[2])) as work:
    (work / "half").write_text("half")
    print(work.name, flush=True)
    time.sleep(60)
"""


def hold(what: str, path: Path) -> "subprocess.Popen[str]":
    """Another process that locks a file, or writes a folder, until it is killed."""
    process = subprocess.Popen([sys.executable, "-c", HOLD, what, str(path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    process.said = process.stdout.readline().strip()  # type: ignore[attr-defined]
    return process


def kill(process: "subprocess.Popen[str]") -> None:
    process.send_signal(signal.SIGKILL)
    process.communicate()


def test_a_lock_is_gone_with_its_process(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    other = hold("lock", file)
    with pytest.raises(Busy, match="another process is at work"):
        Lock(file)
    kill(other)
    with Lock(file) as lock:
        assert lock.real


def test_half_written_folders_of_the_living_stay_and_of_the_dead_go(tmp_path: Path) -> None:
    other = hold("folder", tmp_path / "out")
    with staged_folder(tmp_path / "mine"):
        pass
    assert len([path for path in tmp_path.iterdir() if path.name.startswith(HIDDEN)]) == 1
    kill(other)
    with staged_files(tmp_path):  # whatever writes there next
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_without_locks_it_is_said_and_nothing_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(locks, "fcntl", None)
    (tmp_path / f"{HIDDEN}leftover").mkdir()
    for _ in range(2):
        with staged_folder(tmp_path / "out", replace=True) as work:
            (work / "a").write_text("a")
    assert capsys.readouterr().err.count("has no file locks") == 1
    assert (tmp_path / f"{HIDDEN}leftover").exists()
    assert (tmp_path / "out" / "a").exists()


def test_two_that_make_the_same_folder(tmp_path: Path) -> None:
    def write(word: str) -> None:
        with staged_folder(tmp_path / "out") as work:
            (work / "mine").write_text(word)
            if word == "late":
                write("early")

    with pytest.raises(Taken, match="is in use by now"):
        write("late")
    assert (tmp_path / "out" / "mine").read_text() == "early"
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_one_at_a_time_leaves_no_trace(tmp_path: Path) -> None:
    with one_at_a_time(tmp_path / "new" / "out"):
        assert [path.name for path in (tmp_path / "new").iterdir()] == [".out.lock"]
        with pytest.raises(Busy):
            Lock(tmp_path / "new" / ".out.lock")
        (tmp_path / "new" / "out").mkdir()
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["out"]


def test_a_link_leads_to_its_folder(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "out").symlink_to(tmp_path / "disk")
    with staged_folder(tmp_path / "out") as work:
        (work / "a").write_text("a")
    assert (tmp_path / "out").is_symlink()
    assert (tmp_path / "disk" / "a").read_text() == "a"


def test_a_mount_point_is_filled_and_not_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "lost+found").mkdir()
    (out / f"{HIDDEN}leftover").mkdir()
    before = out.stat().st_ino
    order: list[str] = []
    real = Path.rename

    def rename(path: Path, to: Path) -> Path:
        order.append(path.name)
        return real(path, to)

    monkeypatch.setattr("os.path.ismount", lambda path: Path(path) == out)
    monkeypatch.setattr(Path, "rename", rename)
    assert is_new(out)
    with staged_folder(out, last="b") as work:
        assert work.parent == out  # on the same disk
        for name in "cba":
            (work / name).write_text(name)
    assert out.stat().st_ino == before
    assert sorted(path.name for path in out.iterdir()) == ["a", "b", "c", "lost+found"]
    assert order[-1] == "b"
    with pytest.raises(Taken), staged_folder(out) as work:
        pass


def test_temporary_names_cannot_be_foreseen_and_no_link_is_followed(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("precious")
    for name in (".r.html.partial", f"{HIDDEN}r.html"):
        (tmp_path / name).symlink_to(precious)
    (tmp_path / "r.html").symlink_to(precious)
    seen = []
    real = os.replace

    def replace(work: Path, path: Path) -> None:
        seen.append(work.name)
        real(work, path)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sympformer.atomic.os.replace", replace)
        for _ in range(2):
            write_file(tmp_path / "r.html", "page")
    assert precious.read_text() == "precious"
    assert (tmp_path / "r.html").read_text() == "page"
    assert len(set(seen)) == 2
    assert all(name.startswith(HIDDEN) and len(name) > len(HIDDEN) + 12 for name in seen)


def test_folders_that_cannot_be(tmp_path: Path) -> None:
    for name in ("a\0b", "x" * 300):
        with pytest.raises(InputError, match="cannot"), staged_folder(tmp_path / "new" / name):
            pass
    assert list(tmp_path.iterdir()) == []


def test_pipes_devices_and_folders_are_not_replaced(tmp_path: Path) -> None:
    """For root, a page written to /dev/null would take the place of the device."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()

    def publish(name: str) -> None:
        with staged_files(tmp_path) as work:
            (work / name).write_text("page")

    for name in ("pipe", "folder"):
        with pytest.raises(InputError, match="something else than a file is there"):
            write_file(tmp_path / name, "page")
        with pytest.raises(InputError, match="something else than a file is there"):
            publish(name)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["folder", "pipe"]
    assert (tmp_path / "pipe").is_fifo()
