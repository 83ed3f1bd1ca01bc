"""A folder of prepared tokens, named by what it was made from: it is written once and never overwritten.

    tokens = open_tokens(DataConfig("texts/"))          # found in the cache, or prepared and kept there
    tokens.tokens("train"), tokens.tokenizer, tokens.sheet.splits["validation"].sha256

    CACHE/data/<word>-<12 hex>/  train.bin validation.bin [test.bin] tokenizer.json sheet.json

The twelve digits are a hash of the bytes of the corpus's files, of the options that decide what they become, and of the
tokenizer. A text that changes is another corpus, in another folder. (Of a dataset of the hub, name and revision are
hashed, for its content cannot be known ahead.)
"""

import hashlib
import json
import os
import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from sympformer.data.config import DataConfig
from sympformer.data.corpus import Corpus, find
from sympformer.data.overlap import Overlap
from sympformer.data.tokenizers import SAMPLE, Ids, Tokenizer, check_name, make_tokenizer
from sympformer.errors import InputError
from sympformer.files import check_new, checked, locked, new_folder, read_json
from sympformer.machine import cache_root
from sympformer.progress import Bar

FORMAT = 3
SHEET = "sheet.json"
BATCH = 500_000  # characters encoded at a time
OFF = 2.0  # the factor by which a share may be missed
DTYPES: dict[str, np.dtype[Any]] = {"uint16": np.dtype("<u2"), "uint32": np.dtype("<u4")}
# where a text can be cut without another token: GPT-2's words never go on there
BREAK = re.compile(r"(?<=\S)(?= \S)|(?<=\S\n)(?=\S)")
_right: set[tuple[Path, str]] = set()  # folders whose checksums this process has found right


@dataclass(frozen=True)
class Split:
    """One token file: how many documents, tokens (an end-of-text after each document) and bytes of UTF-8 text."""

    documents: int = 0
    tokens: int = 0
    bytes: int = 0
    sha256: str = ""


@dataclass(frozen=True)
class Sheet:
    """What a folder of prepared tokens says about itself."""

    corpus: str  # as it was asked for
    request: dict[str, Any]  # what the folder's name is a hash of
    sources: Any  # files with their checksums, or a dataset's name
    tokenizer: dict[str, Any]
    dtype: str
    split: str  # how the splits came about and what was dropped, in words
    splits: dict[str, Split]
    notes: list[str] = field(default_factory=list)  # what was left out of the corpus, and what was decided about it
    dropped: Split = field(default_factory=Split)  # of the test split, for it shared a run of words with another

    @classmethod
    def read(cls, folder: Path) -> "Sheet":
        """The sheet of a folder of prepared tokens."""
        file = folder / SHEET
        if not os.path.isfile(file):
            what = "holds no prepared data" if os.path.isdir(folder) else "does not exist"
            raise InputError(f"{folder} {what}: make it with 'sympformer data prepare --out {folder}'")
        raw = read_json(file)
        try:
            splits = {name: Split(**split) for name, split in raw["splits"].items()}
            sheet = cls(**raw | {"splits": splits, "dropped": Split(**raw["dropped"])})
            _ = DTYPES[sheet.dtype], sheet.tokenizer["sha256"], sheet.tokenizer["vocab_size"] + 0
        except (KeyError, TypeError, AttributeError) as error:
            raise InputError(
                f"{file} is damaged ({error!r}): remove the folder and prepare the corpus again"
            ) from error
        return sheet

    def to_json(self) -> str:
        """The text of the file."""
        return json.dumps(asdict(self), indent=2)


