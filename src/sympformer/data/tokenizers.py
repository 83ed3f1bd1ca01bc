"""Tokenizers: text to ids and back, by one class over a table that is saved as a Hugging Face `tokenizer.json`.

Names are those of `DataConfig.tokenizer`: gpt2, bpe:N, byte, or a folder with a tokenizer saved by us or (byte-level
BPE) by Hugging Face's tools.
"""

import codecs
import hashlib
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from subprocess import PIPE, Popen
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sympformer.errors import InputError, unknown_name
from sympformer.files import read_json, read_text

if TYPE_CHECKING:
    import tiktoken

END_OF_TEXT = "<|endoftext|>"
TABLE = "tokenizer.json"
PAD_TO = 64  # embedding rows are padded to a multiple of this, GPT-2's 50,257 to 50,304
# GPT-2's splitting into words: contractions, letters, digits, other signs (each with a space before it), white space
WORDS = r"""'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s"""

SMALLEST, LARGEST = 257, 1_000_000  # tokens of bpe:N: at least 256 bytes and the end of text
SAMPLE = 8_000_000  # characters to train on: the first of the corpus; more of them hardly changes the merges

GPT2 = "8dedcefd9f3ca4f35b182275e93da81432100040c1f716fa54d7d9dc490a099b"  # the fingerprint of its table
GPT2_HEADER = "#version: 0.2\n"
GPT2_SHA256 = "1ce1664773c50f3e0cc8842619a93edc4624525b728b188a9e0be33b7726adc5"  # of the merges with their header
GPT2_URL = "https://openaipublic.blob.core.windows.net/gpt-2/encodings/main/vocab.bpe"

Ids = NDArray[np.uint32]
Merges = Sequence[tuple[str, str]]

# GPT-2's spelling of the 256 bytes, in GPT-2's order of ids: a printable character for each
_PLAIN = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAC + 1), *range(0xAE, 0xFF + 1)]
LETTERS = {byte: chr(byte) for byte in _PLAIN}
LETTERS |= {byte: chr(256 + i) for i, byte in enumerate(sorted(set(range(256)) - set(_PLAIN)))}
BYTES = {letter: byte for byte, letter in LETTERS.items()}


