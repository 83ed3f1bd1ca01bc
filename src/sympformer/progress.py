"""Progress that shows only when the work is long and someone watches: a bar for steps, a line for streams of text."""

import sys
import time
from collections.abc import Iterator
from types import TracebackType
from typing import Any

PATIENCE = 2.0  # seconds before a bar appears


def steps_with_progress(total: int, description: str, show: bool | None = None) -> Iterator[int]:
    """Yield 0 .. total-1; after `PATIENCE` seconds of work show a bar on stderr.

    show: True always, False never, None (default) only when stderr is a terminal.
    """
    if show is None:
        show = sys.stderr.isatty()
    if not show:
        yield from range(total)
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
