"""The command `sympformer report`."""

from pathlib import Path
from typing import Literal

from sympformer.errors import InputError

Metric = Literal["loss", "bits_per_byte"]


def report(targets: list[str], out: str | None = None, baseline: str | None = None, metric: Metric = "loss") -> int:
    """Write one self-contained HTML page about a finished comparison, or about several runs side by side.

    Args:
        targets: The folder of a comparison, or one or more run folders.
        out: The page to write; by default report.html in the comparison's folder, or runs/report.html.
        baseline: For runs: the one that the others are compared with, by default the first.
        metric: For runs: loss (nats per token, one tokenizer for all) or bits_per_byte (whatever the tokenizers).
    """
    if not targets:
        raise InputError("say what to report on: the folder of a comparison, or run folders")
    from sympformer.experiments.compare import comparison as comparisons
    from sympformer.experiments.compare.outputs import REPORT, print_results, write_outputs
    from sympformer.experiments.compare.runs import runs_results
    from sympformer.experiments.compare.workers import Workers
    from sympformer.experiments.report import write_report

    first = Path(targets[0])
    if (first / comparisons.CONFIG).is_file():
        if len(targets) > 1 or baseline is not None:
            raise InputError(f"{first} is a comparison with its own models and baseline: name it alone")
        comparison = comparisons.Comparison.open(first)
        with Workers(1) as workers:
            results = comparison.results(comparison.finished(), workers)
        file = write_outputs(results, first)
    else:
        results = runs_results(targets, baseline, metric)
        file = None
    if out is not None or file is None:
        file = Path(out or f"runs/{REPORT}")
        write_report(results, file)
    print_results(results)
    print(f"open {file} in a browser")
    return 0
