"""Our tokenizers as Hugging Face ones, and back: the same ids for every text, the same text for every id."""

import json
from pathlib import Path
from typing import Any

from sympformer.data import Tokenizer
from sympformer.data.tokenizers import END_OF_TEXT, TABLE
from sympformer.data.tokenizers.kinds import ByteTokenizer, PairTokenizer
from sympformer.data.tokenizers.vocabulary import Vocabulary
from sympformer.errors import InputError
from sympformer.safe_files import read_bytes

CONFIG = "tokenizer_config.json"
GPT2 = "8dedcefd9f3ca4f35b182275e93da81432100040c1f716fa54d7d9dc490a099b"  # the fingerprint of its table


def fast_tokenizer(tokenizer: Tokenizer, block_size: int) -> Any:
    """A PreTrainedTokenizerFast with the same ids.

    As in our own, the end-of-text token in a text is plain text; its id is `eos_token_id`. It also starts and pads
    texts: a model has seen it before every document, and padding is masked. Padding goes to the left, for generation.
    """
    import tokenizers
    from transformers import PreTrainedTokenizerFast

    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizers.Tokenizer.from_str(tokenizer.vocabulary.to_json()),
        bos_token=END_OF_TEXT,
        eos_token=END_OF_TEXT,
        pad_token=END_OF_TEXT,
        split_special_tokens=True,
        clean_up_tokenization_spaces=False,
        padding_side="left",
        model_max_length=block_size,
    )


def save_fast_tokenizer(tokenizer: Tokenizer, folder: Path, block_size: int) -> None:
    """Write `tokenizer.json` and `tokenizer_config.json`."""
    fast_tokenizer(tokenizer, block_size).save_pretrained(folder)
    config = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
    config["tokenizer_class"] = "PreTrainedTokenizerFast"  # the name that every version of transformers knows
    (folder / CONFIG).write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")


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
