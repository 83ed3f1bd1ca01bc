"""Run by the tests in processes of its own.

worker.py runs CONFIG.yaml ...        train them, one after the other, under one torchrun or alone; `+` before a
                                      name: resume
worker.py paced FOLDER SECONDS train ...  `sympformer train` with slow steps; before every step each process writes
                                      its id and the step to FOLDER/RANK, so that a test can aim a signal
worker.py killed CONFIG.yaml KILLS    kill a run with SIGKILL at random moments and resume it, then let it end
"""

import os
import random
import signal
import sys
import time
from pathlib import Path

import torch
import torch._dynamo  # torch's optimizers import it: here once, not in every child

from sympformer import cli
from sympformer.training.config import TrainConfig, load_config
from sympformer.training.engine import Engine
from sympformer.training.folder import is_run
from sympformer.training.run import train
from sympformer.training.trainer import Trainer


def runs(files: list[str]) -> None:
    """Only the last one lets go of the processes' group."""
    leave, left = Engine.leave, list[Engine]()

    def leave_at_last(engine: Engine) -> None:
        left.append(engine)
        if len(left) == len(files):
            for other in left:
                other.loss_of = other._shared = None
                if other._mesh is not None:
                    other._mesh._pg_registry.clear()
            leave(engine)

    Engine.leave = leave_at_last  # type: ignore[method-assign,assignment]
    for file in files:
        train(load_config(file.removeprefix("+")), resume=file.startswith("+"), bar=False)
    if "WORLD_SIZE" in os.environ and (tasks := Path("/proc/self/task")).is_dir():  # Linux tells
        alive = {(task / "comm").read_text().strip() for task in tasks.iterdir()}
        assert not any("gloo" in name for name in alive), alive  # a thread that outlives the run can abort its process


def paced(folder: Path, seconds: float, words: list[str]) -> int:
    original, rank = Trainer.step, os.environ.get("RANK", "0")

    def step_slowly(self: Trainer, step: int) -> None:
        note = folder / f"{rank}.new"
        note.write_text(f"{os.getpid()} {step}")
        note.replace(folder / rank)
        time.sleep(seconds)
        original(self, step)

    Trainer.step = step_slowly  # type: ignore[method-assign]
    return cli.main(words)


def child(config: TrainConfig) -> int:
    """Run or resume in a new process; returns its id."""
    pid = os.fork()
    if pid == 0:
        torch.set_num_threads(1)
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115
        train(config, resume=is_run(Path(str(config.out))))
        os._exit(0)
    return pid


def killed(config: TrainConfig, kills: int) -> None:
    moments, done = random.Random(0), 0
    while done < kills:
        pid = child(config)
        time.sleep(moments.uniform(0.02, 0.6))
        os.kill(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
        assert os.WIFSIGNALED(status), "the run was over before it was killed"
        done += 1
    assert os.waitpid(child(config), 0)[1] == 0


if __name__ == "__main__":
    torch.set_num_threads(1)
    kind, *words = sys.argv[1:]
    if kind == "paced":
        sys.exit(paced(Path(words[0]), float(words[1]), words[2:]))
    runs(words) if kind == "runs" else killed(load_config(words[0]), int(words[1]))
