"""A tokenizer of our kind from a Hugging Face folder: the same ids for every text, or a sentence that says why not."""

import json
from pathlib import Path
from typing import Any

from sympformer.data.tokenizers.base import TABLE, Tokenizer
from sympformer.data.tokenizers.kinds import ByteTokenizer, PairTokenizer
from sympformer.data.tokenizers.vocabulary import END_OF_TEXT, Vocabulary
from sympformer.errors import InputError
from sympformer.safe_files import read_bytes

GPT2 = "8dedcefd9f3ca4f35b182275e93da81432100040c1f716fa54d7d9dc490a099b"  # the fingerprint of its table


def read_tokenizer(folder: Path, described: dict[str, Any] | None = None) -> Tokenizer:
    """Our tokenizer from a Hugging Face folder. described: what `Tokenizer.describe` said at the export."""
    file = folder / TABLE
    try:
        text = read_bytes(file).decode("utf-8")
        whole = json.loads(text)
    except OSError as error:
        raise InputError(f"no tokenizer in {folder}: cannot read {TABLE} ({error.strerror})") from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"{file} is damaged: it is not JSON; take a fresh copy of the folder") from error
    vocabulary = Vocabulary.from_json(text, str(file))
    if difference := _difference(whole):
        raise InputError(
            f"{file} is not a tokenizer of sympformer's kind ({difference}): its ids would not be the same"
        )
    if described is not None and described.get("sha256") != vocabulary.fingerprint:
        raise InputError(
            f"{file} is not the tokenizer of the export: its sha256 differs; take a fresh copy of the folder"
        )
    name = str(described["name"]) if described is not None and "name" in described else _name(vocabulary)
    return ByteTokenizer(name, vocabulary) if name == "byte" else PairTokenizer(name, vocabulary)


def _difference(whole: dict[str, Any]) -> str | None:
    """What makes a byte-level `tokenizer.json` encode in another way than ours, if anything does."""
    byte_level, added = whole.get("pre_tokenizer") or {}, whole.get("added_tokens", [])
    fits = isinstance(byte_level, dict) and isinstance(added, list)
    if not fits or not all(isinstance(token, dict) for token in added):
        return "it is damaged"
    if whole.get("normalizer") is not None:
        return "it changes the text first"
    if (byte_level.get("type"), byte_level.get("add_prefix_space")) != ("ByteLevel", False):
        return "it splits texts into other words"
    if not byte_level.get("use_regex", True):
        return "it splits texts into other words"
    if more := [token.get("content") for token in added if token.get("content") != END_OF_TEXT]:
        return f"it has added tokens such as {more[0]!r}"
    return None


def _name(vocabulary: Vocabulary) -> str:
    """The name of a tokenizer that comes without one."""
    known = {ByteTokenizer().fingerprint: "byte", GPT2: "gpt2"}
    return known.get(vocabulary.fingerprint, f"bpe:{vocabulary.end_of_text + 1}")
