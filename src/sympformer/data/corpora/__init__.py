"""Corpora by name or path: a stream of documents, each with its split.

| corpus | documents |
|---|---|
| `storybook`, `storybook:N` | the first N (default all 20,000) of the stories that come with the package |
| `tinystories`, `openwebtext`, `hub:OWNER/NAME[:CONFIG]` | a dataset of the Hugging Face hub, streamed |
| a path | .txt, .md, .html, .jsonl, .csv, .parquet (each plain or .gz), or a folder of them |

A name wins over a path; write `./tinystories` for a folder of that name.
"""

import json
import lzma
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import resources
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from sympformer.data.corpora.files import open_files
from sympformer.data.corpora.formats import OnBadFile, Reading
from sympformer.data.corpora.hub import HUB, open_hub
from sympformer.data.corpora.source import SPLITS, Item, Shares, Source, assign
from sympformer.errors import InputError, unknown_name

__all__ = ["SPLITS", "Corpus", "Document", "OnBadFile", "Reading", "Shares", "open_corpus", "stories"]

STORIES = 20_000  # in stories.jsonl.xz, which the code at commit f10bd74 wrote: its storybook, version 1, seed 0


class Document(NamedTuple):
    """One text, the split it belongs to, and the share of the split's source read so far (None: not known)."""

    split: str
    text: str
    done: float | None
    cut: bool = False  # a part of a document that was split by position


@dataclass(frozen=True)
class Corpus:
    """A source with a split. Iterating twice gives the same documents."""

    source: Source
    shares: Shares
    seed: int
    limit: int | None
    reading: Reading

    def __iter__(self) -> Iterator[Document]:
        """The documents: train (with what is drawn from it), then the source's own other splits."""
        for split in SPLITS:
            if split not in self.source.splits:
                continue
            items = _clean(self.source.splits[split](), self.limit)
            if split == "train":
                labelled = assign(items, self.drawn_shares(), self.seed, self.source.name)
            else:
                labelled = ((split, item) for item in items)
            for label, item in labelled:
                yield Document(label, item.text, item.done, item.cut)

    def drawn_shares(self) -> Shares:
        """What has to be held out because the source does not do it itself."""
        own = self.source.splits
        return Shares(
            0.0 if "validation" in own else self.shares.validation,
            0.0 if "test" in own else self.shares.test,
        )

    def expected(self) -> list[str]:
        """The splits that must not end up empty."""
        drawn = self.drawn_shares()
        held = {"validation": drawn.validation, "test": drawn.test}
        return [split for split in SPLITS if split in self.source.splits or held.get(split)]

    @property
    def rule(self) -> str:
        """How the splits came about, in words."""
        own = [split for split in SPLITS if split in self.source.splits]
        drawn = self.drawn_shares()
        if len(own) == 1:
            return drawn.rule(self.seed)
        rule = f"the corpus's own: {', '.join(own)}"
        return f"{rule}; of train {drawn.rule(self.seed)}" if drawn != Shares(0.0, 0.0) else rule

    def describe(self) -> dict[str, Any]:
        """What identifies the documents and their splits, as JSON: equal descriptions give equal corpora."""
        return {
            "name": self.source.name,
            "kind": self.source.kind,
            "identity": self.source.identity,
            "left_out": list(self.source.ignored),
            "split": self.rule,
            "limit": self.limit,
            **self.reading.describe(),
        }


def open_corpus(
    name: str,
    *,
    shares: Shares | None = None,
    seed: int = 0,
    limit: int | None = None,
    reading: Reading | None = None,
) -> Corpus:
    """The corpus of a name or path.

    shares: documents to hold out where the corpus has no split of its own. seed: draws them. limit: take only the
    first so many documents of each of the source's splits.
    """
    if limit is not None and not 1 <= limit <= sys.maxsize:
        raise InputError(f"limit {limit} is not a positive number of documents")
    reading = reading or Reading()
    return Corpus(_open(name, reading), shares or Shares(), seed, limit, reading)


def _open(name: str, reading: Reading) -> Source:
    kind, _, rest = name.partition(":")
    if kind == "storybook":
        return _open_storybook(name, rest)
    if name in HUB or kind == "hub":
        return open_hub(name, reading.column)
    expanded = os.path.expanduser(name)
    path = Path(expanded)
    if not os.path.exists(expanded) and not path.suffix and len(path.parts) <= 1:
        raise unknown_name("corpus", name, ["storybook", *HUB, "hub:OWNER/NAME", "the path of a file or folder"])
    return open_files(path, name, reading)


def _open_storybook(name: str, count: str) -> Source:
    n = int(count) if count.isascii() and count.isdigit() and len(count) < 13 else 0
    n = STORIES if name == "storybook" else n
    if not 1 <= n <= STORIES:
        raise InputError(f"corpus {name!r} is not storybook:N with 1 to {STORIES:,} stories, like storybook:5000")

    def tell() -> Iterator[Item]:
        for i, text in enumerate(stories(n), start=1):
            yield Item(text, i / n)

    return Source(name, "storybook", {"stories": n}, {"train": tell})


def stories(n: int = STORIES) -> Iterator[str]:
    """The first n of the stories that come with the package."""
    file = resources.files("sympformer.data").joinpath("stories.jsonl.xz")
    with file.open("rb") as packed, lzma.open(packed) as lines:
        yield from map(json.loads, islice(lines, n))


def _clean(items: Iterator[Item], limit: int | None) -> Iterator[Item]:
    """Documents without white space around them, empty ones left out, lone surrogates replaced."""

    def cleaned() -> Iterator[Item]:
        for text, done, _ in items:
            text = text.strip()
            if not text:
                continue
            if not text.isascii():
                text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
            yield Item(text, done)

    return islice(cleaned(), limit)
