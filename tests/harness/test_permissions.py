"""Folders that cannot be written to, files that cannot be read, full disks: one sentence, nothing half-written.

Whoever runs the tests may be root, whom no permission stops: the power to pass them over is laid down for a while.
"""

import ctypes
import os
import resource
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.harness.artefacts import COMPARE, TRAIN
from tests.harness.guard import inside, run

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="capabilities are Linux's"),
    pytest.mark.filterwarnings("ignore"),
]
VERSION, PASS_OVER = 0x20080522, 0b110  # of capset; CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH
RESUME = ["train", "--resume=true", "--out=run"]
NEW_RUN = [*TRAIN[:-1], "--out=new"]
PREPARE = ["data", "prepare", "--corpus=storybook:80", "--tokenizer=byte", "--out=new"]
# what cannot be written to, a command
READ_ONLY: list[tuple[str, list[str]]] = [
    (".", ["export", "run", "new"]),
    (".", ["compare", "small.yaml", "--out=new"]),
    (".", ["audit", "run", "--length=4", "--json=new"]),
    (".", NEW_RUN),
    (".", PREPARE),
    ("run", RESUME),
    ("compare", COMPARE),
]
# what cannot be read, a command
UNREADABLE: list[tuple[str, list[str]]] = [
    ("run", ["sample", "run"]),
    ("run/train.yaml", ["export", "run", "new"]),
    ("run/config.json", RESUME),
    ("run/metrics.jsonl", ["report", "run", "--out=new"]),
    ("run/checkpoints", ["audit", "run", "--length=4"]),
    ("data/sheet.json", ["eval", "run", "--data=data"]),
    ("data/validation.bin", RESUME),
    ("export/config.json", ["audit", "export", "--length=4"]),
    ("export/model.safetensors", ["sample", "export"]),
    ("export/tokenizer.json", ["eval", "export", "--data=data"]),
    ("small.yaml", COMPARE),
    ("compare/steps.json", COMPARE),
    ("compare/runs", COMPARE),
]
# a command, bytes of the largest file that the system lets it write, what may be left
FULL: list[tuple[list[str], int, bool]] = [
    (["export", "run", "new"], 12_000, False),  # not even the weights, which a library of its own writes
    (["export", "run", "new"], 17_000, False),
    (["compare", "small.yaml", "--out=new"], 9_000, True),
    (["compare", "small.yaml", "--out=compare"], 9_000, True),  # all is trained: only tables and pages are written
    (["audit", "run", "--length=4", "--json=new"], 500, False),
    (NEW_RUN, 9_000, True),
    (PREPARE, 9_000, False),
]


@contextmanager
def ordinary_user() -> Iterator[None]:
    """Permissions hold within the block."""
    libc = ctypes.CDLL(None, use_errno=True)
    header, sets = (ctypes.c_uint32 * 2)(VERSION, 0), (ctypes.c_uint32 * 6)()
    assert libc.capget(header, sets) == 0
    before = sets[0]  # in effect
    sets[0] = before & ~PASS_OVER
    assert libc.capset(header, sets) == 0
    try:
        yield
    finally:
        sets[0] = before
        assert libc.capset(header, sets) == 0


@contextmanager
def permissions(path: Path, mode: int) -> Iterator[None]:
    before = path.stat().st_mode
    path.chmod(mode)
    try:
        with ordinary_user():
            yield
    finally:
        path.chmod(before)


@contextmanager
def largest_file(size: int) -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.fixture
def copy(one_of_everything: Path, tmp_path: Path) -> Iterator[Path]:
    shutil.copytree(one_of_everything, tmp_path / "copy", symlinks=True, ignore=shutil.ignore_patterns("fifo*"))
    with inside(tmp_path / "copy"):
        yield tmp_path / "copy"


def refused(*command: str) -> str:
    """The sentence with which a command ends."""
    ending = run(*command)
    assert (ending.code, ending.broken) == (2, None), ending
    return ending.err.strip().splitlines()[-1]


def named(case: tuple[object, ...]) -> str:
    return "-".join(" ".join(part[:2]) if isinstance(part, list) else str(part) for part in case)


@pytest.mark.parametrize(("place", "command"), READ_ONLY, ids=map(named, READ_ONLY))
def test_places_that_cannot_be_written_to(place: str, command: list[str], copy: Path) -> None:
    with permissions(copy / place, 0o555):
        assert "Permission denied" in refused(*command)
    assert not (copy / "new").exists()
    assert not list(copy.rglob(".sympformer-*"))


@pytest.mark.parametrize(("file", "command"), UNREADABLE, ids=map(named, UNREADABLE))
def test_files_that_cannot_be_read(file: str, command: list[str], copy: Path) -> None:
    with permissions(copy / file, 0):
        sentence = refused(*command)
    assert "Permission denied" in sentence
    assert os.path.basename(file) in sentence
    assert not (copy / "new").exists()


@pytest.mark.parametrize(("command", "size", "may_stay"), FULL, ids=map(named, FULL))
def test_disks_that_are_full(command: list[str], size: int, may_stay: bool, copy: Path) -> None:
    with largest_file(size):
        assert "too large" in refused(*command)
    assert may_stay or not (copy / "new").exists()
    assert not list(copy.rglob(".sympformer-*"))
    if may_stay:  # what is there is of use
        assert run(*(command if command[0] == "compare" else [*RESUME[:-1], "--out=new"])).code == 0
