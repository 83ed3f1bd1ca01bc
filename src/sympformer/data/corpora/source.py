"""What a corpus is made of: streams of documents, what identifies them, and which of them are held out.

Held out are whole documents, chosen by a seed, never windows of tokens.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, islice
from math import ceil
from typing import Any, NamedTuple, TypeVar

from sympformer.data.seeding import fraction
from sympformer.errors import InputError

T = TypeVar("T")
SPLITS = ("train", "validation", "test")
ENOUGH = 10  # held-out documents expected among those that are looked at before deciding how to draw


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


@dataclass(frozen=True)
class Shares:
    """The shares of documents that go to validation and test where the corpus does not say so itself."""

    validation: float = 0.05
    test: float = 0.0

    def __post_init__(self) -> None:
        if not (0 <= self.validation < 1 and 0 <= self.test < 1 and self.validation + self.test < 1):
            raise InputError(
                f"validation {self.validation} and test {self.test} are shares of the documents: "
                "each from 0 to below 1, together below 1"
            )

    def rule(self, seed: int) -> str:
        """The rule in words, for the sheet."""
        held = [f"{share:g} {name}" for name, share in (("validation", self.validation), ("test", self.test)) if share]
        return f"a share of the documents, drawn with seed {seed}: {', '.join(held)}" if held else "all train"


def assign(items: Iterable[T], shares: Shares, seed: int, name: str) -> Iterator[tuple[str, T]]:
    """(split, item) for every item, by its number and the seed alone.

    A large corpus draws every document by itself, so that nothing has to be counted beforehand. A corpus so small that
    this could leave a split empty gives exactly its share, one document at least.
    """
    smallest = min((share for share in (shares.validation, shares.test) if share), default=None)
    if smallest is None:
        yield from (("train", item) for item in items)
        return
    stream = iter(items)
    first = list(islice(stream, ceil(ENOUGH / smallest)))
    complete = len(first) < ceil(ENOUGH / smallest)
    split_of = _counted(len(first), shares, seed, name) if complete else _drawn(shares, seed)
    for index, item in enumerate(chain(first, stream)):
        yield split_of(index), item


def _drawn(shares: Shares, seed: int) -> Callable[[int], str]:
    def split_of(index: int) -> str:
        place = fraction(seed, "split", index)
        if place < shares.validation:
            return "validation"
        return "test" if place < shares.validation + shares.test else "train"

    return split_of


def _counted(count: int, shares: Shares, seed: int, name: str) -> Callable[[int], str]:
    validation, test = (max(1, round(share * count)) if share else 0 for share in (shares.validation, shares.test))
    if count and validation + test >= count:
        raise InputError(
            f"{name} holds {count} document{'s' if count > 1 else ''}, too few to hold any out: "
            "say with --separator where its documents end, or hold out nothing with --validation 0"
        )
    order = sorted(range(count), key=lambda index: fraction(seed, "split", index))
    held = dict.fromkeys(order[:validation], "validation") | dict.fromkeys(
        order[validation : validation + test], "test"
    )
    return lambda index: held.get(index, "train")
