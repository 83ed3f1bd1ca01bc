"""What may happen to a file, a folder or a disk while a command is at work on it: each a block that it happens within.

Whoever runs the tests may be root, whom no permission stops: the power to pass them over is laid down for a while.
"""

import ctypes
import json
import resource
import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

from sympformer.files import manifest

Harm = Callable[[Path], AbstractContextManager[None]]
VERSION, PASS_OVER = 0x20080522, 0b110  # of capset; CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH


def changed(name: str, change: Callable[[Path], object]) -> Harm:
    @contextmanager
    def harm(path: Path) -> Iterator[None]:
        change(path)
        yield

    harm.__name__ = name
    return harm


def flip(place: float = 0.5) -> Harm:
    """One bit."""

    def change(path: Path) -> None:
        content = bytearray(path.read_bytes())
        content[int(len(content) * place)] ^= 1
        path.write_bytes(content)

    return changed(f"flip {place}", change)


def cut(length: int) -> Harm:
    return changed(f"cut to {length}", lambda path: path.write_bytes(path.read_bytes()[:length]))


def put(content: bytes) -> Harm:
    return changed(f"put {content[:9]!r}", lambda path: path.write_bytes(content))


def swap(old: bytes, new: bytes) -> Harm:
    return changed(f"swap {old!r}", lambda path: path.write_bytes(path.read_bytes().replace(old, new, 1)))


def more(text: str) -> Harm:
    return changed("more", lambda path: path.write_text(path.read_text() + text))


def edited(name: str, change: Callable[[Any], object]) -> Harm:
    """A JSON file with other values."""

    def write(path: Path) -> None:
        values = json.loads(path.read_text())
        change(values)
        path.write_text(json.dumps(values))

    return changed(name, write)


def with_manifest(content: bytes) -> Harm:
    """A file of a checkpoint, and a manifest that says it is right."""

    def change(path: Path) -> None:
        path.write_bytes(content)
        files = path.parent / "manifest.json"
        files.write_text(json.dumps(manifest(path.parent, json.loads(files.read_text()))))

    return changed(f"put {content[:9]!r} and its checksum", change)


gone = changed("gone", lambda path: shutil.rmtree(path) if path.is_dir() else path.unlink())


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


def read_only(path: Path) -> AbstractContextManager[None]:
    return permissions(path, 0o555)


def unreadable(path: Path) -> AbstractContextManager[None]:
    return permissions(path, 0)


def full(size: int) -> Harm:
    """No file becomes larger."""

    @contextmanager
    def harm(path: Path) -> Iterator[None]:
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)

    harm.__name__ = f"full at {size}"
    return harm
