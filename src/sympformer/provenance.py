"""What made a result: the code, the machine, the command, the day. Runs, exports, comparisons and benchmarks keep it.

Results are of the same code where the hash of the package's source is the same, whatever their commits. A record
without that hash (made before it was kept) is of unknown code.
"""

import hashlib
import platform
import shlex
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

from sympformer import __version__, machine

ROOT = Path(__file__).parent


@dataclass(frozen=True)
class Code:
    """A state of this package. commit: as `git describe` says it, with -dirty where files were changed since."""

    version: str | None
    source: str | None
    commit: str | None = None

    @property
    def label(self) -> str:
        """Short, and different for different sources."""
        return "unknown code" if self.source is None else f"{self.version} ({self.source[:8]})"

    def to_dict(self) -> dict[str, str | None]:
        """Plain values, for JSON."""
        return {"sympformer": self.version, "source": self.source, "commit": self.commit}


def code_in(record: Mapping[str, Any]) -> Code:
    """The code that `to_dict` wrote into a record, among other things."""
    source = record.get("source")
    return Code(record.get("sympformer"), source, record.get("commit")) if source else Code(None, None)


def distinct(codes: Iterable[Code]) -> list[Code]:
    """One code for every source, in the order of their first."""
    found: dict[str | None, Code] = {}
    for code in codes:
        found.setdefault(code.source, code)
    return list(found.values())


@cache
def this_code() -> Code:
    """The code that is running."""
    return Code(__version__, source_hash(ROOT), _commit(ROOT))


def source_hash(root: Path) -> str:
    """Names and lines of the package's Python files: the same for a wheel and a clone of one commit."""
    found = hashlib.sha256()
    for file in sorted(root.rglob("*.py"), key=lambda file: file.relative_to(root).as_posix()):
        content = file.read_bytes().replace(b"\r\n", b"\n")  # git may write other line ends
        found.update(f"{file.relative_to(root).as_posix()}\0{len(content)}\0".encode() + content)
    return found.hexdigest()[:16]


def _commit(root: Path) -> str | None:
    """The commit of the sources, where git keeps them; not that of a project that merely has them installed."""

    def git(*arguments: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True)

    try:
        if git("ls-files", "--error-unmatch", "__init__.py").returncode:
            return None
        return git("describe", "--always", "--dirty", "--abbrev=12").stdout.strip() or None
    except OSError:
        return None  # no git here


def environment() -> dict[str, Any]:
    """All of it, so that a result can be made again."""
    command = shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]])
    made = {"command": command, "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")}
    return {**this_code().to_dict(), **machine.facts(), "platform": platform.platform(), **made}
