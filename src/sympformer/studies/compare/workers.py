"""Worker processes that share the cores, stop together and save, and a board that shows how far they are."""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from multiprocessing import get_context
from typing import Any


class Workers:
    """`with Workers(jobs) as workers:` processes that start with the first task and stay for all stages."""

    def __init__(self, jobs: int) -> None:
        self._jobs = jobs
        self._pool: ProcessPoolExecutor | None = None

    def __enter__(self) -> "Workers":
        return self

    def __exit__(self, *error: object) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)

    def run(self, function: Callable[..., Any], tasks: Sequence[tuple[Any, ...]]) -> Iterator[tuple[int, Any]]:
        """Call a module's function on every task; (index, result) as they end. An error or Ctrl-C stops all."""
        if not tasks:
            return
        if self._pool is None:
            self._pool = _start(self._jobs)
        try:
            waiting: dict[Future[Any], int] = {self._pool.submit(function, *task): i for i, task in enumerate(tasks)}
            while waiting:
                for future in wait(waiting, return_when=FIRST_COMPLETED).done:
                    yield waiting.pop(future), future.result()
        except BaseException:
            _stop(self._pool)
            raise


def _start(jobs: int) -> ProcessPoolExecutor:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    threads = max(1, cores // jobs)
    return ProcessPoolExecutor(jobs, get_context("spawn"), initializer=_start_worker, initargs=(threads, os.getpid()))


def _stop(pool: ProcessPoolExecutor) -> None:
    """Ask every worker to save the run in hand and leave."""
    pool.shutdown(wait=False, cancel_futures=True)
    for process in list((pool._processes or {}).values()):
        process.terminate()


def _start_worker(threads: int, parent: int) -> None:
    import torch

    torch.set_num_threads(min(threads, torch.get_num_threads()))  # OMP_NUM_THREADS may ask for fewer
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
