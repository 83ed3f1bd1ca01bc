"""Locks, new folders and files, leftovers: what other processes, links and kills cannot break."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sympformer import files
from sympformer.errors import InputError
from sympformer.files import HIDDEN, Busy, locked, new_folder, read_json, read_yaml, tidy, write

HOLD = """
import sys, time
from pathlib import Path
from sympformer.files import locked, new_folder
with (locked if sys.argv[1] == "lock" else new_folder)(Path(sys.argv[2])) as work:
    print("held", flush=True)
    time.sleep(60)
"""


def hold(what: str, path: Path, code: str = HOLD) -> "subprocess.Popen[str]":
    """Another process that locks a place, or writes a folder, until it is killed."""
    process = subprocess.Popen([sys.executable, "-c", code, what, str(path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def kill(process: "subprocess.Popen[str]") -> None:
    process.kill()
    process.communicate()


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_lock_is_gone_with_its_process_and_leaves_no_trace(tmp_path: Path) -> None:
    other = hold("lock", tmp_path / "new" / "out")
    with pytest.raises(Busy, match="another process is at work"), locked(tmp_path / "new" / "out"):
        pass
    kill(other)
    with locked(tmp_path / "new" / "out"), pytest.raises(Busy), locked(tmp_path / "new" / "out"):
        pass
    assert names(tmp_path / "new") == []


def test_who_waits_says_so_and_comes_next(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = hold("lock", tmp_path / "out", HOLD.replace("time.sleep(60)", "time.sleep(0.5)"))
    with locked(tmp_path / "out", wait=True):
        assert other.wait(5) == 0
    other.communicate()
    assert "waiting for another process that writes" in capsys.readouterr().err


def test_half_written_folders_of_the_living_stay_and_of_the_dead_go(tmp_path: Path) -> None:
    other = hold("folder", tmp_path / "out")
    with new_folder(tmp_path / "mine"):
        pass
    assert len([name for name in names(tmp_path) if name.startswith(HIDDEN)]) == 2  # the folder and its lock
    kill(other)
    (tmp_path / f"{HIDDEN}file").touch()
    os.utime(tmp_path / f"{HIDDEN}file", (0, 0))
    tidy(tmp_path)
    tidy(tmp_path)
    assert names(tmp_path) == ["mine"]


def test_two_that_make_the_same_folder(tmp_path: Path) -> None:
    def make(word: str) -> None:
        with new_folder(tmp_path / "out") as work:
            (work / "mine").write_text(word)
            if word == "late":
                make("early")

    with pytest.raises(Busy, match="is in use by now"):
        make("late")
    assert (tmp_path / "out" / "mine").read_text() == "early"
    assert names(tmp_path) == ["out"]


def test_a_folder_with_something_in_it_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    with new_folder(tmp_path / "out") as work:
        (work / "a").touch()
    with pytest.raises(InputError, match="out exists and is left alone"), new_folder(tmp_path / "out"):
        pass
    mask = os.umask(0)
    os.umask(mask)
    assert (tmp_path / "out").stat().st_mode & 0o777 == 0o777 & ~mask


def test_a_link_leads_to_its_folder(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "out").symlink_to(tmp_path / "disk")
    with new_folder(tmp_path / "out") as work:
        (work / "a").write_text("a")
    assert (tmp_path / "out").is_symlink()
    assert (tmp_path / "disk" / "a").read_text() == "a"


def test_folders_that_cannot_be_leave_nothing(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot write"), new_folder(tmp_path / "new" / ("x" * 300)):
        pass
    with pytest.raises(ZeroDivisionError), new_folder(tmp_path / "new" / "out"):
        raise ZeroDivisionError
    assert names(tmp_path) == []


def test_a_file_takes_the_place_of_a_link_and_of_no_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For root, a page written to /dev/null would take the place of the device."""
    (tmp_path / "precious").write_text("precious")
    (tmp_path / "page").symlink_to(tmp_path / "precious")
    os.mkfifo(tmp_path / "pipe")
    write(tmp_path / "page", "page")
    assert (tmp_path / "precious").read_text() == "precious"
    assert (tmp_path / "page").read_text() == "page"
    for name in ("pipe", ".", "no/page"):
        with pytest.raises(InputError, match="cannot write"):
            write(tmp_path / name, "page")
    monkeypatch.setattr(files.os, "replace", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        write(tmp_path / "page", b"new")
    assert names(tmp_path) == ["page", "pipe", "precious"]


def test_a_manifest_finds_what_is_missing_cut_or_damaged(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("abc")
    said = files.manifest(tmp_path, ["a"])
    files.checked(tmp_path, said)
    for content, pattern in (("abd", "is damaged: its checksum differs"), ("ab", "is missing or cut short")):
        (tmp_path / "a").write_text(content)
        with pytest.raises(InputError, match=pattern):
            files.checked(tmp_path, said)
    with pytest.raises(InputError, match="missing"):
        files.checked(tmp_path, {"../a": said["a"]})


@pytest.mark.parametrize(
    ("content", "pattern"),
    [
        (b"{", "is damaged: it is not JSON"),
        (b"[1]", "must hold named values, got list"),
        (b"\xff{}", "is not UTF-8 text: byte 0xff at offset 0"),
        (b"[" * 100_000, "is damaged"),
        (None, "cannot read .*: No such file"),
    ],
)
def test_json_that_does_not_read(content: bytes | None, pattern: str, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / "x").write_bytes(content)
    with pytest.raises(InputError, match=pattern):
        read_json(tmp_path / "x")


def test_yaml_is_text_until_somebody_knows_the_type(tmp_path: Path) -> None:
    write(tmp_path / "x", "corpus: on\nlr: 3e-4\nat: 1:30\non: [1, no]\nnone:\n")
    assert read_yaml(tmp_path / "x") == {"corpus": "on", "lr": "3e-4", "at": "1:30", "on": ["1", "no"], "none": "null"}
    write(tmp_path / "x", "# nothing\n")
    assert read_yaml(tmp_path / "x") == {}
    for content, pattern in (("a: 1\nb: {c: 1, c: 2}\n", "'c' stands twice in line 2"), ("a: [", "is not YAML")):
        write(tmp_path / "x", content)
        with pytest.raises(InputError, match=pattern):
            read_yaml(tmp_path / "x")
