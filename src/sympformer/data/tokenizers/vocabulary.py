"""The table behind every tokenizer: tokens in id order, merges, and the end-of-text token as the last id.

On disk it is a `tokenizer.json` of the Hugging Face kind, so that other tools can read it too.
"""

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

from sympformer.errors import InputError

END_OF_TEXT = "<|endoftext|>"


@cache
def byte_letters() -> dict[int, str]:
    """GPT-2's spelling of the 256 bytes: a printable character for each, in GPT-2's order of ids."""
    plain = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAC + 1), *range(0xAE, 0xFF + 1)]
    others = [byte for byte in range(256) if byte not in set(plain)]
    return {byte: chr(byte) for byte in plain} | {byte: chr(256 + i) for i, byte in enumerate(others)}


@cache
def letter_bytes() -> dict[str, int]:
    """The inverse of `byte_letters`."""
    return {letter: byte for byte, letter in byte_letters().items()}


@dataclass(frozen=True)
class Vocabulary:
    """Tokens spelled in `byte_letters`, in id order without the end-of-text token, and merges in order of rank."""

    tokens: tuple[str, ...]
    merges: tuple[tuple[str, str], ...]

    @property
    def end_of_text(self) -> int:
        """The id after all others."""
        return len(self.tokens)

    @cached_property
    def token_bytes(self) -> list[bytes]:
        """The bytes of every token in id order, the end-of-text token's name last."""
        inverse = letter_bytes()
        return [*(bytes(map(inverse.__getitem__, token)) for token in self.tokens), END_OF_TEXT.encode()]

    @cached_property
    def fingerprint(self) -> str:
        """sha256 of the content: equal for equal tables, whatever wrote them."""
        content = json.dumps([self.tokens, self.merges], ensure_ascii=True, separators=(",", ":"))
        return hashlib.sha256(content.encode()).hexdigest()

    def to_json(self) -> str:
        """The table as a Hugging Face `tokenizer.json`."""
        byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
        flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
        whole: dict[str, Any] = {
            "version": "1.0",
            "truncation": None,
            "padding": None,
            "added_tokens": [{"id": self.end_of_text, "content": END_OF_TEXT, **flags, "special": True}],
            "normalizer": None,
            "pre_tokenizer": byte_level,
            "post_processor": None,
            "decoder": byte_level,
            "model": {
                "type": "BPE",
                "dropout": None,
                "unk_token": None,
                "continuing_subword_prefix": None,
                "end_of_word_suffix": None,
                "fuse_unk": False,
                "byte_fallback": False,
                "ignore_merges": False,
                "vocab": {token: i for i, token in enumerate((*self.tokens, END_OF_TEXT))},
                "merges": self.merges,
            },
        }
        return json.dumps(whole, ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str, where: str) -> "Vocabulary":
        """The table of a `tokenizer.json`; `where` names it in errors."""
        try:
            model = json.loads(text)["model"]
            ids: dict[str, int] = model["vocab"]
            merges = tuple(_pair(merge) for merge in model["merges"])
            tokens = sorted((token for token in ids if token != END_OF_TEXT), key=ids.__getitem__)
            contiguous = [ids[token] for token in tokens] == list(range(len(tokens)))
        except (KeyError, TypeError, ValueError, RecursionError) as error:
            raise InputError(f"{where} is not a byte-level BPE tokenizer.json ({error})") from error
        if not contiguous or not set("".join(tokens)) <= set(letter_bytes()):
            raise InputError(f"{where} is not a byte-level BPE tokenizer.json with {END_OF_TEXT} as its last token")
        return cls(tuple(tokens), merges)


def from_merges(merges: Iterable[tuple[str, str]]) -> Vocabulary:
    """GPT-2's way: 256 bytes in GPT-2's order, then one token for every merge."""
    merges = tuple(merges)
    return Vocabulary((*byte_letters().values(), *(left + right for left, right in merges)), merges)


def _pair(merge: str | list[str]) -> tuple[str, str]:
    left, right = merge.split(" ") if isinstance(merge, str) else merge
    return left, right
