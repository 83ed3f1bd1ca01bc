"""Runs of a comparison are processes, `python -m MODULE ...`, so many at a time, that save and leave together.

A child leaves (and saves) when it is told to, when a signal comes, and when its parent is gone: its standard input is a
pipe from the parent, and `be_child` waits for the end of it.
"""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from tempfile import TemporaryFile
from typing import IO, NoReturn

from sympformer.errors import InputError, SympformerError

PATIENCE = 30.0  # seconds in which a child that was told to stop may save; then it is killed
STOPPED = (128 + signal.SIGINT, 128 + signal.SIGTERM, -signal.SIGINT, -signal.SIGTERM)


class Child:
    """`python -m` with some words: a process, and what it says, kept in files, as a full pipe would stop it."""

    def __init__(self, words: Sequence[str], environment: Mapping[str, str]) -> None:
        self.out, self.err = TemporaryFile(), TemporaryFile()  # noqa: SIM115  `close` closes them
        self.process = subprocess.Popen(
            [sys.executable, "-m", *words], env=environment, stdin=subprocess.PIPE, stdout=self.out, stderr=self.err
        )

    def result(self) -> str:
        """What it printed; raises what made it end."""
        code = self.process.returncode
        if code in STOPPED:
            raise KeyboardInterrupt
        if code < 0:
            raise InputError(
                f"a worker process was killed ({signal.Signals(-code).name}), perhaps for want of memory: "
                "what it had saved is there, the same command goes on"
            )
        if code == 2:
            raise InputError(_text(self.err).strip().rpartition("\n")[2].removeprefix("sympformer: error: "))
        if code:
            raise RuntimeError(f"a worker process failed:\n{_text(self.err)}")
        return _text(self.out)

    def close(self) -> None:
        """Let go of it, once it has ended."""
        self.process.communicate()  # closes the pipe
        self.out.close()
        self.err.close()


def run_all(commands: Sequence[Sequence[str]], jobs: int, threads: int, **variables: str) -> Iterator[tuple[int, str]]:
    """Run them all, `jobs` at a time: (index, what it printed) as they end. What ends this generator stops all of them.

    variables: of the children's environment, besides their number of threads.
    """
    waiting, running = list(enumerate(commands))[::-1], dict[int, Child]()
    asked = os.environ.get("OMP_NUM_THREADS", "")  # perhaps for fewer
    threads = min(threads, int(asked)) if asked.isdigit() and int(asked) else threads
    environment = os.environ | variables | {"OMP_NUM_THREADS": str(threads)}
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                index, command = waiting.pop()
                running[index] = Child(command, environment)
            for index in [index for index, child in running.items() if child.process.poll() is not None]:
                with closing(running.pop(index)) as child:
                    text = child.result()
                yield index, text
            time.sleep(0.02)
    finally:
        _stop(list(running.values()))


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode(errors="replace")


def _stop(left: Sequence[Child]) -> None:
    """Tell all to save and leave; what has not left after a while is killed."""
    for child in left:
        child.process.terminate()
    end = time.monotonic() + PATIENCE
    try:
        for child in left:
            with suppress(subprocess.TimeoutExpired):
                child.process.wait(max(0.0, end - time.monotonic()))
    finally:  # also where somebody cannot wait
        for child in left:
            child.process.kill()
            child.close()


def be_child(main: Callable[[list[str]], str]) -> NoReturn:
    """Be a child: do what the words say, print what comes of it, end in a way that `Child.result` understands.

    When the parent is gone, however it went, stop as if told to.
    """

    def leave_with_parent() -> None:
        os.read(0, 1)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=leave_with_parent, daemon=True).start()
    try:
        print(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)
    except (SympformerError, OSError) as error:
        print(f"sympformer: error: {error}", file=sys.stderr)
        sys.exit(2)
    sys.exit(0)
