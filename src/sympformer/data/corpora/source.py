"""What a corpus is made of before it is split: streams of documents, and what identifies them."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple


class Item(NamedTuple):
    """A document as it was found, and the share of the source that has been read so far (None: not known)."""

    text: str
    done: float | None


@dataclass(frozen=True)
class Source:
    """A place that documents come from. Every call of a stream starts anew.

    identity: what has to be equal for two readings to give the same documents, as JSON.
    splits: streams by split; a source without a split of its own has only "train".
    ignored: files that belong to no split of a folder that names its splits.
    """

    name: str
    kind: str
    identity: dict[str, Any]
    splits: dict[str, Callable[[], Iterator[Item]]]
    ignored: tuple[str, ...] = ()
