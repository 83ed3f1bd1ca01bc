"""A corpus on disk: one file, or a folder of files with or without a split of its own."""

import os
import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from sympformer.data.corpora.formats import SUFFIXES, Reading, documents, format_of, separator_note
from sympformer.data.corpora.source import Item, Source
from sympformer.data.corpora.text_stream import is_binary
from sympformer.errors import InputError

# train.csv, validation.jsonl.gz, valid-00000-of-00002.parquet, stories-train.txt, or a folder of such a name
NAMED = re.compile(r"^(?:.*[-_.])?(train|training|validation|valid|val|dev|test)(?:[-_.]?\d+(?:-of-\d+)?)?$")
NAMES = 5  # files left out that are named
MEANS = {"training": "train", "valid": "validation", "val": "validation", "dev": "validation"}


def open_files(path: Path, name: str, reading: Reading) -> Source:
    """The source at a path. Raises where there is nothing to read."""
    if not os.path.exists(path):  # unlike Path.exists, no error for a name that cannot be one
        raise InputError(f"corpus {name!r} is neither a known name nor a file or folder that exists")
    left_out = LeftOut(path)
    if path.is_dir():
        found = _list(path, reading, left_out)
    elif not path.is_file():
        raise InputError(f"{path} is not a regular file: give one that can be read from beginning to end, twice")
    elif format_of(path) is None:
        raise InputError(f"cannot tell the format of {path}: expected {_list_formats()}, plain or with .gz")
    elif _is_binary(path, reading):
        raise InputError(f"{path} has zero bytes: it is not text, or text that needs --encoding utf-16")
    else:
        found = [path]
    parts, ignored = _splits(path, found)
    left_out.add("no split in the name", *ignored)
    whole = _taken_whole(parts, reading)
    return Source(
        name=name,
        kind="files",
        identity={split: [_identity(path, file) for file in files] for split, files in parts.items()}
        | ({"one_document": sorted(whole)} if whole else {}),
        splits={split: partial(_read, files, reading) for split, files in parts.items()},
        ignored=tuple(str(file.relative_to(path)) for file in ignored),
        notes=tuple(map(_printable, [*left_out.sentences(), *whole.values()])),
    )


class LeftOut:
    """The files of a folder that are not read, by the reason why."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._files: dict[str, list[Path]] = {}
        self._examples: dict[str, str] = {}

    def add(self, reason: str, *files: Path, example: str | None = None) -> None:
        """Note files that have a reason in common. example: more about one of them; that of the first is told."""
        self._files.setdefault(reason, []).extend(files)
        if example is not None:
            self._examples.setdefault(reason, f"; {example}")

    def sentences(self) -> list[str]:
        """One for every reason: how many, and the first few by name."""
        said = []
        for reason, files in self._files.items():
            names = [str(file.relative_to(self._root)) for file in files[:NAMES]]
            names += [f"{len(files) - NAMES:,} more"] if len(files) > NAMES else []
            if files:
                what = f"left out {len(files):,} file{'s' if len(files) > 1 else ''} ({reason})"
                said.append(f"{what}: {', '.join(names)}{self._examples.get(reason, '')}")
        return said


def _taken_whole(parts: dict[str, list[Path]], reading: Reading) -> dict[str, str]:
    """The splits whose one file could be several documents and is taken as one, each with the sentence that says so."""
    notes = {split: separator_note(files[0], reading) for split, files in parts.items() if len(files) == 1}
    return {split: note for split, note in notes.items() if note is not None}


def _printable(sentence: str) -> str:
    """A sentence without what may stand in a file's name and moves a cursor."""
    return "".join(character if character.isprintable() else "\ufffd" for character in sentence)


def _list_formats() -> str:
    return f"{', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]}"


def _list(folder: Path, reading: Reading, left_out: LeftOut) -> list[Path]:
    """The readable files below a folder in a fixed order; hidden ones are left out without a word."""
    found = []
    for path in sorted(folder.rglob("*")):
        if any(part.startswith(".") for part in path.relative_to(folder).parts) or not path.is_file():
            continue
        if format_of(path) is None:
            left_out.add("unknown ending", path)
        elif _is_binary(path, reading):
            left_out.add("binary, or text that needs --encoding utf-16", path)
        elif (trouble := _trouble(path, reading)) is not None:
            left_out.add("cannot be read", path, example=trouble)
        else:
            found.append(path)
            if path.stat().st_size == 0:
                left_out.add("empty", path)
    if not found:
        why = [" that can be read: " + "; ".join(left_out.sentences())] if left_out.sentences() else []
        raise InputError("".join([f"folder {folder} holds no {_list_formats()} file", *why]))
    return found


def _is_binary(path: Path, reading: Reading) -> bool:
    try:
        return format_of(path) != ".parquet" and is_binary(path, reading.encoding)
    except InputError:  # whether that stops everything is decided where it is read
        return False


def _trouble(path: Path, reading: Reading) -> str | None:
    """Why a file cannot be read from beginning to end, where such files are to be skipped. They are read for that."""
    if reading.on_bad_file == "stop":
        return None
    try:
        for _ in documents(path, reading, alone=False):
            pass
    except InputError as error:
        return str(error)
    return None


def _splits(root: Path, found: list[Path]) -> tuple[dict[str, list[Path]], list[Path]]:
    """Files by split, and the files left out. A folder names its split with a train and a held-out file."""
    by_name: dict[str, list[Path]] = {}
    for file in found:
        by_name.setdefault(_split_name(root, file), []).append(file)
    unnamed = by_name.pop("", [])
    if not {"validation", "test"} & set(by_name):
        return {"train": found}, []
    if "train" not in by_name:
        if not unnamed:
            return {"train": found}, []
        by_name["train"], unnamed = unnamed, []
    return by_name, unnamed


def _split_name(root: Path, file: Path) -> str:
    if file == root:
        return ""
    stem = file.name.lower().removesuffix(".gz")
    for part in (Path(stem).stem, *(parent.lower() for parent in file.relative_to(root).parts[:-1])):
        if match := NAMED.match(part):
            return MEANS.get(match.group(1), match.group(1))
    return ""


def _identity(root: Path, file: Path) -> dict[str, str | int]:
    """What tells whether a file has changed since it was prepared."""
    stat = file.stat()
    name = file.name if file == root else str(file.relative_to(root))
    return {"file": name, "bytes": stat.st_size, "modified_ns": stat.st_mtime_ns}


def _read(files: list[Path], reading: Reading) -> Iterator[Item]:
    total = sum(file.stat().st_size for file in files) or 1
    before = 0
    for file in files:
        for text, position in documents(file, reading, alone=len(files) == 1):
            yield Item(text, (before + position) / total)
        before += file.stat().st_size
