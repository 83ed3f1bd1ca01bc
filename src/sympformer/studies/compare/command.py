"""The commands `sympformer compare` and `sympformer report`."""

from pathlib import Path
from typing import Literal

from rich.console import Console
from rich.markup import escape

from sympformer.errors import InputError
from sympformer.studies.compare.comparison import CONFIG, Comparison
from sympformer.studies.compare.plan import CompareConfig, parameters
from sympformer.studies.compare.records import runs_results
from sympformer.studies.results.page import PAGE, show, write_all, write_report
from sympformer.studies.results.results import FILE, Results
from sympformer.tables import Head, terminal_table

Metric = Literal["loss", "bits_per_byte"]
PLANNED = [Head("model", True), Head("parameters"), *(Head(t, True, wrap=True) for t in ("learning rate", "options"))]


def compare(
    config: CompareConfig, out: str = "runs/compare", jobs: int = 1, samples: bool = False, plan: bool = False
) -> int:
    """Train several models under one budget, each at its own best learning rate, and compare them on test data.

    Args:
        out: Folder of the comparison; the same command goes on with what is there, also with more models or seeds.
        jobs: Runs at a time, each in a process with its share of the cores.
        samples: Print a text of every model too.
        plan: Show the models and how many runs there are to be, and train nothing.
    """
    if jobs < 1:
        raise InputError(f"jobs must be at least 1, got {jobs}")
    comparison = Comparison(Path(out), config, jobs)
    if plan:
        print_plan(comparison)
        return 0
    with comparison.begun():
        results = comparison.results(comparison.train())
        page = write_all(results, comparison.root)
    show(results, samples)
    print(f"\ntables, plots and results.json are in {out}; open {page} in a browser")
    return 0


def report(targets: list[str], out: str | None = None, baseline: str | None = None, metric: Metric = "loss") -> int:
    """Write tables, plots and a page about a comparison or its results.json, or a page about runs side by side.

    Args:
        targets: The folder of a comparison or of its results.json, or one or more run folders.
        out: The page alone, to write there; by default report.html, with tables and plots beside it in the
            comparison's folder, or runs/report.html.
        baseline: For runs: the one that the others are compared with, by default the first.
        metric: For runs: loss (nats per token, one tokenizer for all) or bits_per_byte (whatever the tokenizers).
    """
    if not targets:
        raise InputError("say what to report on: the folder of a comparison, or run folders")
    first, page = Path(targets[0]), Path(out or Path("runs") / PAGE)
    finished = (first / FILE).is_file()
    if (finished or (first / CONFIG).is_file()) and (len(targets) > 1 or baseline is not None or metric != "loss"):
        raise InputError(f"{first} is a comparison with its own models, baseline and metric: name it alone")
    if (first / CONFIG).is_file() and not finished:
        again = f"go on with 'sympformer compare {first / CONFIG} --out {first}'"
        raise InputError(f"the comparison in {first} is half-finished: {again}")
    results = Results.load(first / FILE) if finished else runs_results(targets, baseline, metric)
    if finished and out is None:
        page = write_all(results, first)
    else:
        write_report(results, page)
    show(results)
    print(f"open {page} in a browser")
    return 0


def print_plan(comparison: Comparison) -> None:
    config, plan, rows = comparison.config, comparison.plan, []
    for name, model in plan.models.items():
        own = {key: value for key, value in model.options.items() if config.common.model.get(key) != value}
        options = ", ".join(f"{key} {str(value).lower()}" for key, value in own.items())
        rates = ("one of " if len(model.rates) > 1 else "") + ", ".join(f"{rate:g}" for rate in model.rates)
        rows.append([name, f"{parameters(comparison.model_configs[name]):,}", rates, escape(options)])
    console = Console(highlight=False)
    wide = console if console.is_terminal else Console(highlight=False, width=160)
    wide.print(terminal_table(comparison.root.name, PLANNED, rows))
    chosen = sum(len(model.next_rates({}, 0)) for model in plan.models.values())
    if chosen and config.choose is not None:
        more = "and more where one is the outermost: " if config.extend else ""
        console.print(f"- {chosen} runs choose the rates, {more}{config.choose.describe()}.", markup=False)
    reported = len(plan.models) * len(config.seeds)
    for line in (f"{reported} runs are reported: {config.budget.describe()}.", *plan.notes()):
        console.print(f"- {line}", markup=False)
