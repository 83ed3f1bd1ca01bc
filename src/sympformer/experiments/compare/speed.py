"""How fast models train, measured beside each other in one process."""

import statistics
from typing import Any

import torch

from sympformer.experiments.timing import interleaved
from sympformer.models import build_model
from sympformer.training import TrainConfig
from sympformer.training.model_choice import choose_model
from sympformer.training.optimizer import clip_gradients, make_optimizers


def tokens_per_second(models: dict[str, dict[str, Any]], config: TrainConfig, rounds: int = 5) -> dict[str, float]:
    """Training tokens a second of every model: forward, backward, clipping and update, median of interleaved rounds."""
    steps = {name: _step(options, config) for name, options in models.items()}
    seconds = interleaved(steps, rounds, label="measuring speeds")
    sizes = {name: config.batch_size * choose_model(options).block_size for name, options in models.items()}
    return {name: sizes[name] / statistics.median(times) for name, times in seconds.items()}


def _step(options: dict[str, Any], config: TrainConfig) -> Any:
    model = build_model(choose_model(options | {"vocab_size": options.get("vocab_size", 2048)}), seed=0)
    optimizers = make_optimizers(model, config)
    shape = (config.batch_size, model.cfg.block_size)
    idx, targets = (
        torch.randint(model.cfg.vocab_size, shape, generator=torch.Generator().manual_seed(0)) for _ in "it"
    )

    def step() -> None:
        model(idx, targets).loss.backward()
        clip_gradients(optimizers, config.clip)
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)

    return step
