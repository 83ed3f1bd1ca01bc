"""The command `sympformer compare`."""

from pathlib import Path
from typing import Any

from sympformer.errors import InputError
from sympformer.experiments.compare.plan import CompareConfig


def compare(out: str = "runs/compare", jobs: int = 1, **options: Any) -> int:
    """Train several models under one budget, each at its own best learning rate, and compare them on a test set.

    Args:
        out: Folder of the comparison; the same command goes on with what is there.
        jobs: Runs at a time, each in a process with its share of the cores.
    """
    if jobs < 1:
        raise InputError(f"jobs must be at least 1, got {jobs}")
    config = CompareConfig(**options)
    from sympformer.experiments.compare.comparison import Comparison

    comparison = Comparison.create(Path(out), config)
    comparison.train(jobs)
    return 0
