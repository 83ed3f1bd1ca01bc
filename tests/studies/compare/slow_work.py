"""Run by a test: `python slow_work.py FOLDER JOBS`: workers that train for ever, and save when told to stop."""

import os
import sys
import time
from pathlib import Path

from sympformer import cli
from sympformer.studies.compare.workers import PATIENCE, Workers
from sympformer.training.signals import StopSignal


def train(folder: str, index: int) -> str:
    """Stands for a run of a grid."""
    with StopSignal(PATIENCE) as stop:
        (Path(folder) / f"pid-{index}").write_text(str(os.getpid()))
        while stop.received is None:
            time.sleep(0.01)
        time.sleep(0.3)  # an echo of the signal comes while it saves
        (Path(folder) / f"saved-{index}").touch()
    return "stopped"


def command(folder: str, jobs: int) -> None:
    """More tasks than workers: none of the waiting ones may begin after the signal."""
    with Workers(jobs) as workers:
        for _, ending in workers.run(train, [(folder, i) for i in range(jobs + 2)]):
            if ending == "stopped":
                raise KeyboardInterrupt


if __name__ == "__main__":
    cli.COMMANDS["slow"] = (f"{__name__}:command", "")
    sys.exit(cli.main(["slow", *sys.argv[1:]]))
