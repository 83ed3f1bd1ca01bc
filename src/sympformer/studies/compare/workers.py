"""Worker processes that share the cores, stop together and save, and a board that shows how far they are.

Every worker has a pipe of its own. It leaves when it is told to, when a signal comes, and when its parent is gone.
"""

import os
import pickle
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing import get_context, parent_process
from multiprocessing.connection import Connection, wait
from types import FrameType
from typing import Any

from sympformer.errors import InputError
from sympformer.machine import usable_cores
from sympformer.progress import under_way

PATIENCE = 30.0  # seconds in which a worker that was told to stop may save; then it is killed
WATCHED = (signal.SIGINT, signal.SIGTERM)


class Workers:
    """`with Workers(jobs) as workers:` processes that start with the first tasks and stay for all stages."""

    def __init__(self, jobs: int) -> None:
        self._jobs = jobs
        self._workers: list[Worker] = []

    def __enter__(self) -> "Workers":
        return self

    def __exit__(self, *error: object) -> None:
        self._stop()

    def run(self, function: Callable[..., Any], tasks: Sequence[tuple[Any, ...]]) -> Iterator[tuple[int, Any]]:
        """Call a module's function on every task; (index, result) as they end. An error or Ctrl-C stops all."""
        try:
            waiting = list(enumerate(tasks))[::-1]
            busy: dict[Connection, tuple[int, Worker]] = {}
            while len(self._workers) < min(self._jobs, len(tasks)):
                self._start()
            idle = list(self._workers)
            while waiting or busy:
                while waiting and idle:
                    worker, (index, task) = idle.pop(), waiting.pop()
                    worker.give(function, task)
                    busy[worker.pipe] = (index, worker)
                for pipe in wait(list(busy)):
                    assert isinstance(pipe, Connection)
                    index, worker = busy.pop(pipe)
                    idle.append(worker)
                    yield index, worker.take()
        except BaseException:
            self._stop()
            raise

    def alone(self, function: Callable[..., Any], task: tuple[Any, ...]) -> Any:
        """The result of one task in a process that has done nothing before, with a worker's threads."""
        with Workers(self._jobs) as fresh:
            ((_, result),) = fresh.run(function, [task])
        return result

    def _start(self) -> None:
        with _held_back():  # a new process has no handlers yet
            self._workers.append(Worker(_threads(self._jobs)))

    def _stop(self) -> None:
        """Ask every worker to save the run in hand and leave; what has not left after a while is killed."""
        workers, self._workers = self._workers, []
        for worker in workers:
            worker.process.terminate()
            worker.pipe.close()  # one that took the signal for an echo finds nothing more to do
        try:
            end = time.monotonic() + PATIENCE
            for worker in workers:
                worker.process.join(max(0.0, end - time.monotonic()))
        finally:  # also where somebody cannot wait
            for worker in workers:
                worker.process.kill()
                worker.process.join()


def _threads(jobs: int) -> int:
    return max(1, usable_cores() // jobs)


class Worker:
    """One process, seen from outside."""

    def __init__(self, threads: int) -> None:
        context = get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=_work, args=(theirs, threads), daemon=False)
        self.process.start()
        theirs.close()

    def give(self, function: Callable[..., Any], task: tuple[Any, ...]) -> None:
        """Something to do."""
        with suppress(BrokenPipeError):  # it has gone: `take` says so
            self.pipe.send_bytes(pickle.dumps((function, task)))

    def take(self) -> Any:
        """What came out; raises what was raised there."""
        try:
            kind, value = pickle.loads(self.pipe.recv_bytes())
        except (EOFError, ConnectionError):
            self.process.join()
            raise InputError(
                f"a worker process was killed ({_ending(self.process.exitcode)}), perhaps for want of memory: "
                "what it had saved is there, the same command goes on"
            ) from None
        if kind == "stopped":
            raise KeyboardInterrupt
        if kind == "error":
            raise value
        return value


def _ending(code: int | None) -> str:
    if code is not None and code < 0:
        with suppress(ValueError):
            return signal.Signals(-code).name
    return f"exit code {code}"


@contextmanager
def _held_back() -> Iterator[None]:
    """Signals wait until the block ends; a process that starts in it has them wait until it asks for them."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, WATCHED)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


# --- inside a worker


def _work(pipe: Connection, threads: int) -> None:
    """Do tasks until there are no more, a signal comes, or the parent is gone."""
    sys.stderr = open(os.devnull, "w")  # noqa: SIM115  every run has its log.txt; lines of several would mix here
    for number in WATCHED:
        signal.signal(number, _leave)
    threading.Thread(target=_leave_with_parent, daemon=True).start()
    try:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, WATCHED)
        import torch

        torch.set_num_threads(min(threads, torch.get_num_threads()))  # OMP_NUM_THREADS may ask for fewer
        while True:
            function, task = pickle.loads(pipe.recv_bytes())
            pipe.send_bytes(_outcome(function, task))
    except (KeyboardInterrupt, EOFError, ConnectionError):
        with suppress(OSError):
            pipe.send_bytes(pickle.dumps(("stopped", None)))


def _outcome(function: Callable[..., Any], task: tuple[Any, ...]) -> bytes:
    try:
        return pickle.dumps(("done", function(*task)))
    except Exception as error:  # noqa: BLE001  the parent raises it again
        error.add_note(traceback.format_exc())  # where it was raised, which pickling forgets
        return pickle.dumps(("error", error))


def _leave(number: int, frame: FrameType | None) -> None:
    """Once: what follows a first signal is its echo."""
    for each in WATCHED:
        signal.signal(each, signal.SIG_IGN)
    raise KeyboardInterrupt


def _leave_with_parent() -> None:
    """A worker whose parent was killed stops too, and saves."""
    parent = parent_process()
    assert parent is not None
    wait([parent.sentinel])
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
        self._note()
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
        self._note()

    def _note(self) -> None:
        under_way(f"{self._label}, {self._done} of {self._total} done")
