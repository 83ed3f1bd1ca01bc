"""Tokenizers: exact round trips, known ids, the same again from disk, and every refusal.

That Hugging Face's tools read the same table and agree stands in `tests/export/test_export.py`.
"""

import json
import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sympformer.data import stories, tokenizers
from sympformer.data.tokenizers import END_OF_TEXT, TABLE, Tokenizer, make_tokenizer
from sympformer.errors import InputError
from tests.data.places import MERGES, needs_merges

ODD = [
    "",
    " ",
    "\n\n \t\r\n",
    "naïve façade — “quotes” … 世界 مرحبا 🙂👩‍👩‍👧 e\u0301",
    "a\x00b\x7f\u200b\ufeff\u2028",
    "don't I'LL we've   3.14159 1000000 __init__(self)",
    f"before {END_OF_TEXT} after",
    "x" * 5_000,
    "\U0010ffff\ud7ff",
]


@cache
def tokenizer(name: str) -> Tokenizer:
    if name == "gpt2":
        return make_tokenizer(f"gpt2:{MERGES}", list)
    return make_tokenizer(name, lambda: stories(300))


EVERY = ["byte", "bpe:400", "bpe:2048", pytest.param("gpt2", marks=needs_merges)]
unicode_text = st.text(st.characters(exclude_categories=["Cs"]), max_size=60)


@pytest.mark.parametrize("name", EVERY)
def test_round_trip_of_odd_text_also_when_saved_and_loaded(name: str, tmp_path: Path) -> None:
    own = tokenizer(name)
    own.save(tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == [TABLE]
    again = Tokenizer.load(tmp_path)
    assert again.describe() == own.describe()
    for text in ODD:
        ids = own.encode(text)
        assert again.encode(text) == ids
        assert own.decode(ids) == text
        assert own.end_of_text not in ids
        assert own.byte_lengths()[ids].sum() == len(text.encode())


@pytest.mark.parametrize("name", EVERY)
@given(texts=st.lists(unicode_text, max_size=4))
def test_round_trip_of_any_text(name: str, texts: list[str]) -> None:
    own = tokenizer(name)
    assert [own.decode(ids) for ids in own.encode_batch(texts)] == texts
    if texts:
        joined = own.encode_documents(texts)
        assert joined.tolist() == [i for text in texts for i in (*own.encode(text), own.end_of_text)]
        assert own.decode(joined) == "".join(text + END_OF_TEXT for text in texts)


@pytest.mark.parametrize(
    ("name", "size", "padded"), [("byte", 257, 320), ("bpe:400", 400, 448), ("bpe:2048", 2048, 2048)]
)
def test_sizes(name: str, size: int, padded: int) -> None:
    own = tokenizer(name)
    assert (own.name, own.vocab_size, own.padded_vocab_size, own.end_of_text) == (name, size, padded, size - 1)
    assert own.decode([own.end_of_text]) == END_OF_TEXT
    assert padded == size or own.decode([size]) == "\ufffd"
    with pytest.raises(InputError, match=f"token id {padded} is outside the vocabulary"):
        own.decode([padded])


# ids as GPT-2's own encoder gives them
KNOWN_GPT2 = {
    "Hello world": [15496, 995],
    "Once upon a time": [7454, 2402, 257, 640],
    "The quick brown fox jumps over the lazy dog.": [464, 2068, 7586, 21831, 18045, 625, 262, 16931, 3290, 13],
    " \n": [220, 198],
    "1234": [1065, 2682],
}


@needs_merges
def test_gpt2_has_the_known_ids_and_sizes() -> None:
    own = tokenizer("gpt2")
    assert {text: own.encode(text) for text in KNOWN_GPT2} == KNOWN_GPT2
    assert (own.name, own.vocab_size, own.padded_vocab_size) == ("gpt2", 50257, 50304)


def test_gpt2_refuses_other_merges(tmp_path: Path) -> None:
    (tmp_path / "merges.txt").write_text("a b\nc d\n")
    with pytest.raises(InputError, match="does not hold GPT-2's 50,000 merges"):
        make_tokenizer(f"gpt2:{tmp_path}/merges.txt", list)
    with pytest.raises(InputError, match=r"cannot read GPT-2's merges at .*none\.txt: there is no such file"):
        make_tokenizer(f"gpt2:{tmp_path}/none.txt", list)


def refuse(path: str) -> bytes:
    raise ConnectionError(path)


@needs_merges
def test_gpt2_from_a_folder_from_tiktokens_cache_and_from_nowhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    merges = "#version: 0.2\n" + MERGES.read_text(encoding="utf-8")
    (tmp_path / "merges.txt").write_text(merges, encoding="utf-8")
    assert make_tokenizer(f"gpt2:{tmp_path}").fingerprint == tokenizer("gpt2").fingerprint
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))
    for read in (lambda path: merges.encode(), refuse):
        monkeypatch.setattr("tiktoken.load.read_file", read)
        assert make_tokenizer("gpt2").encode("Hello world") == [15496, 995]


