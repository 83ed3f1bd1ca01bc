"""Worker processes that share the cores, stop together and save, and a board that shows how far they are."""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from multiprocessing import get_context
from typing import Any


def in_workers(function: Callable[..., Any], tasks: Sequence[tuple[Any, ...]], jobs: int) -> Iterator[tuple[int, Any]]:
    """Call a module's function on every task; (index, result) as they end. An error or Ctrl-C stops all workers."""
    if not tasks:
        return
    with _workers(min(jobs, len(tasks))) as pool:
        waiting: dict[Future[Any], int] = {}
        try:
            for i, task in enumerate(tasks):
                waiting[pool.submit(function, *task)] = i
            while waiting:
                for future in wait(waiting, return_when=FIRST_COMPLETED).done:
                    yield waiting.pop(future), future.result()
        except BaseException:
            _stop(pool)
            raise


@contextmanager
def _workers(jobs: int) -> Iterator[ProcessPoolExecutor]:
    """SIGTERM to this process stops the workers as Ctrl-C does."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    pool = ProcessPoolExecutor(
        jobs, get_context("spawn"), initializer=_start_worker, initargs=(max(1, cores // jobs), os.getpid())
    )
    on_main_thread = threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGTERM, _interrupt) if on_main_thread else None
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)
        if on_main_thread:
            signal.signal(signal.SIGTERM, before)


def _interrupt(number: int, frame: object) -> None:
    raise KeyboardInterrupt


def _stop(pool: ProcessPoolExecutor) -> None:
    """Ask every worker to save the run in hand and leave."""
    pool.shutdown(wait=False, cancel_futures=True)
    for process in list((pool._processes or {}).values()):
        process.terminate()


def _start_worker(threads: int, parent: int) -> None:
    import torch

    torch.set_num_threads(threads)
    sys.stderr = open(os.devnull, "w")  # noqa: SIM115  every run has its log.txt; lines of several would mix here
    threading.Thread(target=_leave_with, args=(parent,), daemon=True).start()


def _leave_with(parent: int) -> None:
    """A worker whose parent was killed stops too, and saves."""
    while os.getppid() == parent:
        time.sleep(2)
    os.kill(os.getpid(), signal.SIGTERM)


class Board:
    """Lines and, on a terminal, a bar: how many of the runs are done."""

    def __init__(self, label: str, total: int, done: int = 0) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        self._console = Console(stderr=True, soft_wrap=True, highlight=False)
        self._bar: Any = Progress(
            TextColumn(label), MofNCompleteColumn(), BarColumn(bar_width=20), TimeRemainingColumn(),
            console=self._console, transient=True, disable=not sys.stderr.isatty(), refresh_per_second=1,
            speed_estimate_period=3600,
        )  # fmt: skip
        self._task = self._bar.add_task(label, total=total, completed=done)
        self._label, self._total, self._done = label, total, done

    def __enter__(self) -> "Board":
        self._bar.start()
        if self._done:
            self._console.print(f"{self._label}: {self._done} of {self._total} are done already", markup=False)
        return self

    def __exit__(self, *error: object) -> None:
        self._bar.stop()

    def finished(self, what: str) -> None:
        """One more is done."""
        self._done += 1
        self._console.print(f"{self._label} {self._done}/{self._total}  {what}", markup=False)
        self._bar.advance(self._task)
