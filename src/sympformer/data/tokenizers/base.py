"""What every tokenizer can do, whatever turns its text into ids."""

import codecs
import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sympformer.data.tokenizers.vocabulary import Vocabulary
from sympformer.errors import InputError

TABLE, SHEET = "tokenizer.json", "tokenizer_sheet.json"
PAD_TO = 64  # embedding rows are padded to a multiple of this, GPT-2's 50,257 to 50,304

Ids = NDArray[np.uint32]


class Tokenizer(ABC):
    """Text to ids and back. Ids run from 0; the last one is the end-of-text token, which no text encodes to."""

    def __init__(self, name: str, vocabulary: Vocabulary) -> None:
        self.name = name
        self.vocabulary = vocabulary

    @abstractmethod
    def encode_batch(self, texts: Sequence[str]) -> list[Ids]:
        """The ids of every text, without end-of-text tokens."""

    def encode_documents(self, texts: Sequence[str]) -> Ids:
        """The ids of all texts in a row, with an end-of-text token after each."""
        end = np.array([self.end_of_text], dtype=np.uint32)
        return np.concatenate([part for ids in self.encode_batch(texts) for part in (ids, end)])

    def encode(self, text: str) -> list[int]:
        """The ids of a text. Special tokens in the text are plain text."""
        return self.encode_batch([text])[0].tolist()

    def decode(self, ids: Iterable[int]) -> str:
        """The text of ids. Broken UTF-8 and padding ids become U+FFFD."""
        return b"".join(self._bytes_of(ids)).decode("utf-8", errors="replace")

    def decode_stream(self, ids: Iterable[int]) -> Iterator[str]:
        """The same text in pieces, as the ids come: a character is there once all its bytes are."""
        decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        for part in self._bytes_of(ids):
            if text := decoder.decode(part):
                yield text
        if text := decoder.decode(b"", final=True):
            yield text

    def _bytes_of(self, ids: Iterable[int]) -> Iterator[bytes]:
        table, padded = self.vocabulary.token_bytes, self.padded_vocab_size
        for i in map(int, ids):
            if not 0 <= i < padded:
                raise InputError(f"token id {i} is outside the vocabulary of {self.name} (0 to {padded - 1})")
            yield table[i] if i < len(table) else b"\xff"

    @property
    def end_of_text(self) -> int:
        """The id that ends every document."""
        return self.vocabulary.end_of_text

    @property
    def vocab_size(self) -> int:
        """Number of ids, the end-of-text token included."""
        return self.end_of_text + 1

    @property
    def padded_vocab_size(self) -> int:
        """Rows to give an embedding: `vocab_size` rounded up to a multiple of 64."""
        return -(-self.vocab_size // PAD_TO) * PAD_TO

    @property
    def fingerprint(self) -> str:
        """sha256 of the table: equal exactly where ids mean the same."""
        return self.vocabulary.fingerprint

    def byte_lengths(self) -> NDArray[np.int64]:
        """Bytes of text behind every id (0 for end of text and padding): exact bits per byte for any set of tokens."""
        lengths = np.zeros(self.padded_vocab_size, dtype=np.int64)
        lengths[: self.end_of_text] = [len(token) for token in self.vocabulary.token_bytes[:-1]]
        return lengths

    def describe(self) -> dict[str, str | int]:
        """What a sheet or a model's config keeps about its tokenizer."""
        return {
            "name": self.name,
            "vocab_size": self.vocab_size,
            "padded_vocab_size": self.padded_vocab_size,
            "end_of_text": self.end_of_text,
            "sha256": self.fingerprint,
        }

    def save(self, folder: str | Path) -> list[Path]:
        """Write the two files that are enough to load it anywhere, without a network."""
        table, sheet = Path(folder) / TABLE, Path(folder) / SHEET
        table.write_text(self.vocabulary.to_json(), encoding="utf-8")
        sheet.write_text(json.dumps(self.describe(), indent=2) + "\n", encoding="utf-8")
        return [table, sheet]
