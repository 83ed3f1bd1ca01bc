"""A folder of prepared tokens: `train.bin`, `validation.bin`, `test.bin`, `sheet.json`, and the tokenizer's files."""

import hashlib
import json
import os
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sympformer.data.tokenizers import Tokenizer, load_tokenizer
from sympformer.errors import InputError

FORMAT = 1
SHEET = "sheet.json"
DTYPES: dict[str, np.dtype[Any]] = {"uint16": np.dtype("<u2"), "uint32": np.dtype("<u4")}


@dataclass(frozen=True)
class Split:
    """One token file: how many documents, tokens (an end-of-text after each document) and bytes of UTF-8 text."""

    documents: int
    tokens: int
    bytes: int
    sha256: str


@dataclass(frozen=True)
class Sheet:
    """What a folder of prepared tokens says about itself."""

    corpus: dict[str, Any]
    tokenizer: dict[str, Any]
    requested: str  # the tokenizer as it was asked for
    dtype: str
    splits: dict[str, Split]
    seed: int

    def to_json(self) -> str:
        return json.dumps({"format": FORMAT, **asdict(self)}, indent=2) + "\n"


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
        if tokenizer.fingerprint != self.sheet.tokenizer["sha256"]:
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

    def verify(self) -> None:
        """Compare the token files and the tokenizer with their checksums."""
        self.check_sizes()
        for split, described in self.sheet.splits.items():
            with self._file(split).open("rb") as file:
                if hashlib.file_digest(file, "sha256").hexdigest() != described.sha256:
                    raise InputError(f"{self._file(split)} is damaged (its checksum differs): prepare the corpus again")
        _ = self.tokenizer

    def _file(self, split: str) -> Path:
        return self.folder / f"{split}.bin"


def load_prepared(folder: str | Path, verify: bool = False) -> Prepared:
    """Open a folder that `prepare` wrote. Sizes are checked always, checksums (the whole data is read) if asked."""
    folder = Path(folder)
    prepared = Prepared(folder, read_sheet(folder))
    prepared.check_sizes()
    if verify:
        prepared.verify()
    return prepared


def read_sheet(folder: Path) -> Sheet:
    """The sheet of a folder of prepared tokens."""
    file = folder / SHEET
    if not os.path.isfile(file):
        what = "holds no prepared data" if os.path.isdir(folder) else "does not exist"
        raise InputError(f"{folder} {what}: make it with 'sympformer data prepare --out {folder}'")
    try:
        raw = json.loads(file.read_text(encoding="utf-8"))
        if raw.pop("format") != FORMAT:
            raise InputError(f"{file} is of another format than this version reads: prepare the corpus again")
        splits = {name: Split(**split) for name, split in raw.pop("splits").items()}
        sheet = Sheet(splits=splits, **raw)
        _ = DTYPES[sheet.dtype], sheet.tokenizer["sha256"], sheet.corpus["name"]
    except InputError:
        raise
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{file} is damaged ({error}): prepare the corpus again") from error
    return sheet
