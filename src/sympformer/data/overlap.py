"""Test documents that share a run of words with text that is trained or tuned on.

Words are what white space separates, in one case: a story that was copied with another capital at its beginning is
still a known story, and dropping a document too many costs less than scoring one that was seen. Punctuation belongs to
its word. A document of fewer words than a run counts as one run, so that short documents are compared whole.

Runs are compared by hashes of 64 bits: 100 million runs of training text against 5 million of test text, some 500 MB in
all, drop a document by mistake in one of 30,000 preparations, and never keep one by mistake. A hash takes 8 bytes, and
no text is kept.
"""

import hashlib
from collections.abc import Callable, Iterator
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from sympformer.data.corpora import Corpus
from sympformer.errors import InputError
from sympformer.progress import Meter

LONGEST = 1000  # words of a run
MOST = 1 << 24  # runs of test text that are kept, 8 bytes each
FACTOR = np.uint64(0x9E3779B97F4A7C15)  # odd, so that no word's bits are lost
WORDS = 1 << 16  # whose hashes are remembered


def shares_a_run(corpus: Corpus, words: int, progress: bool | None = None) -> Callable[[str], bool]:
    """Whether a text of the test split shares a run of so many words with another split. Reads the corpus twice."""
    if not 0 <= words <= LONGEST:
        raise InputError(
            f"overlap_words {words} is not a number of words from 1 to {LONGEST:,}, or 0 to keep every document"
        )
    if not words:
        return lambda text: False
    if "test" not in corpus.expected():
        raise InputError(
            f"corpus {corpus.source.name!r} has no test split to drop documents of for overlap_words: "
            "hold one out with --test, such as 0.05, or set overlap_words to 0"
        )
    shared = _shared(corpus, words, progress)
    return lambda text: bool(np.isin(runs(text, words), shared).any())


def runs(text: str, words: int) -> NDArray[np.uint64]:
    """A hash of every run of so many words, one for each place where a run begins."""
    hashes = np.array([_hash(word) for word in text.lower().split()], dtype=np.uint64)
    words = min(words, len(hashes))
    found = np.zeros(len(hashes) - words + 1, dtype=np.uint64)
    for word in range(words):
        found = found * FACTOR + hashes[word : word + len(found)]  # modulo 2^64
    return found


def _shared(corpus: Corpus, words: int, progress: bool | None) -> NDArray[np.uint64]:
    """The runs that are both in the test split and in another."""
    kept, count = list[NDArray[np.uint64]](), 0
    for text in _texts(corpus, "looking at the test text", progress, test=True):
        kept.append(runs(text, words))
        count += len(kept[-1])
        if count > MOST:
            raise InputError(
                f"the test split of {corpus.source.name!r} has more than {MOST:,} words, too many to compare with the "
                "training text: hold out less, take fewer documents with --limit, or set overlap_words to 0"
            )
    tested = np.unique(np.concatenate(kept or [np.zeros(0, np.uint64)]))
    seen = np.zeros(len(tested), dtype=bool)
    for text in _texts(corpus, "comparing it with the training text", progress, test=False) if count else ():
        found = runs(text, words)
        places = np.searchsorted(tested, found).clip(max=len(tested) - 1)
        seen[places[tested[places] == found]] = True
    return tested[seen]


def _texts(corpus: Corpus, what: str, progress: bool | None, test: bool) -> Iterator[str]:
    with Meter(what, progress) as meter:
        for split, text, done, _ in corpus:
            meter.add(1, len(text), done)
            if (split == "test") == test:
                yield text


@lru_cache(WORDS)
def _hash(word: str) -> int:
    return int.from_bytes(hashlib.blake2b(word.encode(), digest_size=8).digest(), "little")
