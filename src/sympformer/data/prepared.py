"""A folder of prepared tokens: `train.bin`, `validation.bin`, `test.bin`, `sheet.json`, and the tokenizer's files."""

import hashlib
import os
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sympformer.data.tokenizers import Tokenizer, load_tokenizer
from sympformer.errors import InputError
from sympformer.safe_files import read_json, sealed, unsealed

FORMAT = 1
SHEET = "sheet.json"
CHUNK = 1 << 24  # bytes verified at a time
_right: set[tuple[str | int, ...]] = set()  # token files that this process has verified
DTYPES: dict[str, np.dtype[Any]] = {"uint16": np.dtype("<u2"), "uint32": np.dtype("<u4")}


@dataclass(frozen=True)
class Split:
    """One token file: how many documents, tokens (an end-of-text after each document) and bytes of UTF-8 text."""

    documents: int
    tokens: int
    bytes: int
    sha256: str


@dataclass(frozen=True)
class Dropped:
    """The documents of the test split that shared a run of so many words with another split (0: nobody looked)."""

    words: int = 0
    documents: int = 0
    tokens: int = 0
    bytes: int = 0


@dataclass(frozen=True)
class Sheet:
    """What a folder of prepared tokens says about itself."""

    corpus: dict[str, Any]
    tokenizer: dict[str, Any]
    requested: str  # the tokenizer as it was asked for
    dtype: str
    splits: dict[str, Split]
    seed: int
    cut: int = 0  # documents that were split by position, too long to go to one split
    notes: list[str] = field(default_factory=list)  # what was left out of the corpus, and what was decided about it
    dropped: Dropped = Dropped()

    @property
    def split(self) -> str:
        """How the splits came about and what was done to documents for their sake, in words."""
        said, dropped = [self.corpus["split"]], self.dropped
        if self.cut:
            said.append(f"{self.cut:,} too long to go to one split: cut, with a gap")
        if dropped.words:
            documents = f"{dropped.documents:,} document{'' if dropped.documents == 1 else 's'}"
            said.append(
                f"dropped from test: {documents} ({dropped.tokens:,} tokens) with a run of {dropped.words} words of "
                "another split"
            )
        return "; ".join(said)

    def to_json(self) -> str:
        return sealed({"format": FORMAT, **asdict(self)}, indent=2)


@dataclass(frozen=True)
class Prepared:
    """Prepared tokens, read from disk as they are needed."""

    folder: Path
    sheet: Sheet
    reused: bool = False  # it was there already

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer that made the ids."""
        tokenizer = load_tokenizer(self.folder)
        if tokenizer.describe() != self.sheet.tokenizer:
            raise InputError(f"the tokenizer in {self.folder} is not the one that made its tokens: prepare it again")
        return tokenizer

    def tokens(self, split: str) -> NDArray[Any]:
        """The tokens of a split, memory-mapped."""
        if split not in self.sheet.splits:
            raise InputError(f"{self.folder} has no split {split!r}: it has {', '.join(self.sheet.splits)}")
        return np.memmap(self._file(split), dtype=DTYPES[self.sheet.dtype], mode="r")

    def check_sizes(self) -> None:
        """Compare the token files with the sheet, by size."""
        for split, described in self.sheet.splits.items():
            file = self._file(split)
            expected = described.tokens * DTYPES[self.sheet.dtype].itemsize
            if not file.is_file():
                raise InputError(f"{file} is missing: prepare the corpus again")
            if file.stat().st_size != expected:
                raise InputError(
                    f"{file} has {file.stat().st_size} bytes where its sheet says {expected}: prepare the corpus again"
                )

    def verify(self, anew: bool = True) -> None:
        """Compare the token files and the tokenizer with their checksums.

        anew: False reads no file that this process has found right before and that has not changed since.
        """
        self.check_sizes()
        for split, described in self.sheet.splits.items():
            found = os.stat(self._file(split))
            key = (
                os.path.realpath(self._file(split)),
                found.st_ino,
                found.st_size,
                found.st_mtime_ns,
                found.st_ctime_ns,  # which nobody sets back
                described.sha256,
            )
            if anew or key not in _right:
                self._verify(self._file(split), described)
                _right.add(key)
        _ = self.tokenizer

    def _verify(self, file: Path, described: Split) -> None:
        """Every byte is as it was written, and every token is one of the tokenizer's."""
        checksum, largest, dtype = hashlib.sha256(), 0, DTYPES[self.sheet.dtype]
        with file.open("rb") as content:
            while chunk := content.read(CHUNK):
                checksum.update(chunk)
                largest = max(largest, int(np.frombuffer(chunk, dtype).max()))
        if checksum.hexdigest() != described.sha256:
            raise InputError(f"{file} is damaged (its checksum differs): prepare the corpus again")
        if largest >= self.sheet.tokenizer["vocab_size"]:
            raise InputError(f"{file} holds the token {largest}, which its tokenizer does not have: prepare it again")

    def _file(self, split: str) -> Path:
        return self.folder / f"{split}.bin"


def load_prepared(folder: str | Path, verify: bool = False) -> Prepared:
    """Open a folder that `prepare` wrote, and verify it: once in a process, and again if asked."""
    folder = Path(folder)
    prepared = Prepared(folder, read_sheet(folder))
    try:
        prepared.verify(anew=verify)
    except OSError as error:
        raise InputError(f"cannot read {error.filename}: {error.strerror}") from error
    return prepared


def read_sheet(folder: Path) -> Sheet:
    """The sheet of a folder of prepared tokens."""
    file = folder / SHEET
    if not os.path.isfile(file):
        what = "holds no prepared data" if os.path.isdir(folder) else "does not exist"
        raise InputError(f"{folder} {what}: make it with 'sympformer data prepare --out {folder}'")
    try:
        raw = read_json(file)
        if raw["format"] != FORMAT:
            raise InputError(f"{file} is of another format than this version reads: prepare the corpus again")
        raw = unsealed(raw, file)
        del raw["format"]
        splits = {name: Split(**split) for name, split in raw.pop("splits").items()}
        dropped = Dropped(**raw.pop("dropped", {}))  # not in older sheets
        sheet = Sheet(splits=splits, dropped=dropped, **raw)
        _ = DTYPES[sheet.dtype], sheet.tokenizer["sha256"], sheet.corpus["name"], sheet.tokenizer["vocab_size"] + 0
        if not sheet.splits.keys() <= {"train", "validation", "test"}:
            raise InputError(f"{file} is damaged: it names other splits than there are")
    except InputError:
        raise
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{file} is damaged ({error}): prepare the corpus again") from error
    return sheet
