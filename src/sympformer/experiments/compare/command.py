"""The command `sympformer compare`."""

from pathlib import Path
from typing import Any

from sympformer.errors import InputError
from sympformer.experiments.compare.plan import CompareConfig


def compare(out: str = "runs/compare", jobs: int = 1, samples: bool = False, **options: Any) -> int:
    """Train several models under one budget, each at its own best learning rate, and compare them on test data.

    Args:
        out: Folder of the comparison; the same command goes on with what is there.
        jobs: Runs at a time, each in a process with its share of the cores.
        samples: Print a text of every model too.
    """
    if jobs < 1:
        raise InputError(f"jobs must be at least 1, got {jobs}")
    config = CompareConfig(**options)
    from sympformer.experiments.compare.comparison import Comparison
    from sympformer.experiments.compare.outputs import print_results, write_outputs
    from sympformer.experiments.compare.workers import Workers
    from sympformer.training.engine import pick_device

    pick_device(config.common)  # for the workers too, before any of them starts
    comparison = Comparison.create(Path(out), config)
    with Workers(jobs) as workers:
        results = comparison.results(comparison.train(workers), workers)
    report = write_outputs(results, comparison.root)
    print_results(results, samples)
    print(f"\ntables, plots and results.json are in {out}; open {report} in a browser")
    return 0
