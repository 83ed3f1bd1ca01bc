"""The one door for speed, and who counts the kernel passes.

Whatever is fast here has a slow twin that is the formula. `with plain():` shuts the door, and all of them take the slow
way. A pass is one sweep of attention over its keys: what the paper calls an oracle call. It is counted where kernels
are called, so that a pass that someone adds is seen.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

_shut = 0  # blocks of `plain()` that are open now, in the whole process
_counts: list["PassCount"] = []


@contextmanager
def plain() -> Iterator[None]:
    """Every fast replacement off within the block."""
    global _shut
    _shut += 1
    try:
        yield
    finally:
        _shut -= 1


def fast() -> bool:
    """Whether the door is open."""
    return _shut == 0


@dataclass(eq=False)  # two that stand at the same number are still two
class PassCount:
    """Kernel passes made so far."""

    passes: int = 0


@contextmanager
def count_passes() -> Iterator[PassCount]:
    """Count the kernel passes within the block: `with count_passes() as count: model(idx)`, then `count.passes`."""
    count = PassCount()
    _counts.append(count)
    try:
        yield count
    finally:
        _counts.remove(count)


def note_pass() -> None:
    """A kernel is about to sweep over its keys."""
    for count in _counts:
        count.passes += 1
