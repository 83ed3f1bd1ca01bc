"""Bytes from a file, plain or gzip, as text in bounded pieces, with errors that name the file and the place."""

import codecs
import gzip
import io
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import IO, NamedTuple, cast

from sympformer.errors import InputError

CHUNK = 1 << 20  # bytes read at a time
LONGEST_LINE = 1 << 25  # bytes of a line of .jsonl and .csv, and characters of a field
UTF8 = "utf-8"
LOOK = 1 << 13  # bytes at the beginning of a file that tell whether it is text


class Chunk(NamedTuple):
    """Some text of a file, and how many bytes of the file on disk have been read for it."""

    text: str
    position: int


class Line(NamedTuple):
    """A line of a file, its number from 1, and how many bytes of the file on disk have been read for it."""

    number: int
    text: str
    position: int


@contextmanager
def open_bytes(path: Path) -> Iterator[tuple[IO[bytes], IO[bytes]]]:
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


def check_encoding(encoding: str) -> None:
    """Raise where Python knows no such encoding of text."""
    try:
        "a".encode(encoding)
    except (LookupError, ValueError):
        raise InputError(f"unknown encoding {encoding!r}: give one such as utf-8, cp1252, latin-1 or utf-16") from None


def is_binary(path: Path, encoding: str) -> bool:
    """Whether a file's beginning has a zero byte, which no text has, except in encodings of two and four bytes."""
    with open_bytes(path) as (content, _):
        return b"\0" in content.read(LOOK) and b"\0" not in "a".encode(encoding)


def chunks(path: Path, encoding: str = UTF8) -> Iterator[Chunk]:
    """The text of a file in pieces; line ends become newlines, a byte order mark is dropped."""
    decoder = codecs.getincrementaldecoder(_with_mark(encoding))()
    newlines = io.IncrementalNewlineDecoder(None, translate=True)
    with open_bytes(path) as (content, disk):
        offset = 0
        while block := content.read(CHUNK):
            try:
                text = decoder.decode(block)
            except UnicodeDecodeError as error:
                place = offset + len(block) - len(error.object) + error.start
                raise _undecodable(path, place, error, encoding) from None
            yield Chunk(newlines.decode(text), disk.tell())
            offset += len(block)
        try:
            text = decoder.decode(b"", final=True)
        except UnicodeDecodeError as error:
            raise _undecodable(path, offset - len(error.object) + error.start, error, encoding) from None
        yield Chunk(newlines.decode(text, final=True), disk.tell())


def lines(path: Path, encoding: str = UTF8) -> Iterator[Line]:
    """The lines of a file with their line ends."""
    if "\n".encode(encoding) != b"\n":
        raise InputError(f"{path} cannot be read as {encoding}: save it as UTF-8, or as .txt")
    with open_bytes(path) as (content, disk):
        offset = 0
        for number in count(1):
            raw = content.readline(LONGEST_LINE + 1)
            if not raw:
                return
            if len(raw) > LONGEST_LINE:
                raise InputError(
                    f"{path}, line {number} is longer than {LONGEST_LINE >> 20} MB: make it several documents"
                )
            try:
                text = raw.decode(_with_mark(encoding) if number == 1 else encoding)
            except UnicodeDecodeError as error:
                raise _undecodable(path, offset + error.start, error, encoding) from None
            yield Line(number, text, disk.tell())
            offset += len(raw)


def _with_mark(encoding: str) -> str:
    """UTF-8 that drops a byte order mark at the beginning; other encodings as they are."""
    return "utf-8-sig" if codecs.lookup(encoding).name == UTF8 else encoding


def _undecodable(path: Path, offset: int, error: UnicodeDecodeError, encoding: str) -> InputError:
    name = "UTF-8" if codecs.lookup(encoding).name == UTF8 else encoding
    return InputError(
        f"{path} is not {name} text: byte 0x{error.object[error.start]:02x} at offset {offset} ({error.reason}); "
        "say how it is written with --encoding, such as --encoding cp1252 (in train and eval of a run's own data "
        "--data.encoding), or leave such files out with --on_bad_file skip"
    )
