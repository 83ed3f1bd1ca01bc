"""Our tokenizers as Hugging Face ones: the same ids, the same texts, and the same tokenizer again on the way back."""

from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from sympformer.data import stories
from sympformer.data.tokenizers import END_OF_TEXT, Tokenizer, make_tokenizer
from sympformer.exchange.tokenizers import fast_tokenizer, save_fast_tokenizer
from tests.data.places import MERGES, needs_merges

EVERY = ["byte", "bpe:300", pytest.param("gpt2", marks=needs_merges)]
ODD = [
    "",
    " ",
    "\n\n \t\r\n",
    " leading and trailing  ",
    "naïve façade — “quotes” … 世界 مرحبا 🙂👩‍👩‍👧 e\u0301",
    "a\x00b\x7f\u200b\ufeff\u2028\u3000\xa0x",
    "don't I'LL we've   3.14159 1000000 __init__(self) , . ! ?",
    f"before {END_OF_TEXT} after{END_OF_TEXT}",
    "<|endoftext|><|endoftext",
    "x" * 2_000,
    "\U0010ffff\ud7ff",
]
any_text = st.text(st.characters(exclude_categories=["Cs"]), max_size=60)


@cache
def own(name: str) -> Tokenizer:
    return make_tokenizer(f"gpt2:{MERGES}" if name == "gpt2" else name, lambda: stories(100))


@cache
def theirs(name: str) -> Any:
    return fast_tokenizer(own(name), 64)


@pytest.mark.parametrize("name", EVERY)
def test_same_ids_and_texts_after_saving(name: str, tmp_path: Path) -> None:
    save_fast_tokenizer(own(name), tmp_path, 64)
    for kind in (AutoTokenizer, PreTrainedTokenizerFast):
        loaded = kind.from_pretrained(tmp_path)
        assert isinstance(loaded, PreTrainedTokenizerFast)
        assert len(loaded) == own(name).vocab_size
        for text in ODD:
            ids = own(name).encode(text)
            assert loaded(text).input_ids == ids
            assert loaded.decode(ids) == text
        assert loaded(ODD[1:]).input_ids == [own(name).encode(text) for text in ODD[1:]]


@pytest.mark.parametrize("name", EVERY)
@given(text=any_text)
def test_same_ids_for_any_text(name: str, text: str) -> None:
    assert theirs(name)(text).input_ids == own(name).encode(text)


@pytest.mark.parametrize("name", EVERY)
@given(draw=st.lists(st.integers(0, 10**6), max_size=12))
def test_same_texts_for_any_ids(name: str, draw: list[int]) -> None:
    """Broken UTF-8 and the end of a text included."""
    ids = [i % own(name).vocab_size for i in draw]
    assert theirs(name).decode(ids) == own(name).decode(ids)


@pytest.mark.parametrize("name", EVERY)
def test_special_tokens(name: str) -> None:
    fast, end = theirs(name), own(name).end_of_text
    assert (fast.bos_token_id, fast.eos_token_id, fast.pad_token_id) == (end, end, end)
    assert fast.decode([end]) == END_OF_TEXT
    assert fast.decode([end], skip_special_tokens=True) == ""
    assert end not in fast(END_OF_TEXT).input_ids
    assert fast.encode(END_OF_TEXT, split_special_tokens=False) == [end]
    assert (fast.model_max_length, fast.padding_side) == (64, "left")
    batch = fast(["a", "a a a"], padding=True)
    assert batch.input_ids[0][0] == end
    assert batch.attention_mask[0][0] == 0


@pytest.mark.parametrize("name", EVERY)
def test_the_way_back(name: str, tmp_path: Path) -> None:
    save_fast_tokenizer(own(name), tmp_path, 64)
    again = Tokenizer.load(tmp_path)
    assert again.describe() == own(name).describe()
    assert all(again.encode(text) == own(name).encode(text) for text in ODD)
