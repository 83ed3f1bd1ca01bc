"""Test documents that share a run of words with text that is trained or tuned on.

Words are what white space separates, in one case: a story that was copied with another capital at its beginning is
still a known story, and dropping a document too many costs less than scoring one that was seen. Punctuation belongs to
its word. A document of fewer words than a run counts as one run, so that short documents are compared whole.

Runs are compared by hashes of 64 bits: 100 million runs of training text against 5 million of test text, some 500 MB in
all, drop a document by mistake in one of 30,000 preparations, and never keep one by mistake.
"""

import hashlib
from collections.abc import Iterable
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from sympformer.errors import InputError

MOST = 1 << 24  # runs of test text that are kept, 8 bytes each
FACTOR = np.uint64(0x9E3779B97F4A7C15)  # odd, so that no word's bits are lost
WORDS = 1 << 16  # whose hashes are remembered


class Overlap:
    """Which of the test texts share a run of so many words with the other texts that are `compare`d with them."""

    def __init__(self, tests: Iterable[str], words: int) -> None:
        kept = [np.zeros(0, np.uint64), *(runs(text, words) for text in tests)]
        if sum(map(len, kept)) > MOST:
            raise InputError(
                f"the test split has more than {MOST:,} words, too many to compare with the training text: hold out "
                "less, take fewer documents with data.limit, or set data.overlap_words to 0"
            )
        self._words = words
        self._tested = np.unique(np.concatenate(kept))
        self._seen = np.zeros(len(self._tested), dtype=bool)

    def compare(self, text: str) -> None:
        """Note the runs that this text of another split shares with the tests."""
        if len(self._tested):
            found = runs(text, self._words)
            places = np.searchsorted(self._tested, found).clip(max=len(self._tested) - 1)
            self._seen[places[self._tested[places] == found]] = True

    def shared(self, test: str) -> bool:
        """Whether a test text shares a run with a text that was compared."""
        return bool(self._seen[np.searchsorted(self._tested, runs(test, self._words))].any())


def runs(text: str, words: int) -> NDArray[np.uint64]:
    """A hash of every run of so many words, one for each place where a run begins."""
    hashes = np.array([_hash(word) for word in text.lower().split()], dtype=np.uint64)
    words = min(words, len(hashes))
    found = np.zeros(len(hashes) - words + 1, dtype=np.uint64)
    for word in range(words):
        found = found * FACTOR + hashes[word : word + len(found)]  # modulo 2^64
    return found


@lru_cache(WORDS)
def _hash(word: str) -> int:
    return int.from_bytes(hashlib.blake2b(word.encode(), digest_size=8).digest(), "little")
