"""Run by the tests under torchrun: `paced.py FOLDER SECONDS train ...` is `sympformer train ...` with slow steps.

Before every step each process writes its id and the step to FOLDER/RANK, so that a test can aim a signal.
"""

import os
import sys
import time
from pathlib import Path

import torch

from sympformer import cli
from sympformer.training.trainer import Trainer


def slow_down(folder: Path, seconds: float) -> None:
    """Let every step take `seconds` longer."""
    original, rank = Trainer.step, os.environ.get("RANK", "0")

    def step_slowly(self: Trainer, step: int) -> None:
        note = folder / f"{rank}.new"
        note.write_text(f"{os.getpid()} {step}")
        note.replace(folder / rank)
        time.sleep(seconds)
        original(self, step)

    Trainer.step = step_slowly  # type: ignore[method-assign]


if __name__ == "__main__":
    torch.set_num_threads(1)
    slow_down(Path(sys.argv[1]), float(sys.argv[2]))
    sys.exit(cli.main(sys.argv[3:]))
