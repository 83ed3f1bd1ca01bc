"""What a person sees of a run: a progress line on a terminal, plain lines elsewhere, and the log file."""

import sys
import time
from pathlib import Path
from typing import Any, TextIO

from sympformer.progress import under_way


class Reporter:
    """Says things on stderr and in the run's log. A silent one (other processes than the first) says nothing."""

    def __init__(self, total: int, silent: bool = False, bar: bool | None = None) -> None:
        self._silent, self._total = silent, total
        self._file: TextIO | None = None
        self._bar: Any = None
        if not silent and (sys.stderr.isatty() if bar is None else bar):
            self._bar = _make_bar()
            self._task = self._bar.add_task("train", total=total, figures="")

    def open_log(self, path: Path) -> None:
        """From now on, keep what is said in a file too."""
        if not self._silent:
            self._file = path.open("a", encoding="utf-8")

    def start(self) -> None:
        """Show the progress line."""
        if self._bar is not None:
            self._bar.start()

    def say(self, text: str) -> None:
        """A line for the reader and the log."""
        if self._silent:
            return
        if self._bar is not None:
            self._bar.console.print(text, markup=False, highlight=False)
        else:
            print(text, file=sys.stderr, flush=True)
        self.note(text)

    def note(self, text: str) -> None:
        """A line for the log only."""
        if self._file is not None:
            self._file.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {text}\n")
            self._file.flush()

    def update(self, step: int, loss: float, best: float | None, speed: float) -> None:
        """Move the progress line."""
        figures = f"loss {loss:.3f}" + (f"  best {best:.3f}" if best is not None else "") + f"  {speed:,.0f} tok/s"
        under_way(f"step {step} of {self._total}, {figures.replace('  ', ', ')}")
        if self._bar is None:
            return
        self._bar.update(self._task, completed=step, figures=figures)

    def close(self) -> None:
        """Take the progress line away and close the log."""
        if self._bar is not None:
            self._bar.stop()
        if self._file is not None:
            self._file.close()


def _make_bar() -> Any:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    return Progress(
        TextColumn("step"),
        MofNCompleteColumn(),
        BarColumn(bar_width=20),
        TextColumn("{task.fields[figures]}"),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
        refresh_per_second=2,
    )
