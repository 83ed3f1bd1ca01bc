"""Run by the tests under torchrun: `variants.py CONFIG.yaml` makes a short run of every variant, all in one launch."""

import sys
from pathlib import Path

import torch

from sympformer.data import open_tokens
from sympformer.models import VARIANTS, build_model
from sympformer.training import load_config
from sympformer.training import run as runs
from sympformer.training.choices import choose_model
from sympformer.training.engine import Engine
from sympformer.training.launch import _train

if __name__ == "__main__":
    torch.set_num_threads(1)
    config = load_config(sys.argv[1])
    prepared = open_tokens(config.data)
    engine = Engine(config)
    for name in VARIANTS:
        own = config.replace(model=config.model | {"variant": name}, out=str(Path(str(config.out)) / name))
        cfg = choose_model(own.model, prepared.tokenizer)
        if engine.first:
            runs.create(own, cfg, prepared).release()
        engine.wait()
        _train(engine, own, build_model(cfg, seed=own.seed), prepared, Path(str(own.out)), bar=False)
    engine.leave()
