"""How long a training step of every model takes, for budgets in seconds: measured once, before anything is trained."""

import statistics
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch

from sympformer.models import ModelConfig, build_model
from sympformer.studies.bench.timing import Work, interleaved
from sympformer.training.config import TrainConfig
from sympformer.training.optimizer import clip_gradients, make_optimizers

# A model is measured as it trains, in processes of its own: in one heap with others' tensors, steps with many
# temporaries took up to 8 % longer. From process to process steps vary by some percent, so that several count.
PASSES = 5  # processes a model; all models take turns
STEPS = 15  # in each, after two that warm up


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


class Timing(NamedTuple):
    """Steps of one model in one process."""

    seconds: list[float]
    threads: int
    clock: str


def time_steps(config: TrainConfig, cfg: ModelConfig, steps: int = STEPS) -> Timing:
    """In a worker of its own, with the threads that a run has: how long the steps of a model take.

    One thread: its CPU time, which does not count the moments in which another program has the core. More than one:
    wall-clock time, since the CPU time of threads that wait for each other counts too.
    """
    threads = torch.get_num_threads()
    clock = time.process_time if threads == 1 else time.perf_counter
    seconds = interleaved({"step": step_of(config, cfg)}, steps, label="measuring steps", clock=clock)["step"]
    return Timing(seconds, threads, "CPU time" if threads == 1 else "wall-clock time")


def seconds_a_step(timings: Mapping[str, Sequence[Timing]]) -> dict[str, Any]:
    """What is kept of all that was measured: every model's median over the steps of its processes."""
    first = next(iter(timings.values()))[0]
    medians = {
        name: statistics.median(s for timing in found for s in timing.seconds) for name, found in timings.items()
    }
    return {
        "seconds_a_step": medians,
        "threads": first.threads,
        "clock": first.clock,
        "passes": PASSES,
        "steps": STEPS,
    }
