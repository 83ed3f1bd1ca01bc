"""Run by a test: `python slow_work.py` with FOLDER and JOBS in the environment: children that work for ever, and save
when told to stop; `python -m slow_work INDEX` is one of them."""

import os
import signal
import sys
import time
from pathlib import Path

from sympformer import cli
from sympformer.studies.compare import children

FOLDER, JOBS = Path(os.environ["FOLDER"]), int(os.environ["JOBS"])


def child(words: list[str]) -> str:
    """Stands for a run: a signal is a wish, as it is in training, and so are its echoes."""
    received: list[int] = []
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, frame: received.append(number))
    (FOLDER / f"made-{words[0]}").write_text(str(os.getpid()))
    (FOLDER / f"made-{words[0]}").rename(FOLDER / f"pid-{words[0]}")  # whole when it is there
    while not received:
        time.sleep(0.01)
    time.sleep(0.3)  # an echo of the signal comes while it saves
    (FOLDER / f"saved-{words[0]}").touch()
    raise KeyboardInterrupt


def command() -> None:
    """More tasks than children: none of the waiting ones may begin after the signal."""
    for _ in children.run_all([["slow_work", str(i)] for i in range(JOBS + 2)], JOBS, 1):
        pass


if __name__ == "__main__":
    if len(sys.argv) > 1:
        children.be_child(child)
    cli.COMMANDS["slow"] = (f"{__name__}:command", "")
    sys.exit(cli.main(["slow"]))