class Tokenizer:
    """Text to ids and back. Ids run from 0; the last one is the end-of-text token, which no text encodes to.

    tokens: spelled in `LETTERS`, in the order of their ids, without the end-of-text token. merges: in order of rank;
    without any, every byte is a token.

    tiktoken joins two neighbours wherever a token is spelled like them, Hugging Face's tokenizers only where they are
    a listed merge. For merges that come from training the two agree: inside a token's spelling all earlier merges have
    been applied by then, and that always leaves its two listed parts.
    """

    def __init__(self, tokens: Iterable[str], merges: Merges = ()) -> None:
        self.tokens, self.merges = tuple(tokens), tuple(merges)
        self.token_bytes = [*(bytes(map(BYTES.__getitem__, token)) for token in self.tokens), END_OF_TEXT.encode()]
        self.end_of_text = len(self.tokens)  # the id that ends every document
        self.vocab_size = self.end_of_text + 1  # number of ids, the end-of-text token included
        self.padded_vocab_size = -(-self.vocab_size // PAD_TO) * PAD_TO  # rows to give an embedding

    @classmethod
    def load(cls, folder: str | Path) -> "Tokenizer":
        """The tokenizer saved in a folder, beside tokens or in a model: it gives the same ids as when it was saved."""
        file = Path(folder) / TABLE
        if not os.path.isfile(file):
            raise InputError(f"no tokenizer in {folder}: {TABLE} is missing, or not a regular file")
        whole = read_json(file)
        try:
            ids: dict[str, int] = whole["model"]["vocab"]
            merges = [_pair(merge) for merge in whole["model"]["merges"]]
            tokens = sorted((token for token in ids if token != END_OF_TEXT), key=ids.__getitem__)
            contiguous = [ids[token] for token in tokens] == list(range(len(tokens)))
            difference = _difference(whole)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise InputError(f"{file} is not a byte-level BPE tokenizer.json ({error})") from error
        if not contiguous or not BYTES.keys() <= set(tokens) or not set("".join(tokens)) <= BYTES.keys():
            raise InputError(f"{file} is not a byte-level BPE tokenizer.json with {END_OF_TEXT} as its last token")
        if difference:
            raise InputError(f"{file} is not a tokenizer of sympformer's kind ({difference}): its ids would differ")
        return cls(tokens, merges)

    @cached_property
    def fingerprint(self) -> str:
        """sha256 of the table: equal exactly where ids mean the same."""
        content = json.dumps([self.tokens, self.merges], ensure_ascii=True, separators=(",", ":"))
        return hashlib.sha256(content.encode()).hexdigest()

    @cached_property
    def name(self) -> str:
        """What the table is called: gpt2, byte, or bpe:N with as many tokens as it has."""
        if self.merges:
            return "gpt2" if self.fingerprint == GPT2 else f"bpe:{self.vocab_size}"
        return "byte" if self.tokens == tuple(LETTERS[byte] for byte in range(256)) else f"bpe:{self.vocab_size}"

    @cached_property
    def _engine(self) -> "tiktoken.Encoding":
        import tiktoken

        ranks = {token: i for i, token in enumerate(self.token_bytes[:-1])}
        ends = {END_OF_TEXT: self.end_of_text}
        return tiktoken.Encoding(name=self.name, pat_str=WORDS, mergeable_ranks=ranks, special_tokens=ends)

    @cached_property
    def _ids_of_bytes(self) -> Ids:
        return np.argsort([token[0] for token in self.token_bytes[:-1]]).astype(np.uint32)

    def encode_batch(self, texts: Sequence[str]) -> list[Ids]:
        """The ids of every text, without end-of-text tokens. Special tokens in a text are plain text."""
        if not self.merges:
            return [self._ids_of_bytes[np.frombuffer(text.encode(), dtype=np.uint8)] for text in texts]
        return [self._engine.encode_to_numpy(text, disallowed_special=()) for text in texts]

    def encode_documents(self, texts: Sequence[str]) -> Ids:
        """The ids of all texts in a row, with an end-of-text token after each."""
        if self.merges and not any(END_OF_TEXT in text for text in texts):
            # one call for all of them is twice as fast as one call for each
            return self._engine.encode_to_numpy(END_OF_TEXT.join([*texts, ""]), allowed_special={END_OF_TEXT})
        end = np.array([self.end_of_text], dtype=np.uint32)
        return np.concatenate([part for ids in self.encode_batch(texts) for part in (ids, end)])

    def encode(self, text: str) -> list[int]:
        """The ids of a text."""
        return self.encode_batch([text])[0].tolist()

    def decode(self, ids: Iterable[int]) -> str:
        """The text of ids. Broken UTF-8 and padding ids become U+FFFD."""
        return "".join(self.decode_stream(ids))

    def decode_stream(self, ids: Iterable[int]) -> Iterator[str]:
        """The same text in pieces, as the ids come: a character is there once all its bytes are."""
        decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        for i in map(int, ids):
            if not 0 <= i < self.padded_vocab_size:
                last = self.padded_vocab_size - 1
                raise InputError(f"token id {i} is outside the vocabulary of {self.name} (0 to {last})")
            if text := decoder.decode(self.token_bytes[i] if i < self.vocab_size else b"\xff"):
                yield text
        if text := decoder.decode(b"", final=True):
            yield text

    def byte_lengths(self) -> NDArray[np.int64]:
        """Bytes of text behind every id (0 for end of text and padding): exact bits per byte for any set of tokens."""
        lengths = np.zeros(self.padded_vocab_size, dtype=np.int64)
        lengths[: self.end_of_text] = [len(token) for token in self.token_bytes[:-1]]
        return lengths

    def describe(self) -> dict[str, str | int]:
        """What a sheet or a record keeps about its tokenizer."""
        sizes = {size: getattr(self, size) for size in ("vocab_size", "padded_vocab_size", "end_of_text")}
        return {"name": self.name, **sizes, "sha256": self.fingerprint}

    def save(self, folder: str | Path) -> None:
        """Write the one file that is enough to load it anywhere, without a network."""
        (Path(folder) / TABLE).write_text(self.to_json(), encoding="utf-8")

    def to_json(self) -> str:
        """The table as a Hugging Face `tokenizer.json`."""
        byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
        flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
        vocabulary = {token: i for i, token in enumerate((*self.tokens, END_OF_TEXT))}
        model = dict.fromkeys(("dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix"))
        model |= dict.fromkeys(("fuse_unk", "byte_fallback", "ignore_merges"), False)
        whole = {
            "version": "1.0",
            **dict.fromkeys(("truncation", "padding", "normalizer", "post_processor")),
            "added_tokens": [{"id": self.end_of_text, "content": END_OF_TEXT, **flags, "special": True}],
            "pre_tokenizer": byte_level,
            "decoder": byte_level,
            "model": {"type": "BPE", **model, "vocab": vocabulary, "merges": self.merges},
        }
        return json.dumps(whole, ensure_ascii=False)


load_tokenizer = Tokenizer.load


def make_tokenizer(name: str, texts: Callable[[], Iterable[str]] = list) -> Tokenizer:
    """The tokenizer of a name. texts: gives the texts to train on; called only where there is something to train."""
    kind = check_name(name)
    if kind == "byte":
        return Tokenizer(LETTERS[byte] for byte in range(256))
    if kind == "gpt2":
        return _gpt2(name.partition(":")[2])
    return train(name, texts()) if kind == "bpe" else Tokenizer.load(name)


def check_name(name: str) -> str:
    """The kind of tokenizer that a name means: gpt2, bpe, byte or folder; raises where it means none."""
    kind, _, rest = name.partition(":")
    if kind == "bpe":
        size = int(rest) if rest.isascii() and rest.isdigit() and len(rest) < 10 else 0
        if not SMALLEST <= size <= LARGEST:
            raise InputError(f"tokenizer {name!r} is not bpe:N with {SMALLEST} to {LARGEST} tokens, like bpe:2048")
        return kind
    if kind == "gpt2" or name == "byte":
        return kind
    if os.path.isdir(name):
        return "folder"
    raise unknown_name("tokenizer", name, ["gpt2", "gpt2:PATH", "bpe:N", "byte", "a folder with a saved tokenizer"])


def train(name: str, texts: Iterable[str]) -> Tokenizer:
    """`bpe:N`: train on the first texts, `SAMPLE` characters of them. The same texts give the same tokenizer.

    A small corpus may run out of pairs to merge: then there are fewer tokens than asked for. The work is done in a
    process of its own, so that this one still hears signals.
    """
    size = int(name.partition(":")[2])
    command = [sys.executable, "-P", str(Path(__file__).with_name("bpe_training.py")), str(size - 1)]
    try:
        with Popen(command, stdin=PIPE, stdout=PIPE, stderr=PIPE) as process:
            try:
                trained, said = process.communicate("".join(json.dumps(t) + "\n" for t in _sample(texts)).encode())
            finally:
                process.kill()  # where it has not ended
                process.wait()
    except OSError as error:
        raise InputError(f"cannot start the process that trains {name}: {error.strerror or error}") from error
    if process.returncode:
        why = said.decode(errors="replace").strip().splitlines()[-1:] or [f"exit code {process.returncode}"]
        raise InputError(f"training {name} failed: {why[0]}")
    tokens, merges = json.loads(trained)
    return Tokenizer(tokens, [_pair(merge) for merge in merges])


def _sample(texts: Iterable[str]) -> Iterator[str]:
    left = SAMPLE
    for text in texts:
        yield text[:left]
        left -= len(text)
        if left <= 0:
            return


def _gpt2(path: str) -> Tokenizer:
    """GPT-2's tokenizer from a merges file, or from tiktoken's cache or the network: 256 bytes, then the merges."""
    file = os.path.expanduser(path)
    file = os.path.join(file, "merges.txt") if os.path.isdir(file) else file
    if path and not os.path.isfile(file):
        raise InputError(f"cannot read GPT-2's merges at {file}: there is no such file")
    text = read_text(Path(file)) if path else _download()
    lines = text.replace("\r\n", "\n").removeprefix(GPT2_HEADER).rstrip("\n")
    if hashlib.sha256(f"{GPT2_HEADER}{lines}\n".encode()).hexdigest() != GPT2_SHA256:
        raise InputError(f"{path or GPT2_URL} does not hold GPT-2's 50,000 merges: its sha256 is not the expected one")
    merges = [_pair(line) for line in lines.split("\n")]
    return Tokenizer([*LETTERS.values(), *(left + right for left, right in merges)], merges)


def _download() -> str:
    from tiktoken.load import read_file_cached

    try:
        return read_file_cached(GPT2_URL, GPT2_SHA256).decode()
    except (OSError, ValueError) as error:  # the errors of requests are OSErrors
        raise InputError(
            "GPT-2's merges are not in tiktoken's cache and could not be downloaded: "
            "connect once, or give the merges file as gpt2:PATH/merges.txt"
        ) from error


def _pair(merge: str | list[str]) -> tuple[str, str]:
    left, right = merge.split(" ") if isinstance(merge, str) else merge
    return left, right


def _difference(whole: dict[str, Any]) -> str | None:
    """What makes a byte-level `tokenizer.json` encode in another way than ours, if anything does."""
    if whole.get("normalizer") is not None:
        return "it changes the text first"
    byte_level = whole.get("pre_tokenizer") or {}
    words = byte_level.get("type"), byte_level.get("add_prefix_space"), byte_level.get("use_regex", True)
    if words != ("ByteLevel", False, True):
        return "it splits texts into other words"
    more = [token["content"] for token in whole.get("added_tokens", []) if token["content"] != END_OF_TEXT]
    return f"it has added tokens such as {more[0]!r}" if more else None
