"""Documents from one file: .txt, .jsonl, .csv, .parquet, each also with .gz behind it."""

import csv
import json
import re
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from shutil import copyfileobj
from typing import IO, Any

from sympformer.data.corpora.text_stream import CHUNK, LONGEST_LINE, chunks, lines, open_bytes
from sympformer.errors import InputError, missing_extra

END_OF_TEXT = "<|endoftext|>"
BLANK_LINES = re.compile(r"\n[ \t]*\n\s*")
LONGEST = 1 << 20  # characters of a document in a .txt file; a longer one is cut at a line end

Texts = Iterator[tuple[str, int]]  # (document, bytes of the file on disk read so far)


@dataclass(frozen=True)
class Reading:
    """How to find documents inside files.

    column: field, column or key that holds the text in .jsonl, .csv and .parquet.
    separator: what stands between the documents of a .txt file: "file" (nothing: the file is one document), "blank"
        (blank lines), or any text such as "<|endoftext|>". "auto": <|endoftext|> where the file's beginning has it,
        else blank lines where the file is the only one of its split, else "file".
    """

    column: str = "text"
    separator: str = "auto"

    def __post_init__(self) -> None:
        if not self.separator:
            raise InputError("the separator is empty: give auto, file, blank, or the text between two documents")


def documents(path: Path, reading: Reading, alone: bool) -> Texts:
    """The documents of a file. alone: it is the only file of its split."""
    suffix = format_of(path)
    assert suffix is not None
    if suffix == ".txt":
        return _txt(path, reading.separator, alone)
    return READERS[suffix](path, reading.column)


def format_of(path: Path) -> str | None:
    """The suffix that tells how to read a file, or None: `stories.jsonl.gz` gives `.jsonl`."""
    name = path.name.lower().removesuffix(".gz")
    suffix = Path(name).suffix
    return suffix if suffix in SUFFIXES else None


def missing_column(where: str, column: str, present: list[str]) -> InputError:
    """The error for a table without the wanted column."""
    listed = ", ".join(map(str, present)) or "none at all"
    return InputError(f"{where} has no column {column!r}: it has {listed}; choose one with --column")


def _txt(path: Path, separator: str, alone: bool) -> Texts:
    held = ""
    for text, position in chunks(path):
        if separator == "auto":
            separator = END_OF_TEXT if END_OF_TEXT in text else "blank" if alone else "file"
        *whole, held = _split(held + text, separator)
        for document in whole:
            for piece in _pieces(document):
                yield piece, position
        while len(held) > LONGEST:
            piece, held = _cut(held)
            yield piece, position
    yield held, position


def _split(text: str, separator: str) -> list[str]:
    if separator == "file":
        return [text]
    return BLANK_LINES.split(text) if separator == "blank" else text.split(separator)


def _pieces(document: str) -> Iterator[str]:
    while len(document) > LONGEST:
        piece, document = _cut(document)
        yield piece
    yield document


def _cut(text: str) -> tuple[str, str]:
    """The first LONGEST characters or less, up to the last line end or else the last space, and the rest."""
    at = text.rfind("\n", 1, LONGEST) + 1 or text.rfind(" ", 1, LONGEST) + 1 or LONGEST
    return text[:at], text[at:]


def _jsonl(path: Path, column: str) -> Texts:
    for line in lines(path):
        if not line.text.strip():
            continue
        where = f"{path}, line {line.number}"
        try:
            row = json.loads(line.text)
        except (json.JSONDecodeError, RecursionError) as error:
            raise InputError(f"{where} is not JSON: {getattr(error, 'msg', error)}") from None
        if not isinstance(row, dict):
            raise InputError(f'{where} is not a JSON object with a field {column!r}, like {{"{column}": "..."}}')
        yield as_text(row, column, where), line.position


def as_text(row: dict[str, Any], column: str, where: str) -> str:
    """The text of a row, or the error that says what is wrong with it."""
    if column not in row:
        raise missing_column(where, column, list(row))
    value = row[column]
    if not isinstance(value, str):
        raise InputError(f"{where}: column {column!r} holds {type(value).__name__}, not text")
    return value


def _csv(path: Path, column: str) -> Texts:
    csv.field_size_limit(LONGEST_LINE)
    position, started = 0, 1

    def raw_lines() -> Iterator[str]:
        nonlocal position
        for line in lines(path):
            position = line.position
            yield line.text

    rows = csv.reader(raw_lines())
    try:
        header = next(rows, [])
        if column not in header:
            raise missing_column(str(path), column, header)
        at = header.index(column)
        for row in rows:
            if row and len(row) <= at:
                raise InputError(f"{path}, line {started + 1} has {len(row)} columns where {len(header)} were expected")
            if row:
                yield row[at], position
            started = rows.line_num
    except csv.Error as error:
        raise InputError(f"{path}, line {rows.line_num} is not CSV: {error}") from None


def _parquet(path: Path, column: str) -> Texts:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise missing_extra(f"reading {path}", "pyarrow", "data") from error
    size = path.stat().st_size
    with _seekable(path) as file:
        try:
            table = pq.ParquetFile(file)
            if column not in table.schema_arrow.names:
                raise missing_column(str(path), column, table.schema_arrow.names)
            done, total = 0, max(1, table.metadata.num_rows)
            for batch in table.iter_batches(batch_size=1024, columns=[column]):
                for value in batch.column(0).to_pylist():
                    done += 1
                    yield as_text({column: value}, column, f"{path}, row {done}"), size * done // total
        except (pa.ArrowException, OSError) as error:
            raise InputError(f"{path} is not a whole parquet file: {str(error).splitlines()[0]}") from error


@contextmanager
def _seekable(path: Path) -> Iterator[IO[bytes]]:
    """A file to jump about in: parquet keeps its index at the end, so a .gz is unpacked to a temporary file first."""
    with open_bytes(path) as (content, disk):
        if content is disk:
            yield disk
            return
        with tempfile.TemporaryFile() as unpacked:
            copyfileobj(content, unpacked, CHUNK)
            unpacked.seek(0)
            yield unpacked


READERS: dict[str, Callable[[Path, str], Texts]] = {
    ".jsonl": _jsonl,
    ".ndjson": _jsonl,
    ".csv": _csv,
    ".parquet": _parquet,
}
SUFFIXES = (".txt", *READERS)
