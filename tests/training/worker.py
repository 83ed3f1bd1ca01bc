"""Run by the tests in processes of its own.

worker.py runs CONFIG.yaml ...        train them, one after the other, under one torchrun or alone; before a name:
                                      `+` resume, `!` and the last process gets SIGTERM at step 4; or
                                      `=RUN=STEP=COPY`: a copy of a run that has come to an earlier checkpoint only
worker.py paced FOLDER SECONDS train ...  `sympformer train` with slow steps; before every step each process writes
                                      its id and the step to FOLDER/RANK, so that a test can aim a signal
worker.py killed CONFIG.yaml KILLS    kill a run with SIGKILL at random moments and resume it, then let it end
"""

import os
import random
import shutil
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from unittest.mock import patch

import torch
import torch._dynamo  # torch's optimizers import it: here once, not in every child

from sympformer import cli
from sympformer.training.config import TrainConfig, load_config
from sympformer.training.engine import Engine
from sympformer.training.folder import RunFolder, is_run
from sympformer.training.run import train
from sympformer.training.trainer import Trainer

RANK, WORLD = os.environ.get("RANK", "0"), int(os.environ.get("WORLD_SIZE", "1"))


def before_steps(act: Callable[[int], None]) -> None:
    """Let something happen before every step of a run."""
    original = Trainer.step

    def other(self: Trainer, step: int) -> None:
        act(step)
        original(self, step)

    Trainer.step = other  # type: ignore[method-assign]


def runs(words: list[str]) -> None:
    """Only the last one lets go of the processes' group."""
    leave, left = Engine.leave, list[Engine]()
    patch.object(Engine, "leave", lambda engine: left.append(engine)).start()
    for word in words:
        if word.startswith("="):
            back_to(*word[1:].split("="))
        elif word.startswith("!"):
            with patch.object(Trainer, "step", Trainer.step):
                before_steps(tell_the_last)
                assert train(load_config(word[1:]), bar=False).stopped_by == signal.SIGTERM
        else:
            train(load_config(word.removeprefix("+")), resume=word.startswith("+"), bar=False)
    for engine in left:
        engine.loss_of = engine._shared = None
        if engine._mesh is not None:
            engine._mesh._pg_registry.clear()
    leave(left[-1])
    if WORLD > 1 and (tasks := Path("/proc/self/task")).is_dir():  # Linux tells
        alive = {(task / "comm").read_text().strip() for task in tasks.iterdir()}
        assert not any("gloo" in name for name in alive), alive  # a thread that outlives the run can abort its process


def tell_the_last(step: int) -> None:
    time.sleep(0.3)  # a step long enough for the processes to ask each other
    if step == 4 and str(WORLD - 1) == RANK:
        os.kill(os.getpid(), signal.SIGTERM)


def back_to(run: str, step: str, copy: str) -> None:
    if RANK == "0":
        shutil.copytree(run, copy)
        for later in RunFolder(Path(copy)).checkpoints.steps():
            if later > int(step):
                shutil.rmtree(RunFolder(Path(copy)).checkpoints.path(later))
    if WORLD > 1:
        torch.distributed.barrier()


def paced(folder: Path, seconds: float, words: list[str]) -> int:
    def note(step: int) -> None:
        (folder / f"{RANK}.new").write_text(f"{os.getpid()} {step}")
        (folder / f"{RANK}.new").replace(folder / RANK)
        time.sleep(seconds)

    before_steps(note)
    return cli.main(words)


def child(config: TrainConfig) -> int:
    """Run or resume in a new process; returns its id."""
    pid = os.fork()
    if pid == 0:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115
        train(config, resume=is_run(Path(str(config.out))))
        os._exit(0)
    return pid


def killed(config: TrainConfig, kills: int) -> None:
    moments = random.Random(0)
    for _ in range(kills):
        pid = child(config)
        time.sleep(moments.uniform(0.02, 0.6))
        os.kill(pid, signal.SIGKILL)
        assert os.WIFSIGNALED(os.waitpid(pid, 0)[1]), "the run was over before it was killed"
    assert os.waitpid(child(config), 0)[1] == 0


if __name__ == "__main__":
    torch.set_num_threads(1)
    kind, *words = sys.argv[1:]
    if kind == "paced":
        sys.exit(paced(Path(words[0]), float(words[1]), words[2:]))
    runs(words) if kind == "runs" else killed(load_config(words[0]), int(words[1]))
