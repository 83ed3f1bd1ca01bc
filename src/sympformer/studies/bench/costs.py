"""What a training step costs: as a work to be timed or weighed, and of several models beside each other."""

import json
import os
import resource
import statistics
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from sympformer.models import ModelConfig, build_model, variant
from sympformer.progress import steps_with_progress
from sympformer.studies.bench.timing import Work, interleaved


def bare(name: str, **options: Any) -> ModelConfig:
    """A variant without what its preset puts ahead of the layers: that costs all dynamics alike, and a plain block, the
    ruler here, has none of it."""
    return variant(name, **{"second_table": "none", "transport": "none"} | options)


def training_step(model: nn.Module, loss_of: Callable[[Tensor, Tensor], Tensor], cfg: ModelConfig, batch: int) -> Work:
    """Forward, backward, AdamW, on random tokens."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    idx, targets = torch.randint(cfg.vocab_size, (2, batch, cfg.block_size))

    def step() -> None:
        loss_of(idx, targets).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def model_step(cfg: ModelConfig, batch: int) -> Work:
    """A training step of one of our models."""
    model = build_model(cfg, seed=0)
    return training_step(model, lambda idx, targets: model(idx, targets=targets).loss, cfg, batch)


def peak_memory(cfg: ModelConfig, batch: int) -> int:
    """Bytes that a training step adds to the peak of a fresh process."""
    code = (
        "import sys; from sympformer.studies.bench.costs import print_peak; print_peak(sys.argv[1], int(sys.argv[2]))"
    )
    command = [sys.executable, "-c", code, json.dumps(cfg.to_dict()), str(batch)]
    # Every tensor gets pages of its own and gives them back at once: the peak is then that of live tensors, not of
    # what the allocator keeps for later.
    environment = os.environ | {"MALLOC_MMAP_THRESHOLD_": "65536"}
    return int(subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout)


def print_peak(config: str, batch: int) -> None:
    """Child of `peak_memory`: one small step first, so that libraries and thread pools are already counted."""
    fields = json.loads(config)
    model_step(ModelConfig.from_dict(fields | {"block_size": min(64, fields["block_size"])}), 1)()
    before = _high_water()
    model_step(ModelConfig.from_dict(fields), batch)()
    print(_high_water() - before)


def _high_water() -> int:
    """Peak resident bytes of this process. Linux: its own; ru_maxrss would count the parent's from before the exec."""
    try:
        with open("/proc/self/status") as status:
            return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM"))
    except OSError:
        unit = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


# --- models beside each other: the clocks of runs in a grid tell of a busy machine


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