@dataclass(frozen=True)
class Tokens:
    """Prepared tokens, read from disk as they are needed."""

    folder: Path
    sheet: Sheet
    reused: bool = False  # they were there already

    @classmethod
    def open(cls, folder: str | Path, check: bool | None = None, reused: bool = True) -> "Tokens":
        """A folder that `prepare` wrote. Its files have the sizes that its sheet says.

        check: compare their checksums too; by default the first of several processes does, once.
        """
        found = cls(Path(folder), Sheet.read(Path(folder)), reused)
        key = Path(folder).absolute(), found.sheet.to_json()
        hashes = (key not in _right and os.environ.get("RANK", "0") == "0") if check is None else check
        try:
            checked(found.folder, found._manifest(), hashes)
        except InputError as error:
            raise InputError(f"{error}; remove the folder and prepare the corpus again") from error
        if hashes:
            _ = found.tokenizer
            _right.add(key)
        return found

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer that made the ids."""
        tokenizer = Tokenizer.load(self.folder)
        if tokenizer.describe() != self.sheet.tokenizer:
            raise InputError(f"the tokenizer in {self.folder} is not the one that made its tokens: prepare it again")
        return tokenizer

    def tokens(self, split: str) -> NDArray[Any]:
        """The tokens of a split, memory-mapped."""
        if split not in self.sheet.splits:
            raise InputError(f"{self.folder} has no split {split!r}: it has {', '.join(self.sheet.splits)}")
        return np.memmap(self.folder / f"{split}.bin", dtype=DTYPES[self.sheet.dtype], mode="r")

    def _manifest(self) -> dict[str, dict[str, Any]]:
        size = DTYPES[self.sheet.dtype].itemsize
        return {f"{n}.bin": {"bytes": s.tokens * size, "sha256": s.sha256} for n, s in self.sheet.splits.items()}


def prepare(
    corpus: str = "storybook", tokenizer: str = "bpe:2048", out: str | Path | None = None, **options: Any
) -> Tokens:
    """Tokenize a corpus into a folder, whole or not at all; options: other fields of `DataConfig`."""
    return open_tokens(DataConfig(corpus, tokenizer, **options), out)


def open_tokens(config: DataConfig, out: str | Path | None = None) -> Tokens:
    """The tokens that a config asks for: from its folder, from the cache, or prepared now and kept there (or in `out`).

    Several processes may ask at the same time: one of them prepares, the others wait.
    """
    if config.folder is not None:
        return Tokens.open(config.folder)
    kind, corpus = check_name(config.tokenizer), find(config)
    request = _request(corpus, kind)
    folder = Path(out) if out is not None else cache_root() / "data" / _cache_name(corpus, kind, request)
    if not _is_there(folder, request):
        with locked(folder, wait=True):
            if not _is_there(folder, request):  # no other process has made it meanwhile
                _prepare(corpus, request, folder)
                return Tokens.open(folder, check=False, reused=False)
    return Tokens.open(folder)


def _request(corpus: Corpus, kind: str) -> dict[str, Any]:
    """What decides the tokens, as JSON: not where GPT-2's merges came from, and of a saved tokenizer its table."""
    options = {name: value for name, value in asdict(corpus.config).items() if name not in ("corpus", "folder")}
    if kind == "folder":
        options["tokenizer"] = f"sha256:{Tokenizer.load(corpus.config.tokenizer).fingerprint}"
    elif kind == "gpt2":
        options["tokenizer"] = kind
    return {"format": FORMAT, "corpus": corpus.identity, **options}


def _cache_name(corpus: Corpus, kind: str, request: dict[str, Any]) -> str:
    name = corpus.config.tokenizer if kind in ("bpe", "byte") else kind
    word = re.sub(r"[^a-z0-9]+", "-", f"{corpus.word}-{name}".lower()).strip("-")[:60]
    return f"{word}-{hashlib.sha256(json.dumps(request, sort_keys=True).encode()).hexdigest()[:12]}"


def _is_there(folder: Path, request: dict[str, Any]) -> bool:
    """Whether the folder holds just what is asked for; raises where something else is in the way."""
    if not os.path.isfile(folder / SHEET):
        check_new(folder)
        return False
    if Sheet.read(folder).request != request:
        raise InputError(f"{folder} holds other tokens, of another text or with other options: choose another --out")
    return True


def _prepare(corpus: Corpus, request: dict[str, Any], folder: Path) -> None:
    config = corpus.config
    for note in corpus.notes:
        print(f"{config.corpus}: {note}", file=sys.stderr)
    with new_folder(folder) as work:
        tests, sample = _look(corpus) if config.tokenizer.startswith("bpe:") or config.overlap_words else ([], [])
        tokenizer = make_tokenizer(config.tokenizer, lambda: sample)
        splits, dropped = _write(corpus, tokenizer, tests, work)
        _check_splits(corpus, splits, dropped)
        rule = corpus.rule()
        if config.overlap_words:
            documents = f"{dropped.documents:,} document{'' if dropped.documents == 1 else 's'}"
            shared = f"with a run of {config.overlap_words} words of another split"
            rule += f"; dropped from test: {documents} ({dropped.tokens:,} tokens) {shared}"
        tokenizer.save(work)
        described = request, corpus.sources, tokenizer.describe(), _dtype(tokenizer), rule, splits
        sheet = Sheet(config.corpus, *described, list(corpus.notes), dropped)
        (work / SHEET).write_text(sheet.to_json(), encoding="utf-8")


def _look(corpus: Corpus) -> tuple[list[str], list[str]]:
    """One pass ahead: the test texts where they are to be compared, and the first training texts for a tokenizer."""
    words, tests, sample, size = corpus.config.overlap_words, list[str](), list[str](), 0
    for split, text in _told("looking at the text", corpus, corpus.documents()):
        if split == "train" and size < SAMPLE:
            sample.append(text)
            size += len(text)
        elif split == "test" and words:
            tests.append(text)
        if size >= SAMPLE and not words:
            break
    if words and "test" not in (*corpus.own, *corpus.drawn):
        raise InputError(
            f"corpus {corpus.config.corpus!r} has no test split to drop documents of for data.overlap_words: hold one "
            "out with data.test, such as 0.05, or set data.overlap_words to 0"
        )
    return tests, sample


