"""Reading a text in chunks through a model's cache, where it has one."""

import inspect
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from sympformer.audit.checks import ChunkedLogits
from sympformer.errors import InputError
from sympformer.loading import find_logits, one_line


def chunked_logits(model: nn.Module, token: Tensor) -> ChunkedLogits | None:
    """The chunked pass of a model with `new_cache(batch_size)` and `cache=`, or with Hugging Face's `past_key_values`.

    None for a model without a cache. token: (1, 1) ids to try.
    """
    if hasattr(model, "new_cache"):
        return _wrapped(_own_pass, model)
    if {"past_key_values", "use_cache"} <= set(inspect.signature(model.forward).parameters):
        has_cache = getattr(model(token, use_cache=True), "past_key_values", None) is not None  # encoders have none
        return _wrapped(_hugging_face_pass, model) if has_cache else None
    return None


def _wrapped(read: Any, model: Any) -> ChunkedLogits:
    def chunked(idx: Tensor, sizes: Sequence[int]) -> Tensor:
        try:
            return torch.cat(read(model, idx.split(list(sizes), 1)), 1)
        except InputError:
            raise
        except Exception as error:
            raise InputError(f"the cache failed on chunks of {[*sizes][:6]} tokens: {one_line(error)}") from error

    return chunked


def _own_pass(model: Any, parts: Sequence[Tensor]) -> list[Tensor]:
    cache = model.new_cache(parts[0].shape[0])
    return [find_logits(model(part, cache=cache), part) for part in parts]


def _hugging_face_pass(model: Any, parts: Sequence[Tensor]) -> list[Tensor]:
    past, out = None, []
    for part in parts:
        output = model(part, past_key_values=past, use_cache=True)
        past = output.past_key_values
        out.append(find_logits(output, part))
    return out
