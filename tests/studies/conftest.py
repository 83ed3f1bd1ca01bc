"""One finished comparison, tiny, for all tests that look at one; made in this process, where children are calls."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from sympformer.cli import main
from tests.harness.artefacts import in_place

GPT, SYMP = {"variant": "softmax-baseline", "lr": 8e-3}, {"variant": "softmax-plain-euler", "lr": 8e-3}
CONFIG: dict[str, Any] = {
    "baseline": "gpt-tied",
    "factors": {"dynamics": {"gpt": GPT, "symp": SYMP}, "head": {"tied": {}, "untied": {"tie_head": False}}},
    # at four steps the larger rate is the better one: a third follows
    "models": {"deep": {"parent": "gpt-tied", "n_layer": 3, "lr": [4e-3, 8e-3]}},
    "extend": 1,
    "choose": {"steps": 4},
    "budget": {"steps": 6},
    "seeds": [1, 2],
    "common": {
        "model": {"n_layer": 2, "n_head": 2, "d_model": 8, "block_size": 16},
        "data": {"corpus": "storybook:200", "tokenizer": "byte", "validation": 0.1, "test": 0.1},
        "batch_size": 4, "warm_up": 1, "eval_every": 3, "eval_tokens": 300, "checkpoint_every": 2, "sample_tokens": 2,
    },
}  # fmt: skip


def write(folder: Path, **changes: Any) -> str:
    """A comparison's file."""
    folder.mkdir(exist_ok=True)
    (folder / "small.yaml").write_text(yaml.safe_dump(CONFIG | changes, sort_keys=False))
    return str(folder / "small.yaml")


@contextmanager
def quiet(cache: Path) -> Iterator[None]:
    """Children are calls with one thread, nothing is drawn or timed for long, and the cache is our own."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # as a child has where there is one for every core; more of them sum in another order
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SYMPFORMER_CACHE", str(cache))
        patch.setattr("sympformer.studies.compare.children.run_all", in_place)
        patch.setattr("sympformer.studies.compare.steps.STEPS", 2)
        patch.setattr("sympformer.studies.results.page.pictures", lambda results: [])  # drawn in tests of their own
        yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a finished comparison, to be looked at; its cache is beside it."""
    folder = tmp_path_factory.mktemp("compare")
    with quiet(folder / "cache"):
        assert main(["compare", write(folder), "--out", str(folder / "out")]) == 0
    return folder / "out"


@pytest.fixture
def in_this_process(finished: Path) -> Iterator[None]:
    """As the finished one was made."""
    with quiet(finished.parent / "cache"):
        yield


@pytest.fixture
def copy(finished: Path, tmp_path: Path) -> Path:
    """A copy of it, to be changed."""
    return Path(shutil.copytree(finished, tmp_path / "out"))