def _write(corpus: Corpus, tokenizer: Tokenizer, tests: list[str], folder: Path) -> tuple[dict[str, Split], Split]:
    """The token files; what they hold, and what of the test texts was dropped. Texts to be compared come last."""
    words, overlap = corpus.config.overlap_words, Overlap(tests, corpus.config.overlap_words)
    seen = (pair for pair in corpus.documents() if not (words and pair[0] == "test"))
    texts = chain(seen, (("test", text) for text in tests))
    with ExitStack() as files:

        def writer(path: Path) -> TokenWriter:
            return TokenWriter(files.enter_context(path.open("wb")), tokenizer)

        writers, dropped = dict[str, TokenWriter](), writer(Path(os.devnull))
        for split, text in _told(f"encoding {corpus.config.corpus}", corpus, texts):
            if words and split != "test":
                overlap.compare(text)
            if split not in writers:
                writers[split] = writer(folder / f"{split}.bin")
            known = words and split == "test" and overlap.shared(text)
            (dropped if known else writers[split]).add(text)
        return {split: one.finish() for split, one in writers.items()}, dropped.finish()


def _told(what: str, corpus: Corpus, texts: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """The same, under a bar that says how far it is."""
    with Bar(what) as bar:
        for n, pair in enumerate(texts):
            bar.update(n, f"{n:,} documents" + ("" if corpus.done is None else f", {corpus.done:.0%}"))
            yield pair


def _check_splits(corpus: Corpus, splits: dict[str, Split], dropped: Split) -> None:
    """Refuse a result that is not what was asked for; what was drawn and then dropped is no fault of the draw."""
    name = corpus.config.corpus
    for split in (*corpus.own, *corpus.drawn):
        if split not in splits:
            raise InputError(f"corpus {name!r} holds no text" + (f" for {split}" if splits else ""))
        if not splits[split].tokens:
            raise InputError(
                f"every test document of {name!r} shares a run of words with another split: ask for longer runs with "
                "data.overlap_words, or set it to 0"
            )
    tokens = {split: found.tokens + (split == "test") * dropped.tokens for split, found in splits.items()}
    whole = sum(tokens[split] for split in {"train", *corpus.drawn})
    for split in corpus.drawn:
        share = corpus.config.shares()[split]
        if not share / OFF <= tokens[split] / whole <= share * OFF:
            raise InputError(
                f"{split} would hold {tokens[split] / whole:.2g} of the text of {name!r} instead of {share:g}: its "
                "documents differ too much in length; try another data.seed or data.separator, or make the long ones "
                "several documents"
            )


def _dtype(tokenizer: Tokenizer) -> str:
    return "uint16" if tokenizer.vocab_size <= 1 << 16 else "uint32"


class TokenWriter:
    """Appends documents to a token file in batches and counts what it writes."""

    def __init__(self, file: IO[bytes], tokenizer: Tokenizer) -> None:
        self._file, self._tokenizer, self._dtype = file, tokenizer, DTYPES[_dtype(tokenizer)]
        self._waiting, self._characters = list[str](), 0
        self._documents = self._tokens = self._bytes = 0
        self._sha256 = hashlib.sha256()

    def add(self, text: str) -> None:
        """Take a document. A long one is encoded in pieces that end between words."""
        *pieces, last = _pieces(text)
        if pieces:
            self._flush()
        for piece in pieces:
            self._put(self._tokenizer.encode_batch([piece])[0])
        self._waiting.append(last)
        self._characters += len(last)
        self._documents += 1
        self._bytes += len(text) if text.isascii() else len(text.encode())
        if self._characters >= BATCH:
            self._flush()

    def finish(self) -> Split:
        """Write what is waiting; what was written."""
        self._flush()
        return Split(self._documents, self._tokens, self._bytes, self._sha256.hexdigest())

    def _flush(self) -> None:
        if self._waiting:
            self._put(self._tokenizer.encode_documents(self._waiting))
        self._waiting, self._characters = [], 0

    def _put(self, ids: Ids) -> None:
        own = np.ascontiguousarray(ids.astype(self._dtype))
        self._file.write(own.data)
        self._sha256.update(own.data)
        self._tokens += len(own)


def _pieces(text: str) -> Iterator[str]:
    start = 0
    while len(text) - start > 2 * BATCH and (found := BREAK.search(text, start + BATCH)):
        yield text[start : found.start()]
        start = found.start()
    yield text[start:]
