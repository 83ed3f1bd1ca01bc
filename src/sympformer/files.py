"""Write all or nothing, one writer at a time: a folder or file has a hidden name until it is whole and on disk.

The kernel holds every lock for its process and lets go of it however the process dies. What a killed process left half
written is not locked any more: the next one that writes in the same place removes it.
"""

import hashlib
import json
import os
import secrets
import shutil
import stat
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from sympformer.config_checks import parse_yaml
from sympformer.errors import InputError

HIDDEN = ".sympformer-"  # begins the name of all that is half-written, and of locks
FRESH = 60.0  # seconds within which a hidden file may still be at work


class Busy(InputError):
    """Another process is at work there, or has been in the meantime."""


@contextmanager
def locked(place: Path, wait: bool = False) -> Iterator[None]:
    """Only one process at a time in the block. The lock is a hidden file beside `place`, and goes with the block."""
    place = Path(os.path.realpath(place))
    lock = FileLock(place.parent / f"{HIDDEN}{place.name[:100]}.lock")
    with _writing(place):
        place.parent.mkdir(parents=True, exist_ok=True)
        try:
            lock.acquire(timeout=0)
        except Timeout:
            if not wait:
                raise Busy(f"another process is at work on {place}: wait for it, or choose another place") from None
            print(f"waiting for another process that writes {place}", file=sys.stderr, flush=True)
            lock.acquire()
    try:
        yield
    finally:
        Path(lock.lock_file).unlink(missing_ok=True)  # while it is held: who waits for it sees that and makes a new one
        lock.release()


@contextmanager
def new_folder(out: Path) -> Iterator[Path]:
    """A hidden folder that becomes `out` when the block ends well and vanishes when it does not. `out` must be free."""
    check_new(out)
    out = Path(os.path.realpath(out))
    made = [parent for parent in out.parents if not parent.exists()]
    work = out.parent / f"{HIDDEN}{secrets.token_hex(8)}"
    try:
        with _writing(out), locked(work):
            try:
                tidy(out.parent)
                work.mkdir()
                yield work
                for path in (*work.rglob("*"), work):
                    _sync(path)
                _rename(work, out)
            finally:
                shutil.rmtree(work, ignore_errors=True)
    finally:
        for parent in made:
            with suppress(OSError):  # something is in it
                parent.rmdir()


def write(path: Path, content: str | bytes) -> None:
    """Write a file under a hidden name, make sure that it is on disk, then give it its own name."""
    work = path.parent / f"{HIDDEN}{secrets.token_hex(8)}"
    try:
        with _writing(path):
            if path.exists() and not path.is_file():
                raise InputError(f"cannot write {path}: something else than a file is there; give another name")
            work.write_bytes(content.encode() if isinstance(content, str) else content)
            _sync(work)
            os.replace(work, path)
    finally:
        with suppress(OSError):
            work.unlink(missing_ok=True)


def tidy(folder: Path) -> None:
    """Remove what killed processes left half-written in a folder; what a living one writes is locked, or fresh."""
    for path in folder.glob(f"{HIDDEN}*"):
        with suppress(OSError, Busy):
            if path.suffix == ".lock":
                with FileLock(path).acquire(timeout=0):
                    path.unlink()
            elif path.is_dir():
                with locked(path):
                    shutil.rmtree(path, ignore_errors=True)
            elif time.time() - path.stat().st_mtime > FRESH:
                path.unlink()


def check_new(out: Path) -> None:
    """Refuse a place that holds something."""
    with _writing(out), suppress(FileNotFoundError):
        there = os.lstat(os.path.realpath(out))
        if stat.S_ISDIR(there.st_mode) and all(path.name.startswith(HIDDEN) for path in out.iterdir()):
            return
        raise InputError(f"{out} exists and is left alone: choose another place")


def read_text(path: Path) -> str:
    """The text of a file."""
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        byte = error.object[error.start]
        raise InputError(f"{path} is not UTF-8 text: byte 0x{byte:02x} at offset {error.start}") from error
    except (OSError, ValueError) as error:
        raise InputError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from error


def read_json(path: Path) -> dict[str, Any]:
    """The named values in a JSON file."""
    text = read_text(path)
    try:
        values = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is damaged: it is not JSON ({error})") from error
    if not isinstance(values, dict):
        raise InputError(f"{path} is damaged: it must hold named values, got {type(values).__name__}")
    return values


def read_yaml(path: Path) -> Any:
    """The content of a YAML file, every scalar as the text that stands there: whoever asks knows the types."""
    return parse_yaml(read_text(path), str(path))


def sha256(file: Path) -> str:
    """The checksum of a file."""
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def manifest(folder: Path, names: Iterable[str]) -> dict[str, dict[str, Any]]:
    """What `checked` compares with: name -> bytes and sha256."""
    return {name: {"bytes": (folder / name).stat().st_size, "sha256": sha256(folder / name)} for name in names}


def checked(folder: Path, manifest: dict[str, dict[str, Any]], hashes: bool = True) -> None:
    """Refuse a folder whose files are not as its manifest says."""
    for name, said in manifest.items():
        file = folder / name
        if Path(name).name != name or not file.is_file() or file.stat().st_size != said["bytes"]:
            raise InputError(f"{file} is missing or cut short")
        if hashes and sha256(file) != said["sha256"]:
            raise InputError(f"{file} is damaged: its checksum differs")


def _rename(work: Path, out: Path) -> None:
    """One call that cannot replace a folder with something in it."""
    tidy(out)
    try:
        work.rename(out)
    except OSError as error:
        if os.path.lexists(out):
            raise Busy(f"{out} is in use by now: another process has written there; choose another place") from error
        raise
    _sync(out.parent)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        with suppress(OSError):  # some network disks cannot sync a folder
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def _writing(place: Path) -> Iterator[None]:
    """What the system refuses within the block, in words."""
    try:
        yield
    except OSError as error:
        raise InputError(f"cannot write {place}: {error.strerror or error}") from error
