"""Progress: on a terminal a bar where the work is long; elsewhere a line every few seconds, so that a log has life."""

import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any

PATIENCE = 2.0  # seconds before a bar appears
INTERVAL = 15.0  # seconds between lines where there is no terminal, unless $SYMPFORMER_INTERVAL says otherwise
_state = {"now": ""}  # what is under way, in words


def under_way(what: str) -> None:
    """Note what is being done and how far it is; `pulse` says it."""
    _state["now"] = what


@contextmanager
def pulse(command: str) -> Iterator[None]:
    """While the block runs, say on stderr every `INTERVAL` seconds what is under way, where stderr is no terminal.

    A thread of its own says it, so that neither a long step nor a wait for other processes is silent. Of several
    processes that torchrun started, the first one speaks.
    """
    if sys.stderr is None or sys.stderr.isatty() or os.environ.get("RANK", "0") != "0":
        yield
        return
    over, started = threading.Event(), time.monotonic()
    try:
        interval = max(float(os.environ["SYMPFORMER_INTERVAL"]), 0.01)
    except (KeyError, ValueError):
        interval = INTERVAL

    def speak() -> None:
        while not over.wait(interval):
            line = f"{command}: {_state['now'] or 'at work'} ({time.monotonic() - started:.0f} s)"
            try:
                print(line, file=sys.stderr, flush=True)
            except (OSError, ValueError):  # nobody reads any more
                return

    under_way("")
    speaker = threading.Thread(target=speak, daemon=True)
    speaker.start()
    try:
        yield
    finally:
        over.set()
        speaker.join()


def steps_with_progress(total: int, description: str, show: bool | None = None) -> Iterator[int]:
    """Yield 0 .. total-1; after `PATIENCE` seconds of work show a bar on stderr.

    show: True always, False never (also not in the lines of `pulse`), None (default) only when stderr is a terminal.
    """
    if show is False:
        yield from range(total)
        return
    if show is None and not sys.stderr.isatty():
        for i in range(total):
            under_way(f"{description} {i} of {total}")
            yield i
        return
    from rich.console import Console
    from rich.progress import Progress

    started = time.monotonic()
    with Progress(console=Console(stderr=True), transient=True, disable=False) as bar:
        task = bar.add_task(description, total=total, visible=False)
        for i in range(total):
            yield i
            bar.update(task, completed=i + 1, visible=time.monotonic() - started > PATIENCE)


class Meter:
    """Counts bytes of text; after `PATIENCE` seconds it shows a line on stderr: share done, megabytes, their rate.

    show: True always, False never, None only when stderr is a terminal.
    """

    def __init__(self, description: str, show: bool | None = None) -> None:
        self.bytes = 0
        self.documents = 0
        self._description = description
        self._show = sys.stderr.isatty() if show is None else show
        self._started = time.monotonic()
        self._bar: Any = None
        self._task: Any = None

    @property
    def seconds(self) -> float:
        """Time since the start."""
        return max(time.monotonic() - self._started, 1e-9)

    @property
    def rate(self) -> float:
        """Megabytes of text a second so far."""
        return self.bytes / 1e6 / self.seconds

    def add(self, documents: int, size: int, done: float | None) -> None:
        """Count some more; done: share of all that is to do, if known."""
        self.bytes += size
        self.documents += documents
        share = "" if done is None else f", {done:.0%}"
        under_way(f"{self._description}: {self.documents:,} documents, {self.bytes / 1e6:,.1f} MB{share}")
        if self._show and self.seconds > PATIENCE:
            self._draw(done)

    def _draw(self, done: float | None) -> None:
        if self._bar is None:
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

            text = TextColumn("{task.description}  {task.fields[state]}")
            self._bar = Progress(BarColumn(), text, TimeRemainingColumn(), console=Console(stderr=True), transient=True)
            self._task = self._bar.add_task(self._description, total=None, state="")
            self._bar.start()
        state = f"{self.documents:,} documents  {self.bytes / 1e6:,.1f} MB  {self.rate:.1f} MB/s"
        self._bar.update(self._task, completed=done or 0, total=None if done is None else 1.0, state=state)

    def __enter__(self) -> "Meter":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()
