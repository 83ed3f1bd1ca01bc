"""The commands `sympformer compare` and `sympformer report`, and what both leave behind for people."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

from sympformer.errors import InputError
from sympformer.studies.compare.plan import CompareConfig

if TYPE_CHECKING:
    from sympformer.studies.compare.comparison import Comparison
    from sympformer.studies.results.results import Results

Metric = Literal["loss", "bits_per_byte"]


def compare(
    config: CompareConfig,
    out: str = "runs/compare",
    jobs: int = 1,
    samples: bool = False,
    mixed_code: bool = False,
    plan: bool = False,
) -> int:
    """Train several models under one budget, each at its own best learning rate, and compare them on test data.

    Args:
        out: Folder of the comparison; the same command goes on with what is there.
        jobs: Runs at a time, each in a process with its share of the cores.
        samples: Print a text of every model too.
        mixed_code: Go on with runs of other code, and have the table say so.
        plan: Show the models and how many runs there are to be, and train nothing.
    """
    if jobs < 1:
        raise InputError(f"jobs must be at least 1, got {jobs}")
    from sympformer.studies.compare.comparison import Comparison
    from sympformer.studies.compare.workers import Workers
    from sympformer.studies.results.page import show, write_all
    from sympformer.training.engine import pick_device

    if plan:
        print_plan(Comparison(Path(out), config))
        return 0
    pick_device(config.common)  # for the workers too, before any of them starts
    comparison = Comparison.create(Path(out), config, mixed_code)
    with comparison.lock():
        with Workers(jobs) as workers:
            results = comparison.results(comparison.train(workers), workers)
        page = write_all(results, comparison.root)
    show(results, samples)
    print(f"\ntables, plots and results.json are in {out}; open {page} in a browser")
    return 0


def report(
    targets: list[str],
    out: str | None = None,
    baseline: str | None = None,
    metric: Metric = "loss",
    mixed_code: bool = False,
    trust_data: bool = False,
    watch: bool = False,
) -> int:
    """Write tables, plots and a page about a comparison or its results.json, or a page about runs side by side.

    Args:
        targets: The folder of a comparison or of its results.json, or one or more run folders.
        out: The page alone, to write there; by default report.html, with tables and plots beside it in the
            comparison's folder, or runs/report.html.
        baseline: For runs: the one that the others are compared with, by default the first.
        metric: For runs: loss (nats per token, one tokenizer for all) or bits_per_byte (whatever the tokenizers).
        mixed_code: Take runs of different code into one table, and have it say so.
        trust_data: Open the path or dataset that a run or comparison from elsewhere names as its data.
        watch: Also write a page for each model beside the report that shows its tokens move, and link it.
    """
    if not targets:
        raise InputError("say what to report on: the folder of a comparison, or run folders")
    from sympformer.studies.compare.comparison import CONFIG
    from sympformer.studies.compare.watch_pages import watch_pages
    from sympformer.studies.results.page import PAGE, show, write_all, write_report
    from sympformer.studies.results.results import FILE, Results

    first = Path(targets[0])
    compared, alone = (first / CONFIG).is_file(), (first / FILE).is_file()
    if (compared or alone) and (len(targets) > 1 or baseline is not None):
        raise InputError(f"{first} is a comparison with its own models and baseline: name it alone")
    if compared:
        found = _comparison(first, mixed_code, trust_data)
    elif alone:
        found = _Found(Results.load(first / FILE), {}, str, first)
    else:
        found = _runs(targets, baseline, metric, mixed_code, trust_data)
    if watch and not found.runs:
        raise InputError(f"{first} holds results and no runs: --watch needs their weights")
    file = Path(out) if out is not None else found.home / PAGE
    links = watch_pages(found.runs, found.text(), file.parent) if watch else {}
    if (compared or alone) and file == found.home / PAGE:
        write_all(found.results, found.home, links)
    else:
        write_report(found.results, file, links)
    show(found.results)
    print(f"open {file} in a browser")
    return 0


class _Found(NamedTuple):
    """What a report is on."""

    results: "Results"
    runs: dict[str, Path]  # model -> one of its runs
    text: Callable[[], str]  # some that none of them was trained on
    home: Path  # the folder of its report


def _comparison(folder: Path, mixed_code: bool, trust_data: bool) -> _Found:
    from sympformer.studies.compare.comparison import Comparison
    from sympformer.studies.compare.watch_pages import held_out_text
    from sympformer.studies.compare.workers import Workers

    comparison = Comparison.open(folder, mixed_code)
    comparison.check_data(trust_data)
    with Workers(1) as workers:
        grid = comparison.finished()
        results = comparison.results(grid, workers)
    runs = {name: folder / run for name, run in grid.first_runs().items()}
    return _Found(results, runs, lambda: held_out_text(comparison.prepared, "test"), folder)


def _runs(folders: list[str], baseline: str | None, metric: Metric, mixed_code: bool, trust_data: bool) -> _Found:
    from sympformer.studies.compare.runs import held_out_of, run_names, runs_results
    from sympformer.studies.compare.watch_pages import held_out_text

    results = runs_results(folders, baseline, metric, mixed_code, trust_data)
    runs = {name: Path(folder) for folder, name in run_names(folders).items()}
    return _Found(results, runs, lambda: held_out_text(*held_out_of(folders)), Path("runs"))


def print_plan(comparison: "Comparison") -> None:
    """What is to be trained, on the terminal."""
    from rich.console import Console

    from sympformer.studies.compare.overview import overview, sentences

    console = Console(highlight=False)
    wide = console if console.is_terminal else Console(highlight=False, width=160)
    wide.print(overview(comparison))
    for sentence in sentences(comparison):
        console.print(f"- {sentence}", markup=False)
