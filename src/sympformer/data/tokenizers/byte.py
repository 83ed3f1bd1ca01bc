"""`byte`: one token for every byte of UTF-8. Nothing to train, nothing unknown."""

from collections.abc import Sequence

import numpy as np

from sympformer.data.tokenizers.base import Ids, Tokenizer
from sympformer.data.tokenizers.vocabulary import Vocabulary, byte_letters


class ByteTokenizer(Tokenizer):
    """Id = byte value; 256 ends a text."""

    def __init__(self, name: str = "byte", vocabulary: Vocabulary | None = None) -> None:
        letters = byte_letters()
        super().__init__(name, vocabulary or Vocabulary(tuple(letters[byte] for byte in range(256)), ()))

    def encode_batch(self, texts: Sequence[str]) -> list[Ids]:
        return [np.frombuffer(text.encode(), dtype=np.uint8).astype(np.uint32) for text in texts]
