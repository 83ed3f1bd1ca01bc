"""From a corpus to token files: one pass over the documents (two if a tokenizer is trained), memory bounded."""

import hashlib
import os
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from sympformer.atomic import is_new, one_at_a_time, staged_folder
from sympformer.data.corpora import Corpus, OnBadFile, Reading, Shares, open_corpus
from sympformer.data.overlap import shares_a_run
from sympformer.data.prepared import DTYPES, SHEET, Dropped, Prepared, Sheet, Split, load_prepared, read_sheet
from sympformer.data.tokenizers import Tokenizer, check_name, load_tokenizer, make_tokenizer
from sympformer.errors import InputError
from sympformer.progress import Meter

BATCH = 500_000  # characters encoded at a time
OFF = 2.0  # the factor by which a share may be missed
DROPPED = "dropped"  # where test documents go that share a run of words with another split


def prepare(
    corpus: str = "storybook",
    tokenizer: str = "bpe:2048",
    out: str | Path | None = None,
    *,
    seed: int = 0,
    validation: float = 0.05,
    test: float = 0.0,
    column: str = "text",
    separator: str = "auto",
    encoding: str = "utf-8",
    on_bad_file: OnBadFile = "stop",
    limit: int | None = None,
    overlap_words: int = 0,
    overwrite: bool = False,
    progress: bool | None = None,
) -> Prepared:
    """Tokenize a corpus into a folder, whole or not at all; what is there already for the same request is kept.

    corpus, tokenizer: by name or path, see `sympformer.data.corpora` and `sympformer.data.tokenizers`.
    out: folder to write, by default `data/<corpus>-<tokenizer>`. overwrite: replace other prepared data there.
    seed, validation, test: which documents are held out where the corpus has no split of its own.
    column, separator, encoding, on_bad_file: how to read it, see `Reading`.
    limit: only the first so many documents of each split.
    overlap_words: drop documents of the test split that share a run of so many words with another (0: none).
    progress: show a progress line; None where stderr is a terminal.
    """
    folder = default_folder(corpus, tokenizer) if out is None else Path(out)
    reading = Reading(column, separator, encoding, on_bad_file)
    opened = open_corpus(corpus, shares=Shares(validation, test), seed=seed, limit=limit, reading=reading)
    requested = _requested(tokenizer)
    request = (opened.describe(), requested, seed, overlap_words)
    if _is_there(folder, request, overwrite):
        return Prepared(folder, load_prepared(folder).sheet, reused=True)
    with one_at_a_time(folder):
        if _is_there(folder, request, overwrite):  # another process has made it meanwhile
            return Prepared(folder, load_prepared(folder).sheet, reused=True)
        for note in opened.source.notes:
            print(f"{opened.source.name}: {note}", file=sys.stderr)
        with staged_folder(folder, replace=overwrite, last=SHEET) as work:
            known = shares_a_run(opened, overlap_words, progress)
            made = make_tokenizer(tokenizer, lambda: _training_texts(opened, progress))
            with Meter(f"encoding {opened.source.name}", progress) as meter:
                splits, cut = _write(opened, known, made, work, meter)
            dropped = _counted(overlap_words, splits.pop(DROPPED, None))
            _check_shares(opened, splits, dropped)
            made.save(work)
            notes = list(opened.source.notes)
            described = (opened.describe(), made.describe(), requested, _dtype(made))
            sheet = Sheet(*described, splits, seed, cut, notes, dropped)
            (work / SHEET).write_text(sheet.to_json(), encoding="utf-8")
    return load_prepared(folder)


def default_folder(corpus: str, tokenizer: str) -> Path:
    """`data/<corpus>-<tokenizer>`, both without what a file name should not have."""
    name = Path(corpus).name.split(".")[0] if "/" in corpus or "." in corpus else corpus
    kind = tokenizer.split(":")[0] if tokenizer.startswith("gpt2") else Path(tokenizer).name
    return Path("data") / re.sub(r"[^a-zA-Z0-9]+", "-", f"{name or 'corpus'}-{kind}").strip("-").lower()


def _requested(tokenizer: str) -> str:
    """The tokenizer's name as far as it decides the ids: where GPT-2's merges came from does not."""
    kind = check_name(tokenizer)
    if kind == "folder":
        return f"sha256:{load_tokenizer(tokenizer).fingerprint}"
    return "gpt2" if kind == "gpt2" else tokenizer


