"""Write all or nothing: a folder (`staged_folder`), files into one that may hold others (`staged_files`), a text file
(`write_file`).

Half-written things have hidden random names and are locked by the process that writes them. What a killed process left
is not locked any more: the next one that writes in the same place removes it.
"""

import errno
import os
import secrets
import shutil
import stat
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal

from sympformer.errors import InputError
from sympformer.locks import Busy, Lock

HIDDEN = ".sympformer-"  # begins the name of all that is half-written, or replaced and not yet removed


class Taken(InputError):
    """Something else stands where a new folder was to go."""


@contextmanager
def staged_folder(out: Path, replace: bool = False, last: str | None = None) -> Iterator[Path]:
    """A temporary folder that becomes `out` when the block ends well, and vanishes when it does not.

    replace: take the place of what is there; otherwise `out` must be new or empty when the block ends.
    last: the file that says that the folder is whole. Where `out` is a mount point, which no folder can replace, the
    files move into it one by one, this one last.
    """
    out = _real(out)
    with _place_for(out):
        mounted = os.path.ismount(out)
        for place in (out.parent, out):
            remove_leftovers(place)
        with _hidden_folder(out if mounted else out.parent) as work:
            yield work
            _sync(work)
            if mounted:
                _move_into(work, out, replace, last)
            else:
                _rename(work, out, replace)


@contextmanager
def one_at_a_time(out: Path) -> Iterator[None]:
    """Only one process at a time makes what will stand at `out`; the others wait.

    The lock is a hidden file beside it that goes with the last of them.
    """
    out = _real(out)
    file = out.parent / f".{out.name[:100]}.lock"
    with _place_for(out):
        try:
            lock = Lock(file, create="missing")
        except Busy:
            print(f"waiting for another process that writes {out}", file=sys.stderr, flush=True)
            lock = Lock(file, wait=True, create="missing")
        with lock:
            try:
                yield
            finally:
                file.unlink(missing_ok=True)


def _real(out: Path) -> Path:
    """Through a link, to where it points."""
    if "\0" in str(out):
        raise InputError(f"{str(out)!r} cannot be the name of a folder")
    return Path(os.path.realpath(out))


@contextmanager
def _place_for(out: Path) -> Iterator[None]:
    """Make the folders above `out`; those that stay empty because the block fails are removed."""
    made = [parent for parent in out.parents if not os.path.exists(parent)]
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        _remove_empty(made)
        raise InputError(f"cannot write {out}: {error.strerror or error}") from error
    except BaseException:
        _remove_empty(made)
        raise


@contextmanager
def staged_files(out: Path, stale: Iterable[str] = ()) -> Iterator[Path]:
    """A folder to write into. When the block ends its files move to `out`; when it fails they vanish.

    The folder is made at once, beside the place where the files will go, so that an `out` that cannot be written to
    is found before the work and not after it. stale: names in `out` that an earlier run may have left; those that
    this run does not write again are removed.
    """
    out = out.absolute()
    ground = next(path for path in (out, *out.parents) if os.path.exists(path))
    if not ground.is_dir():
        raise InputError(f"cannot write to the folder {out}: {ground} is a file; name another folder")
    try:
        remove_leftovers(ground)
        with _hidden_folder(ground) as folder:
            yield folder
            _publish(folder, out, stale)
    except OSError as error:
        raise InputError(f"cannot write to the folder {out}: {error.strerror or error}") from error


def write_file(path: Path, content: str) -> None:
    """Write a text file under a temporary name, then give it its own."""
    _check_place(path)
    with _hidden(path.parent, "new") as lock:
        try:
            _write(lock.descriptor, content.encode())
            os.replace(lock.path, path)
        except BaseException:
            lock.path.unlink(missing_ok=True)
            raise


def _check_place(path: Path) -> None:
    """A new file takes the place of a file or a link, never of a device, a pipe or a folder."""
    try:
        mode = os.lstat(path).st_mode
    except (OSError, ValueError):
        return  # nothing is there, or what follows will say what is wrong
    if not stat.S_ISREG(mode) and not stat.S_ISLNK(mode):
        raise InputError(f"cannot write {path}: something else than a file is there; give another name")


