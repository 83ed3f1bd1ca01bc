"""A program: `python bpe_training.py SIZE` trains a byte-level BPE on the texts on stdin, one JSON string a line.

Tokens and merges go to stdout as JSON. Training is quadratic in the length of a word, so that runs of more than
`LONGEST_WORD` characters without a break are taken apart; that changes nothing for words as people write them.
"""

import json
import sys
from typing import Any

LONGEST_WORD = 512  # characters


def train(size: int, texts: Any) -> tuple[list[str], list[list[str]]]:
    """The tokens in the order of their ids, and the merges."""
    import tokenizers
    from tokenizers import Regex, models, pre_tokenizers, trainers

    engine = tokenizers.Tokenizer(models.BPE())
    apart = pre_tokenizers.Split(Regex(rf"\S{{{LONGEST_WORD}}}|\s{{{LONGEST_WORD}}}"), "isolated")
    bytes_of = pre_tokenizers.ByteLevel(add_prefix_space=False)
    engine.pre_tokenizer = pre_tokenizers.Sequence([apart, bytes_of])
    trainer = trainers.BpeTrainer(
        vocab_size=size, min_frequency=2, show_progress=False, initial_alphabet=sorted(bytes_of.alphabet())
    )
    engine.train_from_iterator(texts, trainer)
    ids = engine.get_vocab()
    return sorted(ids, key=ids.__getitem__), json.loads(engine.to_str())["model"]["merges"]


if __name__ == "__main__":
    json.dump(train(int(sys.argv[1]), (json.loads(line) for line in sys.stdin)), sys.stdout)
