"""Write all or nothing: a folder (`staged_folder`), files into one that may hold others (`staged_files`), a text file
(`write_file`).
"""

import os
import re
import shutil
import socket
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from sympformer.errors import InputError


@contextmanager
def staged_folder(out: Path) -> Iterator[Path]:
    """A temporary folder beside `out` that takes its name when the block ends well, and vanishes when it does not.

    A killed process leaves a hidden folder with another name; the next run on the same machine removes it.
    """
    if "\0" in str(out):
        raise InputError(f"{str(out)!r} cannot be the name of a folder")
    made = [parent for parent in out.absolute().parents if not os.path.exists(parent)]
    work = out.parent / f".{out.name}.partial-{socket.gethostname()}-{os.getpid()}"
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        _remove_leftovers(out)
        work.mkdir()
        try:
            yield work
            _sync(work)
            _replace(work, out)
        finally:
            shutil.rmtree(work, ignore_errors=True)
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
    ground = next(path for path in (out, *out.parents) if path.exists())
    if not ground.is_dir():
        raise InputError(f"cannot write to the folder {out}: {ground} is a file; name another folder")
    folder = None
    try:
        folder = Path(tempfile.mkdtemp(prefix=".sympformer-", dir=ground))
        yield folder
        _publish(folder, out, stale)
    except OSError as error:
        raise InputError(f"cannot write to the folder {out}: {error.strerror or error}") from error
    finally:
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)


def write_file(path: Path, content: str) -> None:
    """Write a text file under a temporary name, then give it its own."""
    work = path.with_name(f".{path.name}.partial-{os.getpid()}")  # several processes may write the same
    try:
        write_synced(work, content.encode())
        os.replace(work, path)
    except BaseException:
        work.unlink(missing_ok=True)
        raise


def write_synced(path: Path, content: bytes) -> None:
    """Write a file and make sure that it is on disk."""
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def remove_partial(folder: Path) -> None:
    """Remove what a killed process left half-written in a folder that no other process uses."""
    for path in folder.glob(".*.partial-*") if folder.is_dir() else ():
        shutil.rmtree(path, ignore_errors=True)


def _remove_leftovers(out: Path) -> None:
    pattern = re.compile(rf"\.{re.escape(out.name)}\.(?:partial|old)-{re.escape(socket.gethostname())}-(\d+)")
    for path in out.parent.iterdir():
        match = pattern.fullmatch(path.name)
        if match and not _alive(int(match.group(1))):
            shutil.rmtree(path, ignore_errors=True)


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def _sync(folder: Path) -> None:
    """Make sure that the content is on disk before the name says that it is."""
    for path in [*folder.iterdir(), folder]:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _replace(work: Path, out: Path) -> None:
    old = out.parent / f".{out.name}.old-{socket.gethostname()}-{os.getpid()}"
    if out.exists():
        out.rename(old)
    work.rename(out)
    shutil.rmtree(old, ignore_errors=True)


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
        os.replace(file, out / file.name)
    for name in {*stale} - {file.name for file in files}:
        (out / name).unlink(missing_ok=True)