def test_gpt2_without_a_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr("tiktoken.load.read_file", refuse)
    with pytest.raises(InputError, match="could not be downloaded: connect once, or give the merges file"):
        make_tokenizer("gpt2")


def test_bpe_trains_on_a_bounded_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokenizers, "SAMPLE", 5_000)
    read = []

    def texts() -> Iterator[str]:
        for text in stories(1_000):
            read.append(text)
            yield text

    make_tokenizer("bpe:300", texts)
    assert 5_000 <= sum(map(len, read)) < 10_000


def test_bpe_on_little_text_has_fewer_tokens() -> None:
    own = make_tokenizer("bpe:5000", lambda: ["a tiny text", "a tiny text"])
    assert 257 < own.vocab_size < 300
    assert own.name == f"bpe:{own.vocab_size}"
    assert own.decode(own.encode("a tiny text")) == "a tiny text"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        *[(name, "not bpe:N with 257 to") for name in ("bpe", "bpe:", "bpe:256", "bpe:-3", "bpe:" + "9" * 5000)],
        ("byte:3", "unknown tokenizer 'byte:3'"),
        ("gtp2", "unknown tokenizer 'gtp2'.*did you mean 'gpt2'"),
    ],
)
def test_bad_names(name: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        make_tokenizer(name, list)


KIND = r"is not a byte-level BPE tokenizer\.json"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"normalizer": {"type": "NFC"}}, "it changes the text first"),
        ({"pre_tokenizer": {"type": "Whitespace"}}, "it splits texts into other words"),
        ({"pre_tokenizer": None}, "it splits texts into other words"),
        ({"pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": True}}, "it splits texts into other words"),
        ({"added_tokens": [{"id": 300, "content": "<pad>"}]}, "added tokens such as '<pad>'"),
        *[({"pre_tokenizer": "bytes"}, KIND), ({"added_tokens": 5}, KIND), ({"added_tokens": ["<pad>"]}, KIND)],
        ({"model": {"type": "WordPiece", "vocab": {"the": 0}}}, KIND),
        *[({"model": {"vocab": {"a": i}, "merges": []}}, KIND) for i in (0, 5)],
        ({"model": None}, KIND),
        ("{", "it is not JSON"),
        ("[]", "must hold named values"),
        (None, r"no tokenizer in .*tokenizer\.json is missing"),
    ],
)
def test_tables_that_are_refused(change: Any, message: str, tmp_path: Path) -> None:
    if isinstance(change, dict):
        tokenizer("bpe:400").save(tmp_path)
        change = json.dumps(json.loads((tmp_path / TABLE).read_text()) | change)
    if change is not None:
        (tmp_path / TABLE).write_text(change)
    with pytest.raises(InputError, match=message):
        Tokenizer.load(tmp_path)


def test_words_without_end_do_not_take_for_ever() -> None:
    """Ten megabytes without a space: quadratic in the length of a word, this would run for hours."""
    own = make_tokenizer("bpe:300", lambda: ["ab" * 5_000_000])
    assert own.decode(own.encode("ab" * 1000)) == "ab" * 1000


def test_training_hears_signals(monkeypatch: pytest.MonkeyPatch) -> None:
    """The work is another process's: this one is told to stop in the middle of it."""
    started: list[Any] = []

    class Slow(subprocess.Popen[bytes]):
        def __init__(self, command: list[str], **options: Any) -> None:
            super().__init__([command[0], "-c", "import time; time.sleep(60)"], **options)
            started.append(self)
            threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()

    monkeypatch.setattr(tokenizers, "Popen", Slow)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            tokenizers.train("bpe:300", ["some text"])
    finally:
        signal.signal(signal.SIGINT, before)
    assert started[0].returncode == -signal.SIGKILL
