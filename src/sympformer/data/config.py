"""Which text, and how it becomes tokens: what every door to the data takes, handed on whole."""

import codecs
from dataclasses import dataclass, fields

from sympformer.config_checks import check_types
from sympformer.errors import InputError

LEAST_SHARE = 1e-6
LONGEST_RUN = 1000  # words


@dataclass(frozen=True)
class DataConfig:
    """Which text, and how it becomes tokens."""

    corpus: str = "storybook"
    """storybook or storybook:N (stories that come with the package), tinystories, openwebtext or
    hub:OWNER/NAME (of the Hugging Face hub; :CONFIG and @REVISION may follow), or the path of a .txt, .md,
    .jsonl, .csv or .parquet file, plain or .gz, or of a folder of them."""
    tokenizer: str = "bpe:2048"
    """bpe:N (trained on the corpus), gpt2 or gpt2:PATH/merges.txt, byte, or a folder with a saved tokenizer."""
    folder: str | None = None
    """Folder of prepared tokens, in place of a corpus. By default the tokens are prepared on first use and kept in a
    cache folder."""
    validation: float = 0.05
    """Share of the text held out for validation, where the corpus has no such split of its own."""
    test: float = 0.0
    """Share of the text held out for a test, where the corpus has no such split of its own."""
    seed: int = 0
    """Draws the documents that are held out."""
    column: str = "text"
    """Field or column that holds the text in .jsonl, .csv, .parquet and hub datasets."""
    separator: str = "file"
    """What stands between the documents of a .txt file: file (nothing, a file is a document), blank (blank lines), or a
    text such as <|endoftext|>."""
    encoding: str = "utf-8"
    """How the files are written: utf-8, cp1252, latin-1, utf-16 or any other that Python knows."""
    limit: int | None = None
    """Take only the first so many documents of each split."""
    overlap_words: int = 0
    """Drop documents of the test split that share a run of so many words with another split: 20 is usual, 0 keeps
    them all."""

    def __post_init__(self) -> None:
        check_types(self)
        asked = [f.name for f in fields(self) if f.name != "folder" and getattr(self, f.name) != f.default]
        if self.folder is not None and asked:
            raise InputError(f"data.folder holds tokens already: leave it out, or data.{', data.'.join(asked)}")
        shares = (self.validation, self.test)
        if not (all(share == 0 or LEAST_SHARE <= share < 1 for share in shares) and sum(shares) < 1):
            raise InputError(
                f"data.validation {self.validation} and data.test {self.test} are shares of the text: each 0, to hold "
                f"nothing out, or at least {LEAST_SHARE:g}, and together below 1"
            )
        if self.limit is not None and self.limit < 1:
            raise InputError(f"data.limit {self.limit} is not a positive number of documents")
        if not 0 <= self.overlap_words <= LONGEST_RUN:
            raise InputError(
                f"data.overlap_words {self.overlap_words} is not a number of words from 1 to {LONGEST_RUN:,}, or 0 to "
                "keep every document"
            )
        if not self.separator:
            raise InputError("data.separator is empty: give file, blank, or the text between two documents")
        try:
            "a".encode(self.encoding)
            codecs.getincrementaldecoder(self.encoding)
        except (LookupError, ValueError):
            raise InputError(
                f"unknown encoding {self.encoding!r}: give one such as utf-8, cp1252, latin-1 or utf-16"
            ) from None

    def shares(self) -> dict[str, float]:
        """The splits to hold out, with their shares of the text."""
        return {name: share for name, share in (("validation", self.validation), ("test", self.test)) if share}
