"""Run a command in this process: what it said, how it ended, and whether it broke a promise."""

import contextlib
import io
import os
import resource
import signal
import traceback
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

from sympformer import cli

HANG = int(os.environ.get("SYMPFORMER_HARNESS_PATIENCE", "30"))  # seconds
MEMORY, ADDRESSES = 2_000_000, 16 << 30  # kB, bytes


_largest = [0]


class Hang(BaseException):
    """A command took too long."""


@dataclass
class Tally:
    """Counts of broken promises, with an example of each kind."""

    cases: int = 0
    broken: Counter[str] = field(default_factory=Counter)
    examples: list[str] = field(default_factory=list)

    def note(self, kind: str, what: str) -> None:
        self.broken[kind] += 1
        self.examples.append(f"{kind}: {what}")


@dataclass(frozen=True)
class Ending:
    """How a command ended. broken: the promise it broke, if it did."""

    code: int | None
    out: str
    err: str
    broken: str | None = None


def run(*args: str) -> Ending:
    """A command line, with an alarm."""
    out, err = io.StringIO(), io.StringIO()
    code: Any = None
    try:
        with alarm(), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = cli.main(args)
    except Hang:
        return Ending(None, out.getvalue(), err.getvalue(), f"hang over {HANG} s")
    except Exception:  # noqa: BLE001  this is what is counted
        return Ending(None, out.getvalue(), traceback.format_exc(), "traceback")
    if (largest := resource.getrusage(resource.RUSAGE_SELF).ru_maxrss) > max(MEMORY, _largest[0]):
        _largest[0] = largest  # it never becomes less: each time counts once
        return Ending(code, out.getvalue(), err.getvalue(), "memory over 2 GB")
    said = err.getvalue()
    if "Traceback" in said:
        return Ending(code, out.getvalue(), said, "traceback")
    if code == 2 and not said.strip().splitlines()[-1].startswith("sympformer: error: "):
        return Ending(code, out.getvalue(), said, "no sentence")
    return Ending(code, out.getvalue(), said)


@contextlib.contextmanager
def alarm() -> Iterator[None]:
    def ring(number: int, frame: FrameType | None) -> None:
        raise Hang

    before = signal.signal(signal.SIGALRM, ring)
    limits = resource.getrlimit(resource.RLIMIT_AS)
    signal.setitimer(signal.ITIMER_REAL, HANG)
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESSES, limits[1]))  # the machine is not to suffer
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limits)
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@contextlib.contextmanager
def inside(folder: Path) -> Iterator[None]:
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)
