"""Shared set-up: bfloat16 that cannot kill a worker, one thread per worker, so that two workers do not fight for two
cores, and no deadlines on shared ones.
"""

import inspect
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from sympformer import machine
from tests.browser import Visitor, started, visits

if TYPE_CHECKING:
    from playwright.sync_api import Browser

machine.use_bfloat16(needed=False)  # before torch computes; workers and the processes that tests start inherit it
BFLOAT16 = machine.bfloat16()

import torch  # noqa: E402

if "PYTEST_XDIST_WORKER" in os.environ:
    torch.set_num_threads(1)
    os.environ["OMP_NUM_THREADS"] = "1"  # for the processes that tests start

settings.register_profile("shared machine", deadline=None)
settings.load_profile("shared machine")


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Where nothing makes bfloat16 run, a test that speaks of it, in its code or its parameters, is left out.

    So is one that speaks of Muon, which computes in it. Those of the trial itself compute in child processes.
    """
    if BFLOAT16.state == "broken" and isinstance(item, pytest.Function) and item.path.name != "test_machine.py":
        parameters = item.callspec.params if hasattr(item, "callspec") else {}
        text = f"{inspect.getsource(item.function)} {parameters}".lower()
        if "bfloat16" in text or "muon" in text:
            pytest.skip(f"bfloat16 is {BFLOAT16.sentence}")


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
