"""What a corpus is made of: streams of documents, what identifies them, and which of them are held out.

Held out is a share of the text, in whole documents that a seed draws. Where one document is too long for that, it is
split by position, with a gap between the parts.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from math import ceil
from typing import Any, NamedTuple

from sympformer.data.seeding import fraction
from sympformer.errors import InputError

SPLITS = ("train", "validation", "test")
ENOUGH = 40  # held-out documents expected among those that are looked at before deciding how to draw
LOOK = 1 << 25  # characters that are looked at, at most
LEAST_SHARE = 1e-6
NEAR = 1.7  # whole documents serve where they give the share up to this factor
GAP = 1000  # characters left out between the parts of a document, at most
SHORTEST = 100  # characters of a document that can be split


class Item(NamedTuple):
    """A document as it was found, and the share of the source that has been read so far (None: not known)."""

    text: str
    done: float | None
    cut: bool = False  # a part of a document that was split by position


@dataclass(frozen=True)
class Source:
    """A place that documents come from. Every call of a stream starts anew.

    identity: what has to be equal for two readings to give the same documents, as JSON.
    splits: streams by split; a source without a split of its own has only "train".
    ignored: files that belong to no split of a folder that names its splits.
    notes: what a reader should know: what was left out, and what was decided for them. A sentence each.
    """

    name: str
    kind: str
    identity: dict[str, Any]
    splits: dict[str, Callable[[], Iterator[Item]]]
    ignored: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Shares:
    """The shares of the text that go to validation and test where the corpus does not say so itself."""

    validation: float = 0.05
    test: float = 0.0

    def __post_init__(self) -> None:
        if not (0 <= self.validation < 1 and 0 <= self.test < 1 and self.validation + self.test < 1):
            raise InputError(
                f"validation {self.validation} and test {self.test} are shares of the documents: "
                "each from 0 to below 1, together below 1"
            )
        for share in (self.validation, self.test):
            if 0 < share < LEAST_SHARE:
                raise InputError(f"a share of {share} of the documents is too small: hold out 0 or {LEAST_SHARE:g}")

    def rule(self, seed: int) -> str:
        """The rule in words, for the sheet."""
        held = [f"{share:g} {name}" for name, share in self.held()]
        return f"a share of the text, documents drawn with seed {seed}: {', '.join(held)}" if held else "all train"

    def held(self) -> list[tuple[str, float]]:
        """The splits that hold something out, with their shares."""
        return [(name, share) for name, share in (("validation", self.validation), ("test", self.test)) if share]


def assign(items: Iterable[Item], shares: Shares, seed: int, name: str) -> Iterator[tuple[str, Item]]:
    """(split, item) for every item, by sizes, numbers and the seed alone.

    A large corpus draws every document by itself, so that nothing has to be counted beforehand; a document that would
    upset the shares is split by position. A small corpus is given its shares by size.
    """
    held = shares.held()
    if not held:
        yield from (("train", item) for item in items)
        return
    stream, smallest = iter(items), min(share for _, share in held)
    wanted = ceil(ENOUGH / smallest)
    first, size = list[Item](), 0
    for item in stream:
        first.append(item)
        size += len(item.text)
        if len(first) == wanted or size > LOOK:
            break
    else:
        yield from _by_size(first, size, held, seed, name)
        return
    longest = smallest * size / (4 if len(first) == wanted else ENOUGH)
    for index, item in enumerate(chain(first, stream)):
        if len(item.text) > max(longest, SHORTEST):
            yield from _split(item, [(split, share * len(item.text)) for split, share in held])
        else:
            yield _drawn(index, held, seed), item


def _drawn(index: int, held: list[tuple[str, float]], seed: int) -> str:
    place = fraction(seed, "split", index)
    for split, share in held:
        if place < share:
            return split
        place -= share
    return "train"


def _by_size(
    items: list[Item], size: int, held: list[tuple[str, float]], seed: int, name: str
) -> Iterator[tuple[str, Item]]:
    """Whole documents, in a drawn order, as long as they bring a split nearer to its share; else the longest is cut."""
    order = sorted(range(len(items)), key=lambda index: fraction(seed, "split", index))
    chosen: dict[int, str] = {}
    near = True
    for split, share in held:
        taken, target = 0, share * size
        for index in order:
            length = len(items[index].text)
            if index not in chosen and abs(taken + length - target) < abs(taken - target):
                chosen[index] = split
                taken += length
        near = near and target / NEAR <= taken <= target * NEAR
    if near and len(chosen) < len(items):
        yield from ((chosen.get(index, "train"), item) for index, item in enumerate(items))
        return
    longest = max(range(len(items)), key=lambda index: len(items[index].text), default=0)
    targets = [(split, share * size) for split, share in held]
    if items and not SHORTEST <= len(items[longest].text) >= 1.2 * sum(target for _, target in targets):
        raise InputError(
            f"{name} holds {len(items)} document{'s' if len(items) > 1 else ''}, too few to hold any out: "
            "give more text, or say with --separator where its documents end"
        )
    for index, item in enumerate(items):
        yield from _split(item, targets) if index == longest else [("train", item)]


def _split(item: Item, held: list[tuple[str, float]]) -> Iterator[tuple[str, Item]]:
    """The beginning of a long document for training, its end, behind a gap, for the other splits. held: characters."""
    text, end = item.text, len(item.text)
    parts: list[tuple[str, Item]] = []
    for split, length in reversed(held):
        start = _space(text, round(end - length))
        parts.append((split, Item(text[start:end].strip(), item.done, cut=True)))
        end = start - min(GAP, round(length / 4))
    parts.append(("train", Item(text[: max(0, end)].strip(), item.done, cut=True)))
    yield from ((split, part) for split, part in reversed(parts) if part.text)


def _space(text: str, at: int) -> int:
    """The next place between two words, if there is one near."""
    return next((place for place in range(at, min(at + 100, len(text))) if text[place].isspace()), at)
