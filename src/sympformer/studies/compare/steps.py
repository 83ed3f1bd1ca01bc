"""What a training step of every model takes, in time and in memory: measured once, before anything is trained.

A model is measured as it trains, with a run's own batch, precision, device, optimizer and threads, in fresh processes:
in one heap with others' tensors, steps with many temporaries took up to 8 % longer. From process to process steps vary
by some percent, so that several count, and all models take turns.
"""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import torch

from sympformer.files import read_json, write
from sympformer.models import ModelConfig, build_model
from sympformer.progress import Bar
from sympformer.provenance import this_code
from sympformer.studies.bench.timing import OWN_PAGES, high_water, interleaved
from sympformer.studies.compare import children
from sympformer.training.config import TrainConfig
from sympformer.training.engine import Engine, pick_device
from sympformer.training.optimizer import clip_gradients, make_optimizers

FILE = "steps.json"
STEPS = 15  # timed in a process, after two that warm up
OPTIONS = ("batch_size", "accumulate", "precision", "optimizer", "device", "compile")  # that a step's cost depends on


def measured(
    file: Path, config: TrainConfig, models: Mapping[str, ModelConfig], threads: int, passes: int
) -> dict[str, dict[str, Any]]:
    """What is in the file, of every model: seconds, clock, threads, memory_mb. What is missing is measured and added.

    passes: processes a model whose steps are timed.
    """
    kept = read_json(file) if file.is_file() else {}
    shared = {name: getattr(config, name) for name in OPTIONS}
    of = {name: shared | {"model": cfg.to_dict()} for name, cfg in models.items()}
    missing = [name for name in models if kept.get(name, {}).get("of") != of[name]]
    words = {name: [__name__, json.dumps(config.to_dict()), json.dumps(models[name].to_dict())] for name in missing}
    timings: dict[str, list[dict[str, Any]]] = {name: [] for name in missing}
    turns = missing * passes
    with Bar("measuring steps", len(turns)) as bar:
        for i, text in children.run_all([[*words[name], "time"] for name in turns], 1, threads):
            timings[turns[i]].append(found := json.loads(text))
            ms = 1e3 * median(found["seconds"])
            bar.say(f"measuring steps {i + 1}/{len(turns)}  {turns[i]}: {ms:.1f} ms, {found['clock']}")
            bar.update(i + 1)
    for i, text in children.run_all([[*words[name], "weigh"] for name in missing], 1, threads, **OWN_PAGES):
        times = timings[missing[i]]
        seconds = median(second for timing in times for second in timing["seconds"])
        one = times[0] | json.loads(text) | {"seconds": seconds, "passes": passes, "code": this_code().to_dict()}
        kept[missing[i]] = one | {"of": of[missing[i]]}
    if missing:
        write(file, json.dumps(kept, indent=1))
    return {name: kept[name] for name in models}


# --- in a child


def main(words: Sequence[str]) -> str:
    """Time the steps of a model, or weigh one."""
    config = TrainConfig.from_dict(json.loads(words[0]))
    cfg = ModelConfig.from_dict(json.loads(words[1]))
    return json.dumps(time_steps(config, cfg) if words[2] == "time" else weigh_step(config, cfg))


def time_steps(config: TrainConfig, cfg: ModelConfig) -> dict[str, Any]:
    """How long the steps of a model take.

    One thread: its CPU time, which does not count the moments in which another program has the core. More than one, or
    a GPU: wall-clock time, since the CPU time of threads that wait for each other counts too.
    """
    threads = torch.get_num_threads()
    alone = threads == 1 and pick_device(config) == "cpu"
    clock = time.process_time if alone else time.perf_counter
    seconds = interleaved({"step": step_of(config, cfg)}, STEPS, label="measuring steps", clock=clock)["step"]
    return {"seconds": seconds, "threads": threads, "clock": "CPU time" if alone else "wall-clock time"}


def weigh_step(config: TrainConfig, cfg: ModelConfig) -> dict[str, Any]:
    """MB that a step adds to the peak of this process, or its peak on the GPU; none where nobody counts."""
    device = pick_device(config)
    if device == "mps":
        return {"memory_mb": None}
    if device == "cuda":
        step_of(config, cfg)()
        return {"memory_mb": torch.cuda.max_memory_allocated() / 1e6}
    small = cfg.replace(block_size=min(64, cfg.block_size))
    step_of(config.replace(batch_size=1), small)()  # libraries and thread pools are counted by then
    before = high_water()
    step_of(config, cfg)()
    return {"memory_mb": (high_water() - before) / 1e6}


def step_of(config: TrainConfig, cfg: ModelConfig) -> Callable[[], None]:
    """A step as a run makes it, on random tokens: passes forward and backward, clipping, the run's own optimizer."""
    engine, model = Engine(config), build_model(cfg, seed=0)
    engine.set_up(model, config.compile)
    optimizers = make_optimizers(model, config)
    idx, targets = torch.randint(cfg.vocab_size, (2, config.batch_size, cfg.block_size), device=engine.device)

    def step() -> None:
        for _ in range(config.accumulate):
            engine.backward(engine.loss(idx, targets) / config.accumulate)
        for optimizer in optimizers:
            engine.scaler.unscale_(optimizer)
        clip_gradients(optimizers, config.clip)
        engine.update(optimizers)

    return step


if __name__ == "__main__":
    children.be_child(main)
