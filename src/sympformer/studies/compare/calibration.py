"""How long a training step of every model takes, for budgets in seconds: measured once, before anything is trained."""

import statistics
import time
from collections.abc import Mapping
from typing import Any

import torch

from sympformer.models import ModelConfig, build_model
from sympformer.studies.bench.timing import Work, interleaved
from sympformer.training.config import TrainConfig
from sympformer.training.optimizer import clip_gradients, make_optimizers

ROUNDS = 21


def step_of(config: TrainConfig, cfg: ModelConfig) -> Work:
    """A step as a run makes it, on random tokens: passes forward and backward, clipping, the run's own optimizer."""
    model = build_model(cfg, seed=0)
    optimizers = make_optimizers(model, config)
    idx, targets = torch.randint(cfg.vocab_size, (2, config.batch_size, cfg.block_size))

    def step() -> None:
        for _ in range(config.accumulate):
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=config.precision == "bfloat16"):
                loss = model(idx, targets=targets).loss
            (loss / config.accumulate).backward()
        clip_gradients(optimizers, config.clip)
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)

    return step


def seconds_a_step(config: TrainConfig, models: Mapping[str, ModelConfig], rounds: int = ROUNDS) -> dict[str, Any]:
    """In a worker, with the threads that a run has: every model's median over rounds that run each of them once.

    One thread: its CPU time, which does not count the moments in which another program has the core. More than one:
    wall-clock time, since the CPU time of threads that wait for each other counts too.
    """
    threads = torch.get_num_threads()
    clock = time.process_time if threads == 1 else time.perf_counter
    works = {name: step_of(config, cfg) for name, cfg in models.items()}
    seconds = interleaved(works, rounds, label="measuring steps", clock=clock)
    return {
        "seconds_a_step": {name: statistics.median(times) for name, times in seconds.items()},
        "threads": threads,
        "clock": "CPU time" if threads == 1 else "wall-clock time",
        "rounds": rounds,
    }
