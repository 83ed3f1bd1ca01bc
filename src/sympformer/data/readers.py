"""Documents from one file: a row of `READERS` for every ending, each also with .gz behind it."""

import codecs
import csv
import gzip
import io
import json
import re
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
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
        listed = ", ".join(map(str, row)) or "none at all"
        raise InputError(f"{where} has no column {column!r}: it has {listed}; choose one with data.column")
    value = row[column]
    if not isinstance(value, str):
        kind = "nothing" if value is None else type(value).__name__
        raise InputError(f"{where}: column {column!r} holds {kind}, not text")
    return value


@contextmanager
def readable(path: Path) -> Iterator[None]:
    """One sentence where a file cannot be read."""
    try:
        yield
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise InputError(f"{path} is not a whole gzip file ({error}): fetch it again") from error
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from error


@contextmanager
def _opened(path: Path) -> Iterator[tuple[IO[bytes], IO[bytes]]]:
    """(stream of content, stream on disk) of a file; the two differ when it is compressed."""
    with readable(path), path.open("rb") as disk, ExitStack() as packed:
        content = packed.enter_context(gzip.GzipFile(fileobj=disk)) if path.suffix == ".gz" else disk
        yield cast(IO[bytes], content), disk


def _chunks(path: Path, encoding: str) -> Texts:
    """The text of a file in pieces, without a byte order mark; line ends become newlines."""
    utf8 = codecs.lookup(encoding).name == "utf-8"
    decoder = codecs.getincrementaldecoder("utf-8-sig" if utf8 else encoding)()
    newlines = io.IncrementalNewlineDecoder(None, translate=True)
    with _opened(path) as (content, disk):
        offset, block = 0, b"\0"
        while block:
            block = content.read(CHUNK)
            try:
                text = decoder.decode(block, final=not block)
            except UnicodeDecodeError as error:
                place, byte = offset + len(block) - len(error.object) + error.start, error.object[error.start]
                raise InputError(
                    f"{path} is not {'UTF-8' if utf8 else encoding} text: byte 0x{byte:02x} at offset {place} "
                    f"({error.reason}); say how it is written with data.encoding, such as cp1252"
                ) from None
            yield newlines.decode(text, final=not block), disk.tell()
            offset += len(block)


def _pieces(path: Path, encoding: str, split: Callable[[str], list[str]]) -> Texts:
    """The text of a file, taken apart by what stands between its pieces."""
    held, at = "", 0
    for text, at in _chunks(path, encoding):
        *whole, held = split(held + text)
        yield from ((piece, at) for piece in whole)
    yield held, at


def _lines(path: Path, encoding: str) -> Texts:
    return _pieces(path, encoding, lambda text: text.split("\n"))


def _txt(path: Path, config: DataConfig) -> Texts:
    if config.separator == "file":
        yield "".join(text for text, _ in _chunks(path, config.encoding)), path.stat().st_size
    elif config.separator == "blank":
        yield from _pieces(path, config.encoding, BLANK_LINES.split)
    else:
        yield from _pieces(path, config.encoding, lambda text: text.split(config.separator))


def _jsonl(path: Path, config: DataConfig) -> Texts:
    for number, (line, at) in enumerate(_lines(path, config.encoding), start=1):
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
    at = 0

    def lines() -> Iterator[str]:
        nonlocal at
        for line, place in _lines(path, config.encoding):
            at = place
            yield line + "\n"

    reader = csv.DictReader(lines())

    def next_row() -> dict[str, Any] | None:
        before = csv.field_size_limit(LONGEST_FIELD)  # of the whole process, so that it is put back
        try:
            return next(reader, None)
        except csv.Error as error:
            raise InputError(f"{path}, line {reader.line_num} is not CSV: {error}") from None
        finally:
            csv.field_size_limit(before)

    row = next_row()
    as_text(dict.fromkeys(reader.fieldnames or (), ""), config.column, str(path))  # it has that column
    while row is not None:
        yield as_text(row, config.column, f"{path}, line {reader.line_num}"), at
        row = next_row()


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
            as_text(dict.fromkeys(table.schema_arrow.names, ""), config.column, str(path))  # it has that column
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
