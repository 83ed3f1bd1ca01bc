"""Tokenizers by name, all with one interface, all saved as JSON.

| name | ids | padded |
|---|---|---|
| `gpt2`, `gpt2:PATH/merges.txt` | GPT-2's 50,257, exactly | 50,304 |
| `bpe:N` | N, trained on the corpus | next multiple of 64 |
| `byte` | 256 bytes and the end of text | 320 |
| a folder | the tokenizer saved there, by us or (byte-level BPE) by Hugging Face's tools | |
"""

import json
import os
from collections.abc import Callable, Iterable
from pathlib import Path

from sympformer.data.tokenizers import bpe, gpt2
from sympformer.data.tokenizers.base import SHEET, TABLE, Ids, Tokenizer
from sympformer.data.tokenizers.hugging_face import read_tokenizer
from sympformer.data.tokenizers.kinds import ByteTokenizer, PairTokenizer
from sympformer.data.tokenizers.vocabulary import END_OF_TEXT, Vocabulary
from sympformer.errors import InputError, unknown_name
from sympformer.safe_files import read_bytes

__all__ = [
    "END_OF_TEXT",
    "SHEET",
    "TABLE",
    "Ids",
    "Tokenizer",
    "check_name",
    "is_named",
    "load_tokenizer",
    "make_tokenizer",
    "read_tokenizer",
]

KINDS: dict[str, type[Tokenizer]] = {
    "gpt2": PairTokenizer,
    "bpe": PairTokenizer,
    "byte": ByteTokenizer,
}


def make_tokenizer(name: str, texts: Callable[[], Iterable[str]]) -> Tokenizer:
    """The tokenizer of a name. texts: gives the texts to train on; called only where there is something to train."""
    kind = check_name(name)
    if kind == "byte":
        return ByteTokenizer()
    if kind == "gpt2":
        return gpt2.open_gpt2(name.partition(":")[2] or None)
    if kind == "bpe":
        return bpe.train(name, texts())
    return load_tokenizer(name)


def check_name(name: str) -> str:
    """The kind of tokenizer that a name means; raises where it means none."""
    kind, _, rest = name.partition(":")
    if kind == "bpe":
        bpe.parse_size(name)
        return kind
    if kind == "gpt2" or (kind in KINDS and not rest):
        return kind
    if os.path.isdir(name):
        return "folder"
    raise unknown_name("tokenizer", name, ["gpt2", "gpt2:PATH", "bpe:N", "byte", "a folder with a saved tokenizer"])


def is_named(name: str) -> bool:
    """Whether a tokenizer is meant by its name, not by a folder."""
    return name.partition(":")[0] in KINDS


def load_tokenizer(folder: str | Path) -> Tokenizer:
    """The tokenizer that `save` wrote to a folder: beside prepared data, or in a trained model.

    A folder without our sheet is taken for one of Hugging Face's.
    """
    table, sheet = Path(folder) / TABLE, Path(folder) / SHEET
    if os.path.isfile(table) and not os.path.lexists(sheet):
        return read_tokenizer(Path(folder))
    try:
        described = json.loads(read_bytes(sheet))
        vocabulary = Vocabulary.from_json(read_bytes(table).decode("utf-8"), str(table))
        name, sha256 = str(described["name"]), described["sha256"]
        kind = KINDS[name.partition(":")[0]]
    except OSError as error:
        raise InputError(f"no tokenizer in {folder}: cannot read {error.filename} ({error.strerror})") from error
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{sheet} is not the sheet of a saved tokenizer ({error})") from error
    if vocabulary.fingerprint != sha256:
        raise InputError(f"{table} has changed since it was saved: its sha256 is not the one in {sheet.name}")
    return kind(name, vocabulary)