def _is_there(folder: Path, request: tuple[dict[str, Any], str, int, int], overwrite: bool) -> bool:
    """Whether the folder holds just what is asked for; raises where something else is in the way."""
    if is_new(folder):
        return False
    if not (folder / SHEET).is_file():
        raise InputError(f"{folder} exists and holds no prepared data, so it is left alone: choose another --out")
    if overwrite:
        return False
    sheet = read_sheet(folder)
    if (sheet.corpus, sheet.requested, sheet.seed, sheet.dropped.words) == request:
        return True
    raise InputError(
        f"{folder} holds data prepared in another way: choose another --out, or replace it with --overwrite"
    )


def _training_texts(corpus: Corpus, progress: bool | None) -> Iterator[str]:
    with Meter("learning a tokenizer", progress) as meter:
        for split, text, done, _ in corpus:
            if split == "train":
                meter.add(1, len(text), done)
                yield text


def _dtype(tokenizer: Tokenizer) -> str:
    return "uint16" if tokenizer.vocab_size <= 1 << 16 else "uint32"


def _counted(words: int, dropped: Split | None) -> Dropped:
    return Dropped(words) if dropped is None else Dropped(words, dropped.documents, dropped.tokens, dropped.bytes)


def _check_shares(corpus: Corpus, splits: dict[str, Split], dropped: Dropped) -> None:
    """Refuse a result that is not what was asked for; what was drawn and then dropped is no fault of the draw."""
    drawn = corpus.drawn_shares().held()
    tokens = {name: split.tokens + (name == "test") * dropped.tokens for name, split in splits.items()}
    whole = sum(tokens[split] for split in {"train", *(split for split, _ in drawn)})
    for split, share in drawn:
        if not share / OFF <= tokens[split] / whole <= share * OFF:
            raise InputError(
                f"{split} would hold {tokens[split] / whole:.2g} of the text of {corpus.source.name!r} instead "
                f"of {share:g}: its documents differ too much in length; try another --seed or --separator"
            )


def _write(
    corpus: Corpus, known: Callable[[str], bool], tokenizer: Tokenizer, folder: Path, meter: Meter
) -> tuple[dict[str, Split], int]:
    """The token files; what they hold, and how many documents were split by position.

    known: whether a text of the test split is to be dropped. Such texts are counted as a split, and kept nowhere.
    """
    writers: dict[str, TokenWriter] = {}
    cut = 0
    try:
        for split, text, done, part in corpus:
            cut += part and split == "train"
            if split == "test" and known(text):
                split = DROPPED
            if split not in writers:
                path = Path(os.devnull) if split == DROPPED else folder / f"{split}.bin"
                writers[split] = TokenWriter(path, tokenizer)
            size = writers[split].add(text)
            meter.add(1, size, done)
        splits = {split: writer.finish() for split, writer in writers.items()}
    finally:
        for writer in writers.values():
            writer.file.close()
    for split in corpus.expected():
        if split not in splits:
            if split == "test" and DROPPED in splits:
                raise InputError(
                    f"every test document of {corpus.source.name!r} shares a run of words with another split: "
                    "ask for longer runs with overlap_words, or set it to 0"
                )
            raise InputError(f"corpus {corpus.source.name!r} holds no text" + (f" for {split}" if splits else ""))
    return splits, cut


class TokenWriter:
    """Appends documents to a token file in batches and counts what it writes."""

    def __init__(self, path: Path, tokenizer: Tokenizer) -> None:
        self.file = path.open("wb")
        self._tokenizer = tokenizer
        self._dtype = DTYPES[_dtype(tokenizer)]
        self._waiting: list[str] = []
        self._characters = self._documents = self._tokens = self._bytes = 0
        self._sha256 = hashlib.sha256()

    def add(self, text: str) -> int:
        """Take a document; returns its size in bytes."""
        size = len(text) if text.isascii() else len(text.encode())
        self._waiting.append(text)
        self._characters += len(text)
        self._documents += 1
        self._bytes += size
        if self._characters >= BATCH:
            self._flush()
        return size

    def finish(self) -> Split:
        """Write what is waiting and close the file."""
        self._flush()
        self.file.close()
        return Split(self._documents, self._tokens, self._bytes, self._sha256.hexdigest())

    def _flush(self) -> None:
        if not self._waiting:
            return
        ids = np.ascontiguousarray(self._tokenizer.encode_documents(self._waiting).astype(self._dtype))
        self.file.write(ids.data)
        self._sha256.update(ids.data)
        self._tokens += len(ids)
        self._waiting, self._characters = [], 0
