"""The two kinds of tokenizer: one token for every byte, and byte-pair encoding by tiktoken.

Byte pairs serve GPT-2's merges and merges trained on a corpus alike.
"""

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from sympformer.data.tokenizers.base import Ids, Tokenizer
from sympformer.data.tokenizers.vocabulary import END_OF_TEXT, Vocabulary, byte_letters

if TYPE_CHECKING:
    import tiktoken

# GPT-2's splitting into words: contractions, letters, digits, other signs (each with a space before it), white space
WORDS = r"""'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s"""


class ByteTokenizer(Tokenizer):
    """Id = byte value; 256 ends a text. Nothing to train, nothing unknown."""

    def __init__(self, name: str = "byte", vocabulary: Vocabulary | None = None) -> None:
        letters = byte_letters()
        super().__init__(name, vocabulary or Vocabulary(tuple(letters[byte] for byte in range(256)), ()))

    def encode_batch(self, texts: Sequence[str]) -> list[Ids]:
        return [np.frombuffer(text.encode(), dtype=np.uint8).astype(np.uint32) for text in texts]


class PairTokenizer(Tokenizer):
    """A byte-level BPE.

    tiktoken joins two neighbours wherever a token is spelled like them, Hugging Face's tokenizers only where they are
    a listed merge. For merges that come from training the two agree: inside a token's spelling all earlier merges have
    been applied by then, and that always leaves its two listed parts.
    """

    @cached_property
    def _engine(self) -> "tiktoken.Encoding":
        import tiktoken

        return tiktoken.Encoding(
            name=self.name,
            pat_str=WORDS,
            mergeable_ranks={token: i for i, token in enumerate(self.vocabulary.token_bytes[:-1])},
            special_tokens={END_OF_TEXT: self.end_of_text},
        )

    def encode_batch(self, texts: Sequence[str]) -> list[Ids]:
        return [self._engine.encode_to_numpy(text, disallowed_special=()) for text in texts]

    def encode_documents(self, texts: Sequence[str]) -> Ids:
        if any(END_OF_TEXT in text for text in texts):
            return super().encode_documents(texts)
        # one call for all of them is twice as fast as one call for each
        return self._engine.encode_to_numpy(END_OF_TEXT.join([*texts, ""]), allowed_special={END_OF_TEXT})
