"""All or nothing: a command's files appear in its folder together at the end, or not at all."""

import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from sympformer.errors import InputError


@contextmanager
def staged(out: Path, stale: Iterable[str] = ()) -> Iterator[Path]:
    """A folder to write into. When the block ends its files move to `out`; when it fails they vanish.

    The folder is made at once, beside the place where the files will go, so that an `out` that cannot be written to
    is found before the work and not after it. stale: names in `out` that an earlier run may have left; those that
    this run does not write again are removed.
    """
    out = out.absolute()
    ground = next(path for path in (out, *out.parents) if path.exists())
    if not ground.is_dir():
        raise InputError(f"cannot write to the folder {out}: {ground} is a file; name another folder")
    folder = None
    try:
        folder = Path(tempfile.mkdtemp(prefix=".sympformer-", dir=ground))
        yield folder
        _publish(folder, out, stale)
    except OSError as error:
        raise InputError(f"cannot write to the folder {out}: {error.strerror or error}") from error
    finally:
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)


def _publish(folder: Path, out: Path, stale: Iterable[str]) -> None:
    files = sorted(folder.iterdir())
    out.mkdir(parents=True, exist_ok=True)
    for file in files:
        os.replace(file, out / file.name)
    for name in {*stale} - {file.name for file in files}:
        (out / name).unlink(missing_ok=True)
