"""`bpe:N`: a byte-level BPE of N tokens trained on the corpus by Hugging Face tokenizers."""

import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from subprocess import PIPE, Popen

from sympformer.data.tokenizers.kinds import PairTokenizer
from sympformer.data.tokenizers.vocabulary import Vocabulary
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

    A small corpus may run out of pairs to merge: then there are fewer tokens than asked for. The work is done in a
    process of its own, so that this one still hears signals.
    """
    size = parse_size(name)
    command = [sys.executable, "-P", str(Path(__file__).with_name("bpe_training.py")), str(size - 1)]
    try:
        with Popen(command, stdin=PIPE, stdout=PIPE, stderr=PIPE) as process:
            try:
                trained, said = process.communicate(_packed(texts))
            except BaseException:
                process.kill()
                process.wait()
                raise
    except OSError as error:
        raise InputError(f"cannot start the process that trains {name}: {error.strerror or error}") from error
    if process.returncode:
        why = said.decode(errors="replace").strip().splitlines()[-1:] or [f"exit code {process.returncode}"]
        raise InputError(f"training {name} failed: {why[0]}")
    tokens, merges = json.loads(trained)
    return PairTokenizer(name, Vocabulary(tuple(tokens), tuple((left, right) for left, right in merges)))


def _packed(texts: Iterable[str]) -> bytes:
    """The texts to train on, each as a line of JSON."""
    return "".join(json.dumps(text) + "\n" for text in _sample(texts)).encode()


def _sample(texts: Iterable[str]) -> Iterator[str]:
    left = SAMPLE
    for text in texts:
        yield text[:left]
        left -= len(text)
        if left <= 0:
            return
