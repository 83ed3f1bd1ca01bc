"""A corpus by name or path: which documents it holds, how they are split, and what they come from, by content.

A name wins over a path; write `./tinystories` for a folder of that name. A folder with a train and a held-out file (or
folder) keeps its own split, and so does a dataset of the hub.
"""

import json
import lzma
import os
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from importlib.resources import files
from itertools import islice
from pathlib import Path
from typing import Any

from sympformer.data import hub
from sympformer.data.config import DataConfig
from sympformer.data.readers import BLANK_LINES, READERS, beginning, documents, format_of, is_binary, readable
from sympformer.data.splits import split
from sympformer.data.tokenizers import END_OF_TEXT
from sympformer.errors import InputError, unknown_name
from sympformer.files import sha256
from sympformer.progress import under_way

SPLITS = ("train", "validation", "test")
STORIES = 20_000  # in stories.jsonl.xz, which the code at commit f10bd74 wrote: its storybook, version 1, seed 0
# train.csv, validation.jsonl.gz, valid-00000-of-00002.parquet, stories-train.txt, or a folder of such a name
NAMED = re.compile(r"^(?:.*[-_.])?(train|training|validation|valid|val|dev|test)(?:[-_.]?\d+(?:-of-\d+)?)?$")
MEANS = {"training": "train"} | hub.ALIASES
UNKNOWN, BINARY, EMPTY = "unknown ending", "binary, or text that needs data.encoding utf-16", "empty"  # not read
NAMES = 5  # files left out that are named
SEVERAL = 20  # blank lines that may well separate documents


@dataclass
class Corpus:
    """A text. word: what it is called in a file's name.

    identity: equal where the texts by split are. sources: where they come from. notes: what was left out, and what was
    decided for the reader, a sentence each.
    """

    config: DataConfig
    word: str
    identity: dict[str, Any]
    streams: Callable[[], dict[str, Iterator[str]]]
    sources: Any
    notes: list[str]
    done: float | None = None  # the share of a split's files that has been read so far
    own: tuple[str, ...] = ()  # the corpus's own splits, known once documents are read
    drawn: tuple[str, ...] = ()  # the splits that are drawn from its train split

    def documents(self) -> Iterator[tuple[str, str]]:
        """(split, text): train (with what is drawn from it), then the other splits. Every call starts anew."""
        streams, shares = self.streams(), self.config.shares()
        drawn = {name: share for name, share in shares.items() if name not in streams}
        self.own, self.drawn = tuple(name for name in SPLITS if name in streams), tuple(drawn)
        by_number = "stories" in self.identity
        yield from split(_clean(streams["train"], self.config.limit), drawn, self.config.seed, by_number)
        for name in self.own[1:]:
            yield from ((name, text) for text in _clean(streams[name], self.config.limit))

    def rule(self) -> str:
        """How the splits come about, in words."""
        held = ", ".join(f"{share:g} {name}" for name, share in self.config.shares().items() if name in self.drawn)
        how = "documents drawn" if "stories" in self.identity else "documents drawn by their hash"
        rule = f"a share of the text, {how} with seed {self.config.seed}: {held}" if held else "all train"
        if len(self.own) == 1:
            return rule
        return f"the corpus's own: {', '.join(self.own)}" + (f"; of train {rule}" if held else "")


def find(config: DataConfig) -> Corpus:
    """The corpus that a config names. Files are read once, for their checksums; the hub is not asked yet."""
    name = config.corpus
    kind, _, rest = name.partition(":")
    if kind == "storybook":
        n = int(rest) if rest.isascii() and rest.isdigit() and len(rest) < 13 else 0
        n = STORIES if name == "storybook" else n
        if not 1 <= n <= STORIES:
            raise InputError(f"corpus {name!r} is not storybook:N with 1 to {STORIES:,} stories")
        told = {"stories": n}
        return Corpus(config, name.replace(":", "-"), told, lambda: {"train": stories(n)}, told, [])
    if name in hub.HUB or kind == "hub":
        wanted = hub.parse(name)
        told, word = wanted._asdict(), wanted.repo.rpartition("/")[2]
        return Corpus(config, word, told, partial(hub.streams, wanted, config.column), told, [])
    path = Path(os.path.expanduser(name))
    if os.path.exists(path):  # unlike Path.exists, no error for a name that cannot be one
        return _on_disk(config, path)
    if path.suffix or len(path.parts) > 1:
        raise InputError(f"corpus {name!r} is neither a known name nor a file or folder that exists")
    raise unknown_name("corpus", name, ["storybook", *hub.HUB, "hub:OWNER/NAME", "the path of a file or folder"])


def stories(n: int = STORIES) -> Iterator[str]:
    """The first n of the stories that come with the package."""
    with files("sympformer.data").joinpath("stories.jsonl.xz").open("rb") as packed, lzma.open(packed) as lines:
        yield from map(json.loads, islice(lines, n))