def write_synced(path: Path, content: bytes) -> None:
    """Write a new file and make sure that it is on disk."""
    with path.open("xb") as file:
        _write(file.fileno(), content)


def remove_leftovers(folder: Path) -> None:
    """Remove what killed processes left half-written in a folder; what a living one writes is locked and stays."""
    try:
        found = [Path(entry.path) for entry in os.scandir(folder) if entry.name.startswith(HIDDEN)]
    except OSError:
        return  # what follows will say what is wrong with the folder
    for path in found:
        with suppress(OSError, Busy), Lock(path) as lock:
            if lock.real:
                _remove(path)


def is_new(folder: Path) -> bool:
    """Whether a new folder may go there: nothing is there, or a folder with nothing in it but leftovers."""
    try:
        os.lstat(folder)
    except FileNotFoundError:
        return True
    except (OSError, ValueError) as error:  # ValueError: a character that no name has
        raise InputError(f"cannot write {folder}: {getattr(error, 'strerror', error)}") from error
    return folder.is_dir() and not _content(folder)


def _content(folder: Path) -> list[Path]:
    """What is in a folder, without leftovers and what a fresh disk brings along."""
    return [path for path in folder.iterdir() if not path.name.startswith(HIDDEN) and path.name != "lost+found"]


@contextmanager
def _hidden_folder(parent: Path) -> Iterator[Path]:
    """A new locked folder with a hidden name; what is still there when the block ends is removed."""
    with _hidden(parent, "folder") as lock:
        try:
            yield lock.path
        finally:
            shutil.rmtree(lock.path, ignore_errors=True)


def _hidden(parent: Path, what: Literal["new", "folder"]) -> Lock:
    """A new locked file or folder with a hidden name that nobody can foresee."""
    tries = 10
    while True:
        path, tries = parent / f"{HIDDEN}{secrets.token_hex(8)}", tries - 1
        try:
            if what == "new":
                return Lock(path, create="new")
            path.mkdir()
            return Lock(path, wait=True)
        except (FileExistsError, FileNotFoundError):  # another process has just taken it for a leftover
            if not tries:
                raise


def _write(descriptor: int, content: bytes) -> None:
    left = memoryview(content)
    while left:
        left = left[os.write(descriptor, left) :]
    os.fsync(descriptor)


def _remove(path: Path) -> None:
    if stat.S_ISDIR(os.lstat(path).st_mode):
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _sync(folder: Path) -> None:
    """Make sure that the content is on disk before the name says that it is."""
    for path in [*folder.rglob("*"), folder]:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _rename(work: Path, out: Path, replace: bool) -> None:
    """One call that cannot replace a folder with something in it."""
    if replace and os.path.exists(out):
        old = out.parent / f"{HIDDEN}{secrets.token_hex(8)}"
        out.rename(old)
        work.rename(out)
        shutil.rmtree(old, ignore_errors=True)
        return
    try:
        work.rename(out)
    except (FileExistsError, NotADirectoryError) as error:
        raise _taken(out) from error
    except OSError as error:
        if error.errno == errno.ENOTEMPTY:
            raise _taken(out) from error
        raise


def _move_into(work: Path, out: Path, replace: bool, last: str | None) -> None:
    """What is in `work` to `out`, which stays the folder it is."""
    there = _content(out)
    if there and not replace:
        raise _taken(out)
    for path in sorted(there, key=lambda path: path.name != last):
        _remove(path)
    for path in sorted(work.iterdir(), key=lambda path: path.name == last):
        path.rename(out / path.name)


def _taken(out: Path) -> Taken:
    return Taken(f"{out} is in use by now: another process has written there; choose another place")


def _remove_empty(folders: list[Path]) -> None:
    for folder in folders:
        try:
            folder.rmdir()
        except OSError:
            return


def _publish(folder: Path, out: Path, stale: Iterable[str]) -> None:
    files = sorted(folder.iterdir())
    out.mkdir(parents=True, exist_ok=True)
    for file in files:
        _check_place(out / file.name)
        os.replace(file, out / file.name)
    for name in {*stale} - {file.name for file in files}:
        (out / name).unlink(missing_ok=True)
