"""A progress bar that appears only when the work is long and someone watches."""

import sys
import time
from collections.abc import Iterator

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
