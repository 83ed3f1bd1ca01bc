"""`sympformer_run.json`: what an exported folder says about the run it came from, with a checksum for what it holds."""

import dataclasses
import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sympformer import __version__
from sympformer.errors import InputError
from sympformer.opening import Opened
from sympformer.provenance import this_code
from sympformer.safe_files import check_files, read_json, sealed, unsealed
from sympformer.training.config import TrainConfig
from sympformer.training.folder import RunFolder

RECORD, FORMAT = "sympformer_run.json", 1
# of a run's environment: what the result depends on, not whose machine it was
KEPT = ("codes", "budgets", "init_from", "python", "torch", "processes")
EVALUATION = (
    "step", "tokens", "epoch", "validation_loss", "perplexity", "bits_per_byte", "best_validation_loss", "seconds",
)  # fmt: skip


@dataclass(frozen=True)
class Record:
    """The story of the weights."""

    which: str  # best or last
    config: dict[str, Any]  # of the training
    environment: dict[str, Any]
    progress: dict[str, Any]
    tokenizer: dict[str, Any]
    audit: dict[str, Any]
    evaluation: dict[str, Any] | None = None  # at the step of these weights, if there was one
    files: dict[str, str] = dataclasses.field(default_factory=dict)  # name -> sha256
    sympformer: str = __version__
    format: int = FORMAT

    def with_files(self, folder: Path, names: list[str]) -> "Record":
        """The record with the checksums of these files."""
        return dataclasses.replace(self, files={name: file_sha256(folder / name) for name in names})

    def to_json(self) -> str:
        return sealed(dataclasses.asdict(self), indent=2)

    def train_config(self) -> TrainConfig:
        """The config of the training."""
        return TrainConfig.from_dict(self.config)


def record_of(run: RunFolder, opened: Opened, which: str, audit: dict[str, Any]) -> Record:
    """What a run folder says about its weights."""
    return Record(
        which=which,
        config=run.config.to_dict(),
        environment=_environment(run),
        progress={"step": opened.step},
        tokenizer=run.tokenizer.describe(),
        audit=audit,
        evaluation=_evaluation(run, opened.step),
    )


def _environment(run: RunFolder) -> dict[str, Any]:
    whole = run.record
    kept = {name: whole[name] for name in KEPT if name in whole}
    data = {name: whole["data"][name] for name in ("corpus", "sha256") if name in whole["data"]}
    return kept | {"data": data, "exported_by": this_code().to_dict()}


def _evaluation(run: RunFolder, step: int | None) -> dict[str, Any] | None:
    rows = [row for row in run.metrics() if row["step"] == step and "validation_loss" in row]
    return {name: rows[-1][name] for name in EVALUATION if name in rows[-1]} if rows else None


def read_record(folder: Path) -> Record | None:
    """The record of a folder, verified; None where another tool wrote the folder and there is none."""
    file = folder / RECORD
    if not file.exists():
        return None
    try:
        values = read_json(file)
        if values["format"] > FORMAT:
            raise InputError(
                f"{file} is of format {values['format']}, written by sympformer {values.get('sympformer', '?')}, "
                f"and this one reads up to {FORMAT}: install a newer sympformer"
            )
        record = Record(**unsealed(values, file))
        check_files(folder, record.files, RECORD)
        record.train_config()
    except InputError:
        raise
    except OSError as error:
        raise InputError(f"{folder} is not whole: cannot read {error.filename} ({error.strerror})") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{file} is damaged ({error}): take a fresh copy of the folder") from error
    return record


def file_sha256(file: Path) -> str:
    """The checksum of a file."""
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()
