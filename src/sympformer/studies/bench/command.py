"""`sympformer bench`: what a layer costs, as ratios."""

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import get_args

from sympformer import machine
from sympformer.errors import InputError, unknown_name
from sympformer.provenance import this_code
from sympformer.studies.bench.suites import SUITES, Suite
from sympformer.studies.bench.timing import Row
from sympformer.tables import Head, terminal_table


def bench(suites: list[Suite] | None = None, rounds: int = 15, out: str | None = "runs/bench.json") -> int:
    """Measure what layers, long texts, memory and generation cost, as ratios.

    Args:
        suites: Which measurements: step, sizes (other shapes and peers), peers (the rows of the peers beside each
            other), linear, memory, generation, layers (padding), choices (tuned on one CPU, right on this one?). All by
            default.
        rounds: Rounds of interleaved timing; every figure is a median over them.
        out: JSON file for the figures and the machine; null writes none.
    """
    chosen = list(get_args(Suite)) if suites is None else suites
    for suite in chosen:
        if suite not in SUITES:
            raise unknown_name("suite", suite, SUITES)
    if rounds < 1:
        raise InputError(f"rounds must be at least 1, got {rounds}")
    target = _writable(out) if out is not None else None
    rows: list[Row] = []
    for suite in chosen:  # each is shown and written as soon as it is there: the whole takes minutes
        done = SUITES[suite](rounds)
        _print(suite, done)
        rows += done
        if target is not None:
            figures = [asdict(row) | {"met": row.met} for row in rows]
            here = machine.facts() | {"bfloat16": machine.bfloat16().sentence}
            content = {"code": this_code().to_dict(), "machine": here, "rounds": rounds, "figures": figures}
            target.write_text(json.dumps(content, indent=2) + "\n")
    if target is not None:
        print(f"written to {target}")
    return 0


def _writable(out: str) -> Path:
    """The file's path, its folder made; an error before any minute is spent measuring."""
    path = Path(out)
    if path.is_dir():
        raise InputError(f"out must name a file, {out} is a folder; try {path / 'bench.json'}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot make the folder {path.parent}: {error.strerror}") from None
    return path


def _print(suite: str, rows: list[Row]) -> None:
    from rich.console import Console

    title = f"{suite}: {machine.headline()}"
    verdicts = {True: "met", False: "[bold red]missed[/]", None: ""}
    cells = [(row.what, f"{row.value:.2f}", row.wanted, verdicts[row.met]) for row in rows]
    heads = [Head("measured", left=True, wrap=True), Head("ratio"), Head("wanted"), Head("", left=True)]
    Console(width=None if sys.stdout.isatty() else 110).print(terminal_table(title, heads, cells))
