"""`pipeline("text-generation")` with a tokenizer, one text and several."""

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.hf.helpers import hf

pytest.importorskip("transformers", reason="needs the extra hf")

import transformers


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with a tokenizer of whole words beside it."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = [f"w{i}" for i in range(49)]
    tokenizer = Tokenizer(models.WordLevel({"<pad>": 0} | {word: i + 1 for i, word in enumerate(words)}, "<pad>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    fast = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<pad>", model_input_names=["input_ids", "attention_mask"]
    )
    place = tmp_path_factory.mktemp("model")
    fast.save_pretrained(place)
    hf("linear-exp-euler", dtype=torch.float32).save_pretrained(place)
    return place


def words(writer: Any, prompts: list[str], **options: Any) -> list[list[str]]:
    rows = writer(prompts, max_new_tokens=6, do_sample=False, return_full_text=False, **options)
    return [row[0]["generated_text"].split() for row in rows]


def test_pipeline(folder: Path) -> None:
    writer: Any = transformers.pipeline("text-generation", model=str(folder), device="cpu")
    prompts = ["w3 w1", "w4 w1 w5 w9 w2", "w7"]
    one_by_one = words(writer, prompts)
    native = writer.model.to_language_model()
    for prompt, got in zip(prompts, one_by_one, strict=True):
        ids = writer.tokenizer(prompt, return_tensors="pt").input_ids
        new = native.generate(ids, max_new_tokens=6, temperature=0)[0, ids.shape[1] :]
        assert got == writer.tokenizer.decode(new, skip_special_tokens=True).split()
    assert one_by_one[0] != one_by_one[2]
    writer.tokenizer.padding_side = "left"
    assert words(writer, prompts, batch_size=3) == one_by_one
