"""Run the cells of a comparison in worker processes; what is done is skipped, what was cut is resumed."""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from sympformer.atomic import write_file
from sympformer.errors import DivergenceError, InputError
from sympformer.provenance import distinct, this_code
from sympformer.safe_files import read_sealed, sealed
from sympformer.studies.compare.plan import Cell
from sympformer.studies.compare.workers import PATIENCE, Board, Workers
from sympformer.training.checkpoint import checkpoint_path, read_checkpoint
from sympformer.training.config import load_config
from sympformer.training.metrics import read_metrics
from sympformer.training.run import CHECKPOINTS, CONFIG, ENVIRONMENT, check_seal, run_codes

DIVERGED = "diverged.json"
STOPPED = "stopped"


@dataclass(frozen=True)
class Outcome:
    """What a cell came to. diverged: why there is no loss."""

    validation_loss: float
    seconds: float
    diverged: str | None = None


def outcome(root: Path, cell: Cell, total_steps: int) -> Outcome | None:
    """The outcome of a finished cell; None while it is not. Refuses a folder with a run of another config."""
    folder = root / cell.folder
    if not (folder / CONFIG).is_file():
        return None
    if changed := cell.config.differences(load_config(folder / CONFIG)):
        raise InputError(
            f"{folder} holds a run with other settings ({', '.join(changed)}): "
            "choose another --out for a changed comparison"
        )
    if (folder / DIVERGED).is_file():
        found = read_sealed(folder / DIVERGED)
        return Outcome(float("inf"), found["seconds"], found["why"])
    return _finished(folder, total_steps)


def _finished(folder: Path, total_steps: int) -> Outcome | None:
    """A run is done when its last checkpoint is: the last line of metrics is written before it."""
    try:
        last = read_checkpoint(checkpoint_path(folder / CHECKPOINTS, "step", total_steps))
    except InputError:
        return None  # not there, or damaged: trained again from the one before
    check_seal(folder, last)
    scored = [record for record in read_metrics(folder) if "validation_loss" in record]
    loss, seconds = scored[-1]["validation_loss"], scored[-1]["seconds"]
    if not math.isfinite(loss):
        return Outcome(float("inf"), seconds, f"the validation loss is not finite at step {scored[-1]['step']}")
    return Outcome(loss, seconds)


def run_cells(
    root: Path, cells: Sequence[Cell], total_steps: Sequence[int], workers: Workers, label: str, mixed_code: bool
) -> list[Outcome]:
    """Train what is not done yet; the outcomes in the order of the cells. mixed_code: with whatever code."""
    found = [outcome(root, cell, total) for cell, total in zip(cells, total_steps, strict=True)]
    missing = [i for i, done in enumerate(found) if done is None]
    if missing and not mixed_code:
        check_code(root)
    with Board(label, len(cells), len(cells) - len(missing)) as board:
        for i, ending in workers.run(train_cell, [(str(root), cells[i]) for i in missing]):
            k = missing[i]
            if ending == STOPPED:
                raise KeyboardInterrupt
            done = outcome(root, cells[k], total_steps[k])
            if done is None:
                raise InputError(f"{root / cells[k].folder} did not finish; its log.txt may say why")
            found[k] = done
            what = done.diverged or f"validation loss {done.validation_loss:.4f}"
            board.finished(f"{cells[k].describe()}: {what} ({done.seconds:.0f} s)")
    return [done for done in found if done is not None]


def check_code(root: Path) -> None:
    """Refuse to go on with runs that other code has begun."""
    ours = this_code()
    begun = [code for file in sorted(root.glob(f"runs/*/*/{ENVIRONMENT}")) for code in run_codes(file.parent)]
    for theirs in distinct(begun):
        if theirs.source != ours.source:
            that = f"commit {theirs.commit}" if theirs.commit else f"sympformer {theirs.version or 'that made it'}"
            raise InputError(
                f"{root} was begun by other code, {theirs.label}, than this one, {ours.label}: go on with {that}, "
                "begin again with another --out, or mix the two and have the table say so with --mixed_code true"
            )


def train_cell(root: str, cell: Cell) -> str | None:
    """In a worker: train or continue one cell. Returns STOPPED where a signal ended it early."""
    from sympformer.training import run_training

    folder = Path(root) / cell.folder
    resume = (folder / CONFIG).is_file()
    started = time.monotonic()
    try:
        # Ctrl-C reaches a worker twice: by itself, and from the parent
        result = run_training(cell.config.replace(out=str(folder)), resume=resume, bar=False, echo=PATIENCE)
    except DivergenceError as error:
        write_file(folder / DIVERGED, sealed({"why": str(error), "seconds": time.monotonic() - started}))
        return None
    return STOPPED if result.stopped_by is not None else None
