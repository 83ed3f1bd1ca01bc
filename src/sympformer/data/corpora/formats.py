"""Documents from one file: a row of `READERS` for every ending, each also with .gz behind it."""

import csv
import json
import re
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from shutil import copyfileobj
from typing import IO, Any, Literal

from sympformer.data.corpora.markup import HTMLText
from sympformer.data.corpora.text_stream import CHUNK, LONGEST_LINE, UTF8, check_encoding, chunks, lines, open_bytes
from sympformer.errors import InputError, missing_extra

END_OF_TEXT = "<|endoftext|>"
BLANK_LINES = re.compile(r"\n[ \t]*\n\s*")
MOST_ROWS = 16  # of a parquet file, read at a time; more are hardly faster
LONGEST = 1 << 20  # characters of a document in a .txt file; a longer one is cut at a line end
SHORT, SEVERAL = 256, 20  # so many pieces that average so few characters (some 64 tokens) are not documents

OnBadFile = Literal["stop", "skip"]
Texts = Iterator[tuple[str, int]]  # (document, bytes of the file on disk read so far)


@dataclass(frozen=True)
class Reading:
    """How to find documents inside files.

    column: field, column or key that holds the text in .jsonl, .csv and .parquet.
    separator: what stands between the documents of a .txt or .md file: "file" (nothing: the file is one document),
        "blank" (blank lines), or any text such as "<|endoftext|>". "auto": see `auto_separator`.
    encoding: of all files but .parquet. on_bad_file: "stop" at a file that cannot be read, or "skip" it.
    """

    column: str = "text"
    separator: str = "auto"
    encoding: str = UTF8
    on_bad_file: OnBadFile = "stop"

    def __post_init__(self) -> None:
        if not self.separator:
            raise InputError("the separator is empty: give auto, file, blank, or the text between two documents")
        if self.on_bad_file not in ("stop", "skip"):
            raise InputError(f"on_bad_file must be stop or skip, got {self.on_bad_file!r}")
        check_encoding(self.encoding)

    def describe(self) -> dict[str, str]:
        """What decides the documents, as JSON; the encoding only where it is another than the usual one."""
        other = {} if self.encoding == UTF8 else {"encoding": self.encoding}
        return {"column": self.column, "separator": self.separator, **other}


def documents(path: Path, reading: Reading, alone: bool) -> Texts:
    """The documents of a file. alone: it is the only file of its split."""
    suffix = format_of(path)
    assert suffix is not None
    return READERS[suffix](path, reading, alone)


def auto_separator(beginning: str, alone: bool) -> str:
    """What stands between documents, by the file's beginning: <|endoftext|> where it has it. Else a file is one
    document, unless it is alone and blank lines cut it into pieces of some length: the speeches of a play are not
    documents.
    """
    if END_OF_TEXT in beginning:
        return END_OF_TEXT
    return "blank" if alone and short_pieces(beginning) is None else "file"


def short_pieces(beginning: str) -> int | None:
    """Characters between blank lines on average, where that is too short for documents."""
    pieces = [len(piece) for piece in BLANK_LINES.split(beginning.strip())]
    average = sum(pieces) // len(pieces)
    return average if len(pieces) >= SEVERAL and average < SHORT else None


def separator_note(path: Path, reading: Reading) -> str | None:
    """A sentence where "auto" takes a file that is alone as one document, though it has blank lines."""
    if format_of(path) != ".txt" or reading.separator != "auto":
        return None
    beginning = next(chunks(path, reading.encoding)).text
    average = short_pieces(beginning)
    if average is None or END_OF_TEXT in beginning:
        return None
    return (
        f"the pieces between blank lines of {path.name} have {average} characters on average, too few for documents: "
        "the file is taken as one document (separator blank would take the pieces)"
    )


def format_of(path: Path) -> str | None:
    """The suffix that tells how to read a file, or None: `stories.jsonl.gz` gives `.jsonl`."""
    name = path.name.lower().removesuffix(".gz")
    suffix = Path(name).suffix
    return suffix if suffix in SUFFIXES else None


def missing_column(where: str, column: str, present: list[str]) -> InputError:
    """The error for a table without the wanted column."""
    listed = ", ".join(map(str, present)) or "none at all"
    return InputError(f"{where} has no column {column!r}: it has {listed}; choose one with --column")


def _txt(path: Path, reading: Reading, alone: bool) -> Texts:
    held, separator = "", reading.separator
    for text, position in chunks(path, reading.encoding):
        if separator == "auto":
            separator = auto_separator(text, alone)
        *whole, held = _split(held + text, separator)
        for document in whole:
            for piece in _pieces(document):
                yield piece, position
        while len(held) > LONGEST:
            piece, held = _cut(held)
            yield piece, position
    yield held, position


def _markdown(path: Path, reading: Reading, alone: bool) -> Texts:
    """As .txt, except that its blank lines are not taken for the ends of documents."""
    return _txt(path, reading, alone=False)


def _html(path: Path, reading: Reading, alone: bool) -> Texts:
    parser = HTMLText()
    for text, position in chunks(path, reading.encoding):
        parser.feed(text)
        if parser.size > LONGEST:
            yield parser.taken(), position
    parser.close()
    yield parser.taken(), position


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


def _jsonl(path: Path, reading: Reading, alone: bool) -> Texts:
    column = reading.column
    for line in lines(path, reading.encoding):
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


def _csv(path: Path, reading: Reading, alone: bool) -> Texts:
    column = reading.column
    csv.field_size_limit(LONGEST_LINE)
    position, started = 0, 1

    def raw_lines() -> Iterator[str]:
        nonlocal position
        for line in lines(path, reading.encoding):
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


def _parquet(path: Path, reading: Reading, alone: bool) -> Texts:
    column = reading.column
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise missing_extra(f"reading {path}", "pyarrow", "data") from error
    size = path.stat().st_size
    with _seekable(path) as file:
        try:
            table = pq.ParquetFile(file, buffer_size=CHUNK)
            if column not in table.schema_arrow.names:
                raise missing_column(str(path), column, table.schema_arrow.names)
            total = max(1, table.metadata.num_rows)
            for done, value in enumerate(_values(table, column, path), start=1):
                yield as_text({column: value}, column, f"{path}, row {done}"), size * done // total
        except (pa.ArrowException, OSError) as error:
            raise InputError(f"{path} is not a whole parquet file: {str(error).splitlines()[0]}") from error


def _values(table: Any, column: str, path: Path) -> Iterator[Any]:
    """The values of a column, few in memory at a time: a text that stands many times may take no room in the file."""
    for group in range(table.num_row_groups):
        described = table.metadata.row_group(group)
        parts = [described.column(i) for i in range(described.num_columns)]
        whole = sum(part.total_uncompressed_size for part in parts if part.path_in_schema == column)
        mean = whole / max(1, described.num_rows)
        if mean > LONGEST_LINE:
            raise InputError(
                f"{path} holds texts of {mean / (1 << 20):,.0f} MB, where {LONGEST_LINE >> 20} MB are the most: "
                "make them several documents"
            )
        rows = int(min(MOST_ROWS, max(1, CHUNK // max(1, mean))))
        for batch in table.iter_batches(batch_size=rows, row_groups=[group], columns=[column]):
            yield from (value.as_py() for value in batch.column(0))


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


READERS: dict[str, Callable[[Path, Reading, bool], Texts]] = {
    ".txt": _txt,
    ".md": _markdown,
    ".html": _html,
    ".htm": _html,
    ".jsonl": _jsonl,
    ".ndjson": _jsonl,
    ".csv": _csv,
    ".parquet": _parquet,
}
SUFFIXES = tuple(READERS)
