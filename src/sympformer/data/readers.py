"""Documents from one file: a row of `READERS` for every ending, each also with .gz behind it."""

import codecs
import csv
import gzip
import io
import json
import re
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, cast

from sympformer.data.config import DataConfig
from sympformer.errors import InputError, missing_extra

CHUNK = 1 << 20  # bytes read at a time
LONGEST_FIELD = 1 << 30  # characters in .csv
MOST_ROWS = 16  # of a parquet file in memory at a time; more are hardly faster
LOOK = 1 << 13  # bytes at the beginning of a file that tell whether it is text
BLANK_LINES = re.compile(r"\n[ \t]*\n\s*")

Texts = Iterator[tuple[str, int]]  # (document, bytes of the file on disk read so far)


def format_of(path: Path) -> str | None:
    """The ending that tells how to read a file, or None: `stories.jsonl.gz` gives `.jsonl`."""
    ending = Path(path.name.lower().removesuffix(".gz")).suffix
    return ending if ending in READERS else None


def documents(path: Path, config: DataConfig) -> Texts:
    """The documents of a file."""
    return READERS[str(format_of(path))](path, config)


def is_binary(path: Path, encoding: str) -> bool:
    """Whether a file's beginning has a zero byte, which no text has, except in encodings of two and four bytes."""
    if format_of(path) == ".parquet" or b"\0" in "a".encode(encoding):
        return False
    with _opened(path) as (content, _):
        return b"\0" in content.read(LOOK)


def as_text(row: dict[str, Any], column: str, where: str) -> str:
    """The text of a row, or the error that says what is wrong with it."""
    if column not in row:
        raise _missing_column(where, column, list(row))
    value = row[column]
    if not isinstance(value, str):
        raise InputError(f"{where}: column {column!r} holds {type(value).__name__}, not text")
    return value


def _missing_column(where: str, column: str, present: list[str]) -> InputError:
    listed = ", ".join(map(str, present)) or "none at all"
    return InputError(f"{where} has no column {column!r}: it has {listed}; choose one with data.column")


@contextmanager
def _opened(path: Path) -> Iterator[tuple[IO[bytes], IO[bytes]]]:
    """(stream of content, stream on disk) of a file; the two differ when it is compressed."""
    try:
        with path.open("rb") as disk:
            if path.suffix == ".gz":
                with gzip.GzipFile(fileobj=disk) as content:
                    yield cast(IO[bytes], content), disk
            else:
                yield disk, disk
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise InputError(f"{path} is not a whole gzip file ({error}): fetch it again") from error
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from error


def _codec(encoding: str) -> str:
    """UTF-8 that drops a byte order mark at the beginning; other encodings as they are."""
    return "utf-8-sig" if codecs.lookup(encoding).name == "utf-8" else encoding


def _undecodable(path: Path, offset: int, error: UnicodeDecodeError, encoding: str) -> InputError:
    name = "UTF-8" if _codec(encoding) == "utf-8-sig" else encoding
    return InputError(
        f"{path} is not {name} text: byte 0x{error.object[error.start]:02x} at offset {offset} ({error.reason}); "
        "say how it is written with data.encoding, such as cp1252"
    )


def _chunks(path: Path, encoding: str) -> Texts:
    """The text of a file in pieces; line ends become newlines."""
    decoder = codecs.getincrementaldecoder(_codec(encoding))()
    newlines = io.IncrementalNewlineDecoder(None, translate=True)
    with _opened(path) as (content, disk):
        offset, block = 0, b"\0"
        while block:
            block = content.read(CHUNK)
            try:
                text = decoder.decode(block, final=not block)
            except UnicodeDecodeError as error:
                place = offset + len(block) - len(error.object) + error.start
                raise _undecodable(path, place, error, encoding) from None
            yield newlines.decode(text, final=not block), disk.tell()
            offset += len(block)


def _lines(path: Path, encoding: str) -> Iterator[tuple[int, str, int]]:
    """The number, text and place of every line of a file."""
    number, at, parts = 0, 0, list[str]()
    for text, at in _chunks(path, encoding):
        first, *others = text.split("\n")
        parts.append(first)
        for line in others:
            number += 1
            yield number, "".join(parts) + "\n", at
            parts = [line]
    yield number + 1, "".join(parts), at


def _txt(path: Path, config: DataConfig) -> Texts:
    parts, at = list[str](), 0  # of the document that is being read
    for text, at in _chunks(path, config.encoding):
        if config.separator == "file":
            parts.append(text)
            continue
        held = "".join(parts) + text
        blank = config.separator == "blank"
        *whole, held = BLANK_LINES.split(held) if blank else held.split(config.separator)
        yield from ((document, at) for document in whole)
        parts = [held]
    yield "".join(parts), at


def _jsonl(path: Path, config: DataConfig) -> Texts:
    for number, line, at in _lines(path, config.encoding):
        if not line.strip():
            continue
        where = f"{path}, line {number}"
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise InputError(f"{where} is not JSON: {getattr(error, 'msg', error)}") from None
        if not isinstance(row, dict):
            example = f'{{"{config.column}": "..."}}'
            raise InputError(f"{where} is not a JSON object with a field {config.column!r}, like {example}")
        yield as_text(row, config.column, where), at


def _csv(path: Path, config: DataConfig) -> Texts:
    at, started = 0, 1

    def raw_lines() -> Iterator[str]:
        nonlocal at
        for _, line, place in _lines(path, config.encoding):
            at = place
            yield line

    reader = csv.reader(raw_lines())

    def next_row() -> list[str] | None:
        before = csv.field_size_limit(LONGEST_FIELD)  # of the whole process, so that it is put back
        try:
            return next(reader, None)
        except csv.Error as error:
            raise InputError(f"{path}, line {reader.line_num} is not CSV: {error}") from None
        finally:
            csv.field_size_limit(before)

    header = next_row() or []
    if config.column not in header:
        raise _missing_column(str(path), config.column, header)
    column = header.index(config.column)
    while (row := next_row()) is not None:
        if row and len(row) <= column:
            raise InputError(f"{path}, line {started + 1} has {len(row)} columns where {len(header)} were expected")
        if row:
            yield row[column], at
        started = reader.line_num


def _parquet(path: Path, config: DataConfig) -> Texts:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise missing_extra(f"reading {path}", "pyarrow", "data") from error
    size = path.stat().st_size
    with _opened(path) as (content, _):
        try:
            table = pq.ParquetFile(content, buffer_size=CHUNK)
            if config.column not in table.schema_arrow.names:
                raise _missing_column(str(path), config.column, table.schema_arrow.names)
            total, done = table.metadata.num_rows, 0
            for batch in table.iter_batches(batch_size=MOST_ROWS, columns=[config.column]):
                for value in batch.column(0):
                    done += 1
                    text = as_text({config.column: value.as_py()}, config.column, f"{path}, row {done}")
                    yield text, size * done // total
        except (pa.ArrowException, OSError) as error:
            raise InputError(f"{path} is not a whole parquet file: {str(error).splitlines()[0]}") from error


READERS: dict[str, Callable[[Path, DataConfig], Texts]] = {
    ".txt": _txt,
    ".md": _txt,
    ".jsonl": _jsonl,
    ".ndjson": _jsonl,
    ".csv": _csv,
    ".parquet": _parquet,
}


def beginning(path: Path, encoding: str) -> str:
    """The first text of a file, a megabyte at most."""
    return next(_chunks(path, encoding))[0].strip()
