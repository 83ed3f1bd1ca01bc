"""A corpus on disk: one file, or a folder of files with or without a split of its own."""

import os
import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from sympformer.data.corpora.formats import SUFFIXES, Reading, documents, format_of
from sympformer.data.corpora.source import Item, Source
from sympformer.errors import InputError

# train.csv, validation.jsonl.gz, valid-00000-of-00002.parquet, stories-train.txt, or a folder of such a name
NAMED = re.compile(r"^(?:.*[-_.])?(train|training|validation|valid|val|dev|test)(?:[-_.]?\d+(?:-of-\d+)?)?$")
MEANS = {"training": "train", "valid": "validation", "val": "validation", "dev": "validation"}


def open_files(path: Path, name: str, reading: Reading) -> Source:
    """The source at a path. Raises where there is nothing to read."""
    if not os.path.exists(path):  # unlike Path.exists, no error for a name that cannot be one
        raise InputError(f"corpus {name!r} is neither a known name nor a file or folder that exists")
    if path.is_dir():
        found = _list(path)
        if not found:
            raise InputError(f"folder {path} holds no {_list_formats()} file")
    elif not path.is_file():
        raise InputError(f"{path} is not a regular file: give one that can be read from beginning to end, twice")
    elif format_of(path) is None:
        raise InputError(f"cannot tell the format of {path}: expected {_list_formats()}, plain or with .gz")
    else:
        found = [path]
    parts, ignored = _splits(path, found)
    return Source(
        name=name,
        kind="files",
        identity={split: [_identity(path, file) for file in files] for split, files in parts.items()},
        splits={split: partial(_read, files, reading) for split, files in parts.items()},
        ignored=tuple(str(file.relative_to(path)) for file in ignored),
    )


def _list_formats() -> str:
    return f"{', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]}"


def _list(folder: Path) -> list[Path]:
    """The readable files below a folder in a fixed order; hidden ones are left out."""
    found = []
    for path in sorted(folder.rglob("*")):
        hidden = any(part.startswith(".") for part in path.relative_to(folder).parts)
        if not hidden and format_of(path) and path.is_file():
            found.append(path)
    return found


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
