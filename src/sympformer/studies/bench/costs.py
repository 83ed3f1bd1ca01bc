"""What models of a comparison cost beside each other: the clocks of its runs tell of a busy machine."""

import statistics

from sympformer.models import ModelConfig
from sympformer.progress import steps_with_progress
from sympformer.studies.bench.bench import model_step, peak_memory
from sympformer.studies.bench.timing import interleaved


def tokens_per_second(models: dict[str, ModelConfig], batch: int, rounds: int = 7) -> dict[str, float]:
    """Training tokens a second of every model (forward, backward, update): median of interleaved rounds."""
    works = {name: model_step(cfg, batch) for name, cfg in models.items()}
    seconds = interleaved(works, rounds, label="measuring speeds")
    return {name: batch * models[name].block_size / statistics.median(times) for name, times in seconds.items()}


def memory_mb(models: dict[str, ModelConfig], batch: int) -> dict[str, float]:
    """MB that a training step of every model adds to a fresh process."""
    names = list(models)
    return {
        names[i]: peak_memory(models[names[i]], batch) / 1e6
        for i in steps_with_progress(len(names), "measuring memory")
    }
