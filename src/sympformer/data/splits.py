"""Which documents are held out: drawn by their own hash, so that equal documents are always on one side.

A large corpus draws each document by itself. A small one takes whole documents in the order of their hashes until a
split is as near to its share as they bring it. Where documents are too few or too uneven, the longest is cut by place.
"""

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import chain
from math import ceil

from sympformer.errors import InputError

Shares = dict[str, float]  # of the text, such as {"validation": 0.05}; what is left is for training

LOOK = 1 << 25  # characters of a corpus that counts as small
MOST = 1 << 29  # characters kept in memory to see whether there are enough documents
ENOUGH = 40  # documents held out, about, where each is drawn by itself
NEAR = 1.7  # whole documents serve where they give the share up to this factor
GAP = 1000  # characters left out between the parts of a document, at most
SHORTEST = 100  # characters of a document that can be cut


def digest(*parts: int | str) -> int:
    """128 bits from a seed and what follows it: the same on every machine and in every process."""
    text = ":".join(map(str, parts))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=16).digest(), "little")


def split(texts: Iterable[str], shares: Shares, seed: int, by_number: bool = False) -> Iterator[tuple[str, str]]:
    """(split, text) of every document. by_number: drawn by the document's number in the corpus, not by its text."""

    def drawn(number: int, text: str) -> float:
        """A place in [0, 1)."""
        return (digest(seed, "split", number if by_number else text) >> 75) / (1 << 53)

    if not shares:
        yield from (("train", text) for text in texts)
        return
    stream = ((drawn(number, text), text) for number, text in enumerate(texts))
    first, size, wanted = list[tuple[float, str]](), 0, ceil(ENOUGH / min(shares.values()))
    for pair in stream:
        first.append(pair)
        size += len(pair[1])
        if (len(first) >= wanted and (by_number or size > LOOK)) or (len(first) > 1 and size > MOST):
            yield from ((_at(place, shares), text) for place, text in chain(first, stream))
            return
    yield from _by_size(first, size, shares)


def _at(place: float, shares: Shares) -> str:
    for name, share in shares.items():
        if place < share:
            return name
        place -= share
    return "train"


def _by_size(documents: list[tuple[float, str]], size: int, shares: Shares) -> Iterator[tuple[str, str]]:
    sizes = Counter[float]()
    for at, text in documents:
        sizes[at] += len(text)  # equal documents count as one
    chosen: dict[float, str] = {}
    near = True
    for name, share in shares.items():
        taken, target = 0, share * size
        for at in sorted(sizes):
            if at not in chosen and abs(taken + sizes[at] - target) < abs(taken - target):
                chosen[at] = name
                taken += sizes[at]
        near = near and target / NEAR <= taken <= target * NEAR
    if near and len(chosen) < len(sizes):
        yield from ((chosen.get(at, "train"), text) for at, text in documents)
    elif documents:
        yield from _cut_longest([text for _, text in documents], size, shares)


def _cut_longest(texts: list[str], size: int, shares: Shares) -> Iterator[tuple[str, str]]:
    longest = max(texts, key=len)
    targets = {name: share * size for name, share in shares.items()}
    if len(longest) < max(SHORTEST, 1.2 * sum(targets.values())) or texts.count(longest) > 1:
        raise InputError(
            f"the text has {len(texts)} different documents or fewer, too few to hold any out: give more text, or say "
            "with data.separator where its documents end"
        )
    for text in texts:
        yield from cut(text, targets) if text is longest else [("train", text)]


def cut(text: str, targets: dict[str, float]) -> Iterator[tuple[str, str]]:
    """The beginning of a document for training; its end, behind a gap, for the other splits. targets: characters."""
    end, parts = len(text), list[tuple[str, str]]()
    for name, length in reversed(targets.items()):
        start = round(end - length)
        start = next((at for at in range(start, min(start + 100, end)) if text[at].isspace()), start)
        parts.append((name, text[start:end].strip()))
        end = start - min(GAP, round(length / 4))
    parts.append(("train", text[: max(0, end)].strip()))
    yield from ((name, part) for name, part in reversed(parts) if part)
