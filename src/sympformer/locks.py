"""Locks that the kernel holds for a process and lets go of when it dies, however it dies: no process id is judged.

`flock` on a file that is open. A container that starts anew finds no lock of the one before. Where a system or a
network disk has no such locks, that is said once, and two commands must not write into one folder at the same time.
"""

import errno
import os
import sys
from pathlib import Path
from typing import Literal

from sympformer.errors import InputError

try:
    import fcntl
except ImportError:  # not a Unix system
    fcntl = None  # type: ignore[assignment]

BUSY = (errno.EWOULDBLOCK, errno.EACCES)
CREATE = {"no": os.O_RDONLY, "missing": os.O_RDWR | os.O_CREAT, "new": os.O_RDWR | os.O_CREAT | os.O_EXCL}
_said: set[str] = set()


class Busy(InputError):
    """Another process holds the lock."""


class Lock:
    """An exclusive lock on a file or folder, held until `release` or the end of the process.

    real: False where the system has no locks. descriptor: of the open file.
    """

    def __init__(self, path: Path, wait: bool = False, create: Literal["no", "missing", "new"] = "no") -> None:
        """Raises Busy where another process holds it; wait: stay until it is free. create: make the file first."""
        self.path = path
        while True:
            self.descriptor = _open(path, CREATE[create])
            try:
                self.real = _take(self.descriptor, path, wait)
                if _same(self.descriptor, path):
                    return
            except BaseException:
                self.release()
                raise
            self.release()  # somebody has removed the file meanwhile
            if create != "missing":
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))

    def release(self) -> None:
        """Let go."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1

    def __enter__(self) -> "Lock":
        return self

    def __exit__(self, *error: object) -> None:
        self.release()


def _open(path: Path, how: int) -> int:
    """No link is followed, and nothing waits for a writer at the other end of a pipe."""
    return os.open(path, how | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)


def _take(descriptor: int, path: Path, wait: bool) -> bool:
    """Whether there is a lock to take."""
    if fcntl is not None:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            return True
        except OSError as error:
            if error.errno in BUSY:
                raise Busy(f"another process is at work on {path}: wait for it, or choose another place") from None
    if str(path.parent) not in _said:
        _said.add(str(path.parent))
        print(f"{path.parent} has no file locks: let only one command at a time write there", file=sys.stderr)
    return False


def _same(descriptor: int, path: Path) -> bool:
    """Whether the path still names the file that is open."""
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path, follow_symlinks=False))
    except FileNotFoundError:
        return False
