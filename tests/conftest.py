"""Shared set-up: no AMX that kills a worker, one thread, so that two workers do not fight for two cores and small
tensors are not shared, no deadlines and no lines of progress on shared ones.
"""

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from sympformer import cli, machine
from tests.browser import Visitor, started, visits

if TYPE_CHECKING:
    from playwright.sync_api import Browser

os.environ["SYMPFORMER_INTERVAL"] = "1e6"  # a busy machine adds no lines to what tests read
machine.calm_onednn()  # before torch computes; workers and the processes that tests start inherit it

import torch  # noqa: E402

torch.set_num_threads(1)
os.environ["OMP_NUM_THREADS"] = "1"  # for the processes that tests start

settings.register_profile("shared machine", deadline=None)
settings.load_profile("shared machine")


@pytest.fixture(scope="session")
def tiny_run(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The folder of a run of two steps."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("tiny")
        patch.setenv("SYMPFORMER_CACHE", str(folder / "cache"))
        model = "--model.n_layer 1 --model.d_model 8 --model.n_head 1 --model.block_size 16 --data.validation 0.2"
        sizes = "--steps 2 --batch_size 2 --eval_tokens 64 --sample_tokens 2 --data.tokenizer byte"
        line = f"train --data.corpus storybook:60 {model} {sizes} --out {folder / 'run'}"
        assert cli.main(line.split()) == 0
    return str(folder / "run")


@pytest.fixture(scope="session")
def browser() -> Iterator["Browser"]:
    """One start for all pages that a worker looks at."""
    with started() as running:
        yield running


@pytest.fixture
def visit(browser: "Browser") -> Iterator[Visitor]:
    """Open pages as a reader would; see `tests.browser.Visit`."""
    with visits(browser) as visitor:
        yield visitor
