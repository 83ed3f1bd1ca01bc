"""Single files that appear whole or not at all; whole folders are `sympformer.staging`'s."""

import os
import shutil
from pathlib import Path


def write_file(path: Path, content: str) -> None:
    """Write a text file under a temporary name, then give it its own."""
    work = path.with_name(f".{path.name}.partial")
    try:
        write_synced(work, content.encode())
        os.replace(work, path)
    except OSError:
        work.unlink(missing_ok=True)
        raise


def write_synced(path: Path, content: bytes) -> None:
    """Write a file and make sure that it is on disk."""
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def remove_partial(folder: Path) -> None:
    """Remove what a killed process left half-written in a folder that no other process uses."""
    for path in folder.glob(".*.partial-*") if folder.is_dir() else ():
        shutil.rmtree(path, ignore_errors=True)
