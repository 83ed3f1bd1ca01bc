"""`bpe:N`: a byte-level BPE of N tokens trained on the corpus by Hugging Face tokenizers."""

import json
from collections.abc import Iterable, Iterator

from sympformer.data.tokenizers.kinds import PairTokenizer
from sympformer.data.tokenizers.vocabulary import Vocabulary, byte_letters
from sympformer.errors import InputError

SMALLEST, LARGEST = 257, 1_000_000  # at least 256 bytes and the end of text
SAMPLE = 8_000_000  # characters to train on: the first of the corpus; more of them hardly changes the merges


def parse_size(name: str) -> int:
    """N of `bpe:N`."""
    _, _, size = name.partition(":")
    number = int(size) if size.isascii() and size.isdigit() and len(size) < 10 else 0
    if not SMALLEST <= number <= LARGEST:
        raise InputError(f"tokenizer {name!r} is not bpe:N with {SMALLEST} to {LARGEST} tokens, like bpe:2048")
    return number


def train(name: str, texts: Iterable[str]) -> PairTokenizer:
    """Train on the first texts, `SAMPLE` characters of them. The same texts give the same tokenizer.

    A small corpus may run out of pairs to merge: then there are fewer tokens than asked for.
    """
    import tokenizers
    from tokenizers import models, pre_tokenizers, trainers

    engine = tokenizers.Tokenizer(models.BPE())
    engine.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=parse_size(name) - 1,
        min_frequency=2,
        show_progress=False,
        initial_alphabet=sorted(byte_letters().values()),
    )
    engine.train_from_iterator(_sample(texts), trainer)
    ids = engine.get_vocab()
    merges = json.loads(engine.to_str())["model"]["merges"]
    return PairTokenizer(
        name, Vocabulary(tuple(sorted(ids, key=ids.__getitem__)), tuple((left, right) for left, right in merges))
    )


def _sample(texts: Iterable[str]) -> Iterator[str]:
    left = SAMPLE
    for text in texts:
        yield text[:left]
        left -= len(text)
        if left <= 0:
            return
