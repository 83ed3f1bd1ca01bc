"""Run the cells of a comparison: several at a time, each in a worker process; what is done is skipped, what was cut is resumed."""

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from sympformer.errors import DivergenceError, InputError
from sympformer.experiments.compare.plan import Cell
from sympformer.training.config import load_config
from sympformer.training.files import write_file
from sympformer.training.metrics import read_metrics
from sympformer.training.run import CONFIG

DIVERGED = "diverged.json"


@dataclass(frozen=True)
class Outcome:
    """What a cell came to. diverged: why there is no loss."""

    validation_loss: float
    seconds: float
    diverged: str | None = None


def outcome(root: Path, cell: Cell, total_steps: int) -> Outcome | None:
    """The outcome of a finished cell; None while it is not. Refuses a folder with a run of another config."""
    folder = root / cell.folder
    if not (folder / CONFIG).is_file():
        return None
    if changed := cell.config.differences(load_config(folder / CONFIG)):
        raise InputError(
            f"{folder} holds a run with other settings ({', '.join(changed)}): choose another --out for a changed comparison"
        )
    if (folder / DIVERGED).is_file():
        found = json.loads((folder / DIVERGED).read_text())
        return Outcome(float("inf"), found["seconds"], found["why"])
    scored = [record for record in read_metrics(folder) if "validation_loss" in record]
    if not scored or scored[-1]["step"] < total_steps:
        return None
    return Outcome(scored[-1]["validation_loss"], scored[-1]["seconds"])


def run_cells(root: Path, cells: Sequence[Cell], total_steps: Sequence[int], jobs: int, label: str) -> list[Outcome]:
    """Train what is not done yet; the outcomes in the order of the cells."""
    found = [outcome(root, cell, total) for cell, total in zip(cells, total_steps, strict=True)]
    missing = [i for i, done in enumerate(found) if done is None]
    with _Board(label, len(cells), len(cells) - len(missing)) as board, _workers(min(jobs, len(missing))) as pool:
        waiting: dict[Future[str | None], int] = {}
        try:
            for i in missing:
                waiting[pool.submit(train_cell, str(root), cells[i])] = i
            while waiting:
                for future in wait(waiting, return_when=FIRST_COMPLETED).done:
                    i = waiting.pop(future)
                    if future.result() == "stopped":
                        raise KeyboardInterrupt
                    done = outcome(root, cells[i], total_steps[i])
                    if done is None:
                        raise InputError(f"{root / cells[i].folder} did not finish; its log.txt may say why")
                    found[i] = done
                    board.finished(cells[i], done)
        except BaseException:
            _stop(pool)
            raise
    return [done for done in found if done is not None]


def train_cell(root: str, cell: Cell) -> str | None:
    """In a worker: train or continue one cell. Returns "stopped" where a signal ended it early."""
    from sympformer.training import run_training

    folder = Path(root) / cell.folder
    resume = (folder / CONFIG).is_file()
    started = time.monotonic()
    try:
        result = run_training(cell.config.replace(out=str(folder)), resume=resume, bar=False)
    except DivergenceError as error:
        write_file(folder / DIVERGED, json.dumps({"why": str(error), "seconds": time.monotonic() - started}))
        return None
    return "stopped" if result.stopped_by is not None else None


# --- workers


@contextmanager
def _workers(jobs: int) -> Iterator[ProcessPoolExecutor]:
    """Processes that share the cores. SIGTERM to this process stops them as Ctrl-C does."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    pool = ProcessPoolExecutor(
        max(1, jobs),
        get_context("spawn"),
        initializer=_start_worker,
        initargs=(max(1, cores // max(1, jobs)), os.getpid()),
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


class _Board:
    """Lines and, on a terminal, a bar for the runs of the grid."""

    def __init__(self, label: str, total: int, done: int) -> None:
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

    def __enter__(self) -> "_Board":
        self._bar.start()
        if self._done:
            self._console.print(f"{self._label}: {self._done} of {self._total} runs are done already", markup=False)
        return self

    def __exit__(self, *error: object) -> None:
        self._bar.stop()

    def finished(self, cell: Cell, done: Outcome) -> None:
        self._done += 1
        what = done.diverged or f"validation loss {done.validation_loss:.4f}"
        self._bar.console.print(
            f"{self._label} {self._done}/{self._total}  {cell.describe()}: {what} ({done.seconds:.0f} s)", markup=False
        )
        self._bar.advance(self._task)
