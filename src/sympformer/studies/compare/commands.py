"""The commands `sympformer compare` and `sympformer report`, and what both leave behind for people."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from sympformer.atomic import staged_files
from sympformer.errors import InputError
from sympformer.studies.compare.plan import CompareConfig

if TYPE_CHECKING:
    from sympformer.studies.compare.comparison import Comparison
    from sympformer.studies.results import Results
    from sympformer.studies.results.plots import Picture

Metric = Literal["loss", "bits_per_byte"]
REPORT = "report.html"
NOT_ALWAYS = [
    *(f"loss-{name}.{suffix}" for name in ("kernel-passes", "oracle-calls") for suffix in ("svg", "png")),
    *(f"{name}.{suffix}" for name in ("effects", "interactions", "ablation") for suffix in ("md", "csv")),
]


def compare(
    out: str = "runs/compare",
    jobs: int = 1,
    samples: bool = False,
    mixed_code: bool = False,
    plan: bool = False,
    **options: Any,
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
    config = CompareConfig(**options)
    from sympformer.studies.compare.comparison import Comparison
    from sympformer.studies.compare.workers import Workers
    from sympformer.training.engine import pick_device

    if plan:
        print_plan(Comparison(Path(out), config))
        return 0
    pick_device(config.common)  # for the workers too, before any of them starts
    comparison = Comparison.create(Path(out), config, mixed_code)
    with comparison.lock():
        with Workers(jobs) as workers:
            results = comparison.results(comparison.train(workers), workers)
        report = write_outputs(results, comparison.root)
    print_results(results, samples)
    print(f"\ntables, plots and results.json are in {out}; open {report} in a browser")
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
    """Write one self-contained HTML page about a finished comparison, or about several runs side by side.

    Args:
        targets: The folder of a comparison, or one or more run folders.
        out: The page to write; by default report.html in the comparison's folder, or runs/report.html.
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
    from sympformer.studies.report.page import write_report
    from sympformer.studies.results.plots import pictures

    first = Path(targets[0])
    compared = (first / CONFIG).is_file()
    if compared and (len(targets) > 1 or baseline is not None):
        raise InputError(f"{first} is a comparison with its own models and baseline: name it alone")
    if compared:
        found = _comparison(first, mixed_code, trust_data)
    else:
        found = _runs(targets, baseline, metric, mixed_code, trust_data)
    results, drawn = found.results, pictures(found.results)
    file = Path(out) if out is not None else found.home
    links = watch_pages(found.runs, found.text(), file.parent) if watch else {}
    if compared:
        write_outputs(results, first, drawn, links if file == found.home else {})
    if not compared or file != found.home:
        write_report(results, file, drawn, links)
    print_results(results)
    print(f"open {file} in a browser")
    return 0


class _Found(NamedTuple):
    """What a report is on."""

    results: "Results"
    runs: dict[str, Path]  # model -> one of its runs
    text: Callable[[], str]  # some that none of them was trained on
    home: Path  # the report's own place


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
    return _Found(results, runs, lambda: held_out_text(comparison.prepared, "test"), folder / REPORT)


def _runs(folders: list[str], baseline: str | None, metric: Metric, mixed_code: bool, trust_data: bool) -> _Found:
    from sympformer.studies.compare.runs import held_out_of, run_names, runs_results
    from sympformer.studies.compare.watch_pages import held_out_text

    results = runs_results(folders, baseline, metric, mixed_code, trust_data)
    runs = {name: Path(folder) for folder, name in run_names(folders).items()}
    return _Found(results, runs, lambda: held_out_text(*held_out_of(folders)), Path("runs") / REPORT)


def write_outputs(
    results: "Results", folder: Path, drawn: "Sequence[Picture] | None" = None, links: Mapping[str, str] | None = None
) -> Path:
    """Write results.json, tables, plots and the report; returns the report's path.

    drawn: the plots, if they are. links: model -> the page that shows it at work.
    """
    from sympformer.studies.report.page import write_report
    from sympformer.studies.results import FILE, tables
    from sympformer.studies.results.plots import pictures, write_plots
    from sympformer.studies.results.sheets import sheets

    drawn = pictures(results) if drawn is None else drawn
    with staged_files(folder, NOT_ALWAYS) as work:
        (work / FILE).write_text(results.to_json(), encoding="utf-8")
        (work / "table.csv").write_text(tables.csv_table(results), encoding="utf-8")
        (work / "table.md").write_text(tables.markdown_table(results), encoding="utf-8")
        (work / "table.tex").write_text(tables.latex_table(results), encoding="utf-8")
        for sheet in sheets(results):
            (work / f"{sheet.name}.md").write_text(sheet.markdown(), encoding="utf-8")
            (work / f"{sheet.name}.csv").write_text(sheet.csv(), encoding="utf-8")
        write_plots(drawn, work)
        write_report(results, work / REPORT, drawn, links)
    return folder / REPORT


def print_plan(comparison: "Comparison") -> None:
    """What is to be trained, on the terminal."""
    from rich.console import Console

    from sympformer.studies.compare.overview import overview, sentences

    console = Console(highlight=False)
    wide = console if console.is_terminal else Console(highlight=False, width=160)
    wide.print(overview(comparison))
    for sentence in sentences(comparison):
        console.print(f"- {sentence}", markup=False)


def print_results(results: "Results", samples: bool = False) -> None:
    """The table on the terminal, with its notes; samples: a text of every model too."""
    from rich.console import Console

    from sympformer.studies.results.sheets import sheets
    from sympformer.studies.results.tables import terminal_table

    console = Console(highlight=False)
    wide = console if console.is_terminal else Console(highlight=False, width=160)
    wide.print(terminal_table(results))
    for sheet in sheets(results):
        wide.print(sheet.terminal())
    for note in results.notes:
        console.print(f"- {note}", markup=False)
    for model in results.ranked() if samples else ():
        for sample in model.samples[:1]:
            console.print(f"\n{model.name}:", style="bold", markup=False)
            console.print(sample["text"], markup=False)
