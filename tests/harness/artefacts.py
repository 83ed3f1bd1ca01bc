"""One small one of everything that the product writes: prepared data, a run, a comparison, an export."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.harness.guard import inside, run

SIZES = {"n_layer": 1, "n_head": 2, "d_model": 8, "block_size": 16}
MODEL = [f"--model.{name}={value}" for name, value in SIZES.items()]
PREPARE = ["data", "prepare", "--corpus=storybook:60", "--tokenizer=byte", "--out=data", "--validation=0.1"]
PREPARE += ["--test=0.1"]
TRAIN = ["train", *MODEL, "--data.folder=data", "--steps=6", "--batch_size=2", "--eval_tokens=64", "--sample_tokens=3"]
TRAIN += ["--log_every=1", "--eval_every=2", "--checkpoint_every=2", "--out=run"]
EXPORT = ["export", "run", "export"]
COMPARE = ["compare", "small.yaml", "--out=compare"]
CONFIG: dict[str, Any] = {
    "baseline": "gpt",
    "models": {"gpt": {"variant": "softmax-baseline"}, "exp": {"variant": "softmax-exp-euler"}},
    "lr": [4e-3],
    "budget": {"steps": 4},
    "seeds": [1],
    "common": {
        "model": {"preset": "tuned", **SIZES},
        "data": {"folder": "data"},
        "batch_size": 2,
        "eval_every": 2,
        "eval_tokens": 64,
        "checkpoint_every": 2,
        "sample_tokens": 3,
    },
}


def in_place(commands: Sequence[Sequence[str]], jobs: int, threads: int, **variables: str) -> Iterator[tuple[int, str]]:
    """Children of a comparison that are no processes."""
    for i, (module, *words) in enumerate(commands):
        yield i, import_module(module).main(words)


@contextmanager
def small(cache: Path) -> Iterator[None]:
    """No other processes, no network, a cache of its own, and nothing is measured."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SYMPFORMER_CACHE", str(cache))
        patch.setenv("HF_HUB_OFFLINE", "1")
        patch.setattr("sympformer.studies.compare.children.run_all", in_place)
        patch.setattr("sympformer.studies.compare.steps.STEPS", 1)
        yield


def make(folder: Path) -> None:
    """All of them, in a folder."""
    (folder / "small.yaml").write_text(yaml.safe_dump(CONFIG, sort_keys=False))
    with inside(folder):
        for command in (PREPARE, TRAIN, EXPORT, COMPARE):
            ending = run(*command)
            assert ending.code == 0, ending
