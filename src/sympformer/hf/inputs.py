"""What may be given to a model: tokens, their places, a mask of their padding. All else is refused in words."""

from typing import Any

import torch
from torch import Tensor

from sympformer.errors import InputError, unknown_name
from sympformer.hf.cache import SympFormerCache
from sympformer.models import Given
from sympformer.nn import same_text

# arguments that other models take, and why these do not
REFUSED = {
    "output_attentions": "attention is computed without its matrix",
    "token_type_ids": "there is one type; set tokenizer.model_input_names = ['input_ids', 'attention_mask']",
}
KNOWN = (
    "attention_mask",
    "input_ids",
    "inputs_embeds",
    "labels",
    "logits_to_keep",
    "output_hidden_states",
    "past_key_values",
    "position_ids",
    "use_cache",
)


def check_names(others: dict[str, Any]) -> None:
    """Refuse everything a model of this kind cannot honour."""
    for name, value in others.items():
        if name not in REFUSED:
            raise unknown_name("argument", name, KNOWN)
        if value is not None and value is not False:
            raise InputError(f"{name} is not supported: {REFUSED[name]}")


def is_packed(position_ids: Tensor | None, attention_mask: Tensor | None) -> bool:
    """Whether rows hold several texts: no mask says otherwise, and places start again at 0 inside a row."""
    if position_ids is None or attention_mask is not None:
        return False
    return bool((position_ids[:, 1:] == 0).any())


def given_of(
    shape: tuple[int, int],
    attention_mask: Tensor | None,
    position_ids: Tensor | None,
    inputs_embeds: Tensor | None,
    cache: SympFormerCache | None,
) -> Given:
    """What is known of the new columns (B, T), as the language model takes it."""
    padding = None if attention_mask is None else ~_new_tokens(shape, attention_mask, cache)
    seen = None
    if position_ids is not None and is_packed(position_ids, attention_mask) and (cache is None or not cache.seen):
        seen = same_text(position_ids)
    return Given(padding, position_ids, inputs_embeds, seen)


def _new_tokens(shape: tuple[int, int], mask: Tensor, cache: SympFormerCache | None) -> Tensor:
    """Which of the new columns (B, T) hold a token, by a mask of all columns."""
    seen = 0 if cache is None else cache.seen
    whole = (shape[0], seen + shape[1])
    if mask.shape != whole:
        raise InputError(
            f"attention_mask must cover all columns, those in the cache too: {whole}, got {tuple(mask.shape)}"
        )
    real = mask != 0
    if cache is not None and seen and not _same(real[:, :seen], cache.real):
        raise InputError(
            "attention_mask hides other earlier tokens than the one the cache was made with; keep that one"
        )
    return real[:, seen:]


def _same(given: Tensor, kept: Tensor | None) -> bool:
    return bool(given.all()) if kept is None else torch.equal(given, kept)
