"""`metrics.jsonl` and `metrics.csv`: one record a line. After a resume they are as if nothing had happened."""

import csv
import hashlib
import io
import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, TextIO

from sympformer.atomic import write_file
from sympformer.safe_files import read_text, sha256

JSONL, CSV = "metrics.jsonl", "metrics.csv"
COLUMNS = (
    "step", "tokens", "epoch", "lr", "loss", "gradient_norm", "scalar_gradient_norm", "validation_loss", "perplexity",
    "bits_per_byte", "best_validation_loss", "seconds", "tokens_per_second", "memory_mb",
)  # fmt: skip
LARGEST = 1 << 32  # bytes
TIMED = ("seconds", "tokens_per_second", "memory_mb")  # differ from run to run of the same config


class MetricsFiles:
    """Appends records to both files."""

    def __init__(self, folder: Path, layer_columns: Iterable[str], step: int = 0) -> None:
        """step: steps already done; later records, from before a crash, are dropped, the run makes them again."""
        self._columns = (*COLUMNS, *layer_columns)
        kept = keep_records(folder / JSONL, step)
        self._sha256 = hashlib.sha256((folder / JSONL).read_bytes())
        write_file(folder / CSV, _row(self._columns) + "".join(self._csv(record) for record in kept))
        self._jsonl: TextIO = (folder / JSONL).open("a", encoding="utf-8")
        self._csv_file: TextIO = (folder / CSV).open("a", encoding="utf-8", newline="")

    def write(self, record: dict[str, Any]) -> None:
        """Append a record."""
        line = json.dumps(record) + "\n"
        self._sha256.update(line.encode())
        self._jsonl.write(line)
        self._csv_file.write(self._csv(record))
        self.flush()

    def flush(self) -> None:
        """Hand everything to the system."""
        self._jsonl.flush()
        self._csv_file.flush()

    def sync(self) -> str:
        """Make sure that the records are on disk; returns their checksum."""
        os.fsync(self._jsonl.fileno())
        return self._sha256.hexdigest()

    def close(self) -> None:
        """Close both files."""
        self._jsonl.close()
        self._csv_file.close()

    def _csv(self, record: dict[str, Any]) -> str:
        layers = {f"layer{k}.{name}": v for k, row in enumerate(record.get("layers", [])) for name, v in row.items()}
        return _row((record | layers).get(column, "") for column in self._columns)


def layer_columns(layers: list[dict[str, float]]) -> list[str]:
    """CSV columns of the layers' scalars."""
    return [f"layer{k}.{name}" for k, row in enumerate(layers) for name in row]


def read_metrics(folder: Path) -> list[dict[str, Any]]:
    """All records of a run folder."""
    return read_records(folder / JSONL)


def keep_records(file: Path, step: int) -> list[dict[str, Any]]:
    """Drop the records of later steps from a file, for a run that makes them again; returns those that stay."""
    kept = [(line, record) for line, record in _whole_lines(file) if record["step"] <= step]
    write_file(file, "".join(line for line, _ in kept))
    return [record for _, record in kept]


def records_sha256(file: Path, step: int) -> str:
    """The checksum of the records up to a step."""
    return sha256("".join(line for line, record in _whole_lines(file) if record["step"] <= step).encode())


def read_records(file: Path) -> list[dict[str, Any]]:
    """All whole records of a .jsonl file; a line cut short by a crash is left out."""
    return [record for _, record in _whole_lines(file)]


def _whole_lines(file: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    for line in read_text(file, LARGEST).split("\n") if file.exists() else ():
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(record, dict) and type(record.get("step")) is int:
            yield f"{line}\n", record


def _row(values: Iterable[Any]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(values)
    return text.getvalue()
