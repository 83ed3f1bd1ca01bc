"""Trained runs put side by side as they are: no grid, one run a model."""

import os
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sympformer.data import Prepared
from sympformer.errors import InputError, unknown_name
from sympformer.progress import steps_with_progress
from sympformer.studies.compare.assemble import METRICS, Entry, ScoredRun, describe_data, make_results, older, one_code
from sympformer.studies.results.results import Results
from sympformer.studies.scoring.score import score_run
from sympformer.training.metrics import read_metrics
from sympformer.training.origin import check_data
from sympformer.training.run import TrainedRun, load_run, open_own_data, read_environment, run_codes

NOTES = [
    "Single runs, trained by themselves: no seeds to take a spread or an interval from. "
    "Rates, budgets and batches are whatever each run had.",
    "Tokens/s and memory are what each run's own clock saw.",
]


def runs_results(
    folders: Sequence[str],
    baseline: str | None = None,
    metric: str = "loss",
    mixed_code: bool = False,
    trust_data: bool = False,
) -> Results:
    """Score runs on held-out text and compare them. baseline: one of the folders, by default the first.

    mixed_code: take runs of different code into one table, which then says so. trust_data: open what runs from
    elsewhere name as their data.
    """
    if metric not in METRICS:
        raise unknown_name("metric", metric, METRICS)
    names = run_names(folders)
    if len(set(names.values())) < len(folders):
        raise InputError("a run is named twice: name each run once")
    if baseline is not None and baseline not in (*names, *names.values()):
        raise unknown_name("baseline", baseline, names)
    runs = [load_run(folder) for folder in folders]
    for run in runs:
        check_data(run.folder, trust=trust_data)
    _check_comparable(runs, metric)
    codes = [code for run in runs for code in run_codes(run.folder)]
    one_code(codes, "train them again with one code", mixed_code)
    split = _common_split(runs)
    entries = [_entry(names[folders[i]], Path(folders[i]), split) for i in steps_with_progress(len(folders), "scoring")]
    configs = {entry.name: entry.runs[0].config.to_dict() for entry in entries}
    prepared = open_own_data(runs[0].folder, runs[0].config)
    scored = f"Scored on the {split} split" + ("." if split == "test" else ": there is no test split.")
    return make_results(
        "runs side by side",
        entries,
        names.get(baseline or folders[0], baseline),
        metric,
        "each run's own budget",
        seeds=sorted({entry.runs[0].config.seed for entry in entries}),
        data=describe_data(prepared),
        scored=split,
        config=configs,
        notes=[*older(entries), *NOTES, scored],
    )


def run_names(folders: Sequence[str]) -> dict[str, str]:
    """Folder -> what the report calls the run."""
    return {folder: _name(folder, folders) for folder in folders}


def held_out_of(folders: Sequence[str]) -> tuple[Prepared, str]:
    """The tokens that the runs hold out, as the first one cuts them, and the split that is scored."""
    runs = [load_run(folder) for folder in folders]
    return open_own_data(runs[0].folder, runs[0].config), _common_split(runs)


def _name(folder: str, folders: Sequence[str]) -> str:
    """The folder's last part, or as much of the path as tells it from the others."""
    common = os.path.commonpath([os.path.abspath(other) for other in folders]) if len(folders) > 1 else None
    name = os.path.relpath(os.path.abspath(folder), common) if common else Path(folder).name
    return "".join(c if c.isprintable() else "\ufffd" for c in name)  # what no page and no picture can hold


def _check_comparable(runs: Sequence[TrainedRun], metric: str) -> None:
    first, *others = runs
    for run in others:
        if metric == "loss" and run.tokenizer.fingerprint != first.tokenizer.fingerprint:
            raise InputError(
                f"{first.folder} and {run.folder} have different tokenizers, so that their losses per token do not "
                "compare; compare bits per byte with --metric bits_per_byte"
            )
        if _corpus(run.folder) != _corpus(first.folder):
            raise InputError(
                f"{first.folder} and {run.folder} were trained on different corpora; score both on the same text with "
                "'sympformer eval RUN --text FILE'"
            )


def _corpus(folder: Path) -> Any:
    return read_environment(folder)["data"].get("corpus")


def _common_split(runs: Sequence[TrainedRun]) -> str:
    """The test split if all have one, otherwise the validation split; its documents must be the same."""
    sheets = [open_own_data(run.folder, run.config).sheet for run in runs]
    split = "test" if all("test" in sheet.splits for sheet in sheets) else "validation"
    held_out = [(sheet.splits[split].documents, sheet.splits[split].bytes) for sheet in sheets]
    for run, held in zip(runs, held_out, strict=True):
        if held != held_out[0]:
            raise InputError(
                f"{runs[0].folder} and {run.folder} hold out different {split} text; score both on the same text with "
                "'sympformer eval RUN --text FILE'"
            )
    return split


def _entry(name: str, folder: Path, split: str) -> Entry:
    run = ScoredRun(folder, score_run(folder, split))
    records = read_metrics(folder)
    if not run.evaluations:
        raise InputError(f"the run in {folder} has no evaluation yet: let it go on with 'sympformer train --resume'")
    return Entry(
        name=name,
        options=run.config.model,
        cfg=run.cfg,
        runs=[run],
        lr=run.config.lr,
        tokens_per_second=statistics.median(record["tokens_per_second"] for record in records),
        memory_mb=max(record["memory_mb"] for record in records),
        codes=tuple(run_codes(folder)),
    )
