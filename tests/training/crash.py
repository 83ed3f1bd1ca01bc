"""Run by a test in a process of its own: `python crash.py CONFIG.yaml KILLS SEED`.

Starts the run in a child, kills it with SIGKILL at a random moment, resumes it, and so on; then lets it end. Prints how
many of the kills fell into a checkpoint being written.
"""

import os
import random
import signal
import sys
import time
from pathlib import Path

import torch
import torch._dynamo  # torch's optimizers import it: here once, not in every child

from sympformer.training import TrainConfig, load_config, run_training
from sympformer.training.run import is_run


def child(config: TrainConfig) -> int:
    """Run or resume in a new process; returns its id."""
    pid = os.fork()
    if pid == 0:
        torch.set_num_threads(1)
        folder = Path(str(config.out))
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115
        run_training(config, resume=is_run(folder))
        os._exit(0)
    return pid


def main(config: TrainConfig, kills: int, seed: int) -> None:
    moments, writing, killed = random.Random(seed), 0, 0
    folder = Path(str(config.out))
    while killed < kills:
        pid = child(config)
        time.sleep(moments.uniform(0.02, 0.6))
        os.kill(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
        killed += os.WIFSIGNALED(status)
        writing += any(folder.glob("checkpoints/.sympformer-*"))
        if not os.WIFSIGNALED(status):
            break
    _, status = os.waitpid(child(config), 0)
    assert status == 0, status
    print(killed, writing)


if __name__ == "__main__":
    main(load_config(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
