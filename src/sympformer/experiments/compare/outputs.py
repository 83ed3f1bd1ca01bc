"""What a comparison leaves behind for people: results.json, tables, plots, the report."""

from pathlib import Path

from sympformer.atomic import staged_files
from sympformer.experiments.compare.plots import write_plots
from sympformer.experiments.compare.results import FILE, Results
from sympformer.experiments.compare.tables import csv_table, latex_table, markdown_table, terminal_table
from sympformer.experiments.report import write_report

REPORT = "report.html"


def write_outputs(results: Results, folder: Path) -> Path:
    """Write all of them; returns the report's path."""
    with staged_files(folder) as work:
        (work / FILE).write_text(results.to_json(), encoding="utf-8")
        (work / "table.csv").write_text(csv_table(results), encoding="utf-8")
        (work / "table.md").write_text(markdown_table(results), encoding="utf-8")
        (work / "table.tex").write_text(latex_table(results), encoding="utf-8")
        write_plots(results, work)
        write_report(results, work / REPORT)
    return folder / REPORT


def print_results(results: Results, samples: bool = False) -> None:
    """The table on the terminal, with its notes; samples: a text of every model too."""
    from rich.console import Console

    console = Console(highlight=False)
    wide = console if console.is_terminal else Console(highlight=False, width=120)
    wide.print(terminal_table(results))
    for note in results.notes:
        console.print(f"- {note}", markup=False)
    for model in results.ranked() if samples else ():
        for sample in model.samples[:1]:
            console.print(f"\n{model.name}:", style="bold", markup=False)
            console.print(sample["text"], markup=False)
