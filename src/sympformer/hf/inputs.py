"""What may be given to a model: token ids and a mask of their padding. All else is refused in words."""

from typing import Any

from torch import Tensor

from sympformer.errors import InputError, unknown_name
from sympformer.hf.cache import SympFormerCache
from sympformer.hf.padding import Span, spans_of

# arguments that other models take, and why these do not
REFUSED = {
    "position_ids": "places follow from the padding, and texts cannot be packed into one row",
    "output_attentions": "attention is computed without its matrix",
    "token_type_ids": "there is one type; set tokenizer.model_input_names = ['input_ids', 'attention_mask']",
}
KNOWN = (
    "attention_mask",
    "input_ids",
    "labels",
    "logits_to_keep",
    "output_hidden_states",
    "past_key_values",
    "use_cache",
)


def only_ids(input_ids: Tensor | None, inputs_embeds: Tensor | None, others: dict[str, Any]) -> Tensor:
    """The token ids, after everything a model of this kind cannot honour was refused."""
    if inputs_embeds is not None or input_ids is None:
        raise InputError("give input_ids: a text starts with positions and momenta, which inputs_embeds leaves out")
    if input_ids.ndim != 2 or input_ids.shape[1] < 1:
        raise InputError(f"input_ids must have shape (batch, tokens), at least one token, got {tuple(input_ids.shape)}")
    for name, value in others.items():
        if name not in REFUSED:
            raise unknown_name("argument", name, KNOWN)
        if value is not None and value is not False:
            raise InputError(f"{name} is not supported: {REFUSED[name]}")
    return input_ids


def new_spans(ids: Tensor, mask: Tensor | None, cache: SympFormerCache | None) -> list[Span] | None:
    """Where the tokens of the new columns `ids` (B, T) are; None when they are everywhere."""
    if mask is None:
        return None
    seen = 0 if cache is None else cache.seen
    whole = (len(ids), seen + ids.shape[1])
    if mask.shape != whole:
        raise InputError(
            f"attention_mask must cover all columns, those in the cache too: {whole}, got {tuple(mask.shape)}"
        )
    if cache is not None and seen and bool(((mask[:, :seen] != 0).sum(1) != cache.lengths()).any()):
        raise InputError(
            "attention_mask hides other earlier tokens than the one the cache was made with; keep that one"
        )
    return spans_of(mask[:, seen:])
