"""Our tokenizers as Hugging Face ones: the same ids for every text, the same text for every id.

The way back is `Tokenizer.load`.
"""

import json
from pathlib import Path
from typing import Any

from sympformer.data import Tokenizer
from sympformer.data.tokenizers import END_OF_TEXT

CONFIG = "tokenizer_config.json"


def fast_tokenizer(tokenizer: Tokenizer, block_size: int) -> Any:
    """A PreTrainedTokenizerFast with the same ids.

    As in our own, the end-of-text token in a text is plain text; its id is `eos_token_id`. It also starts and pads
    texts: a model has seen it before every document, and padding is masked. Padding goes to the left, for generation.
    """
    import tokenizers
    from transformers import PreTrainedTokenizerFast

    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizers.Tokenizer.from_str(tokenizer.to_json()),
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