def _clean(texts: Iterable[str], limit: int | None) -> Iterator[str]:
    """Documents without white space around them, empty ones left out, lone surrogates replaced."""
    whole = (text for text in map(str.strip, texts) if text)
    for text in islice(whole, limit):
        yield text if text.isascii() else text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


# --- files


def _on_disk(config: DataConfig, path: Path) -> Corpus:
    found, left_out = _readable(path, config)
    parts, left_out["no split in the name"] = _by_split(path, found)
    notes = [f"left out {_listed(path, rest)} ({why})" for why, rest in left_out.items() if rest]
    notes += [note for part in parts.values() if len(part) == 1 for note in _taken_whole(part[0], config)]
    sources = list[dict[str, Any]]()
    for name, file in ((name, file) for name, part in parts.items() for file in part):
        under_way(f"reading {file.name} for its checksum")
        with readable(file):
            size, digest = file.stat().st_size, sha256(file)
        sources.append({"split": name, "file": os.path.abspath(file), "bytes": size, "sha256": digest})
    identity = {"files": [[said["split"], format_of(Path(said["file"])), said["sha256"]] for said in sources]}

    def streams() -> dict[str, Iterator[str]]:
        return {name: _texts(corpus, part) for name, part in parts.items()}

    corpus = Corpus(config, path.name.split(".")[0] or "corpus", identity, streams, sources, notes)
    return corpus


def _texts(corpus: Corpus, part: list[Path]) -> Iterator[str]:
    total, before = sum(file.stat().st_size for file in part) or 1, 0
    for file in part:
        for text, at in documents(file, corpus.config):
            corpus.done = (before + at) / total
            yield text
        before += file.stat().st_size


def _readable(root: Path, config: DataConfig) -> tuple[list[Path], dict[str, list[Path]]]:
    """The files that are read, in a fixed order, and the others by the reason why; hidden ones without a word."""
    if not root.is_dir() and not root.is_file():
        raise InputError(f"{root} is not a regular file: give one that can be read from beginning to end, twice")
    by_reason: dict[str, list[Path]] = {"": [], UNKNOWN: [], BINARY: [], EMPTY: []}
    for file in sorted(root.rglob("*")) if root.is_dir() else [root]:
        if file.is_file() and not any(part.startswith(".") for part in file.relative_to(root).parts):
            by_reason[_unfit(file, config.encoding)].append(file)
    found = by_reason.pop("")
    if not found:
        others = "; ".join(f"{_listed(root, rest)} ({why})" for why, rest in by_reason.items() if rest)
        formats = ", ".join(READERS)
        raise InputError(
            f"{root} holds nothing that can be read ({formats}, plain or with .gz)" + (f": {others}" if others else "")
        )
    return found, by_reason


def _unfit(file: Path, encoding: str) -> str:
    """Why a file is not read, if there is a reason."""
    if format_of(file) is None:
        return UNKNOWN
    if file.stat().st_size == 0:
        return EMPTY
    return BINARY if is_binary(file, encoding) else ""


def _by_split(root: Path, found: list[Path]) -> tuple[dict[str, list[Path]], list[Path]]:
    """Files by split, and the files left out. A folder names its split with a train and a held-out file."""
    by_name: dict[str, list[Path]] = {}
    for file in found:
        by_name.setdefault(_split_name(root, file), []).append(file)
    unnamed = by_name.pop("", [])
    if not {"validation", "test"} & set(by_name) or ("train" not in by_name and not unnamed):
        return {"train": found}, []
    if "train" not in by_name:
        by_name["train"], unnamed = unnamed, []
    return {name: by_name[name] for name in SPLITS if name in by_name}, unnamed


def _split_name(root: Path, file: Path) -> str:
    folders = file.relative_to(root).parts[:-1]
    for part in (Path(file.name.removesuffix(".gz")).stem, *folders) if file != root else ():
        if match := NAMED.match(part.lower()):
            return MEANS.get(match.group(1), match.group(1))
    return ""


def _taken_whole(file: Path, config: DataConfig) -> Iterator[str]:
    """A sentence where a file that is alone is one document, though something may stand between several."""
    if config.separator != "file" or format_of(file) != ".txt":
        return
    text, found, separator = beginning(file, config.encoding), "many blank lines", "blank"
    if END_OF_TEXT in text:
        found, separator = END_OF_TEXT, repr(END_OF_TEXT)
    if END_OF_TEXT in text or len(BLANK_LINES.findall(text)) >= SEVERAL:
        yield (
            f"{_printable(file.name)} is one document, though it has {found}: say --data.separator {separator} "
            f"(data prepare: --separator {separator}) where that stands between documents"
        )


def _listed(root: Path, some: list[Path]) -> str:
    names = [str(file.relative_to(root)) if file != root else file.name for file in some[:NAMES]]
    names += [f"{len(some) - NAMES:,} more"] if len(some) > NAMES else []
    return _printable(f"{len(some):,} file{'s' if len(some) > 1 else ''}: {', '.join(names)}")


def _printable(sentence: str) -> str:
    """A sentence without what may stand in a file's name and moves a cursor."""
    return "".join(character if character.isprintable() else "\ufffd" for character in sentence)
