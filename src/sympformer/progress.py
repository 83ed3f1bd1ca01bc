"""Progress: on a terminal a bar where the work is long; elsewhere a line every few seconds, so that a log has life."""

import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Self

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

    def speak() -> None:
        while not over.wait(float(os.environ.get("SYMPFORMER_INTERVAL", INTERVAL))):
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


class Bar:
    """How far some work is: noted for `pulse`, and on a terminal a bar, once the work takes longer than `PATIENCE`.

    total: of whatever is counted; None where nobody knows. show: True always, False never, None on a terminal.
    """

    def __init__(self, what: str, total: float | None = None, show: bool | None = None) -> None:
        self.what, self.total = what, total
        self._show = sys.stderr.isatty() if show is None else show
        self._started = time.monotonic()
        self._bar: Any = None

    def update(self, done: float, figures: str = "") -> None:
        """So much is done; figures: what else to show."""
        counted = f"{self.what} {done:,} of {self.total:,}" if self.total is not None else self.what
        under_way(", ".join(filter(None, (counted, figures))))
        if self._show and self._bar is None and time.monotonic() - self._started > PATIENCE:
            self._bar = _rich_bar()
            self._task = self._bar.add_task(self.what, total=self.total, figures="")
            self._bar.start()
        if self._bar is not None:
            self._bar.update(self._task, completed=done, figures=figures)

    def say(self, text: str) -> None:
        """A line on stderr, above the bar."""
        if self._bar is not None:
            self._bar.console.print(text, markup=False, highlight=False, soft_wrap=True)
        else:
            print(text, file=sys.stderr, flush=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if self._bar is not None:
            self._bar.stop()


def _rich_bar() -> Any:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    what, figures = TextColumn("{task.description}"), TextColumn("{task.fields[figures]}")
    columns = (what, MofNCompleteColumn(), BarColumn(20), figures, TimeRemainingColumn())
    return Progress(*columns, console=Console(stderr=True), transient=True)


def steps_with_progress(total: int, description: str, show: bool | None = None) -> Iterator[int]:
    """Yield 0 .. total-1 under a bar."""
    with Bar(description, total, show) as bar:
        for i in range(total):
            if show is not False:
                bar.update(i)
            yield i
