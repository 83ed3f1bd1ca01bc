"""The memory of a model as `generate()` wants it: rows of different lengths, beams, steps back.

It is a `sympformer.models.Cache` of all columns, padding included, as `generate()` counts them.

Going back is exact. Softmax attention drops the last keys and values. A memory that cannot forget single tokens, such
as the state of linear attention, goes back to a mark (or to the start): the cache keeps the token ids, and those after
the mark are taken in again by the next call.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor
from transformers import Cache as TransformersCache
from transformers import DynamicCache
from transformers.cache_utils import LinearAttentionLayer

from sympformer.errors import InputError
from sympformer.hf.configuration_sympformer import SympFormerConfig
from sympformer.models import Cache
from sympformer.nn import ATTENTIONS, Memory


@dataclass
class Mark:
    """What the layers remembered after `length` columns."""

    length: int
    layers: list[Memory]

    @classmethod
    def of(cls, memory: Cache) -> "Mark":
        return cls(memory.length, [layer.copy() for layer in memory.layers])

    def select(self, index: Tensor) -> None:
        """Keep and reorder rows of the batch."""
        for layer in self.layers:
            layer.select(index)


class KeysValues(NamedTuple):
    """What a layer of softmax attention remembers, (B, H, t, d/H), averaged heads side by side."""

    keys: Tensor
    values: Tensor

    @classmethod
    def of(cls, memory: Any, width: int) -> "KeysValues":
        pair = memory.kept["pairs"].rows.chunk(2, 1)  # (B, G, t, c) each
        keys, values = (t.transpose(1, 2).flatten(2).unflatten(2, (-1, width)).transpose(1, 2) for t in pair)
        return cls(keys, values)


def state_of(memory: Any) -> LinearAttentionLayer:
    """What a layer of linear attention remembers: the state (B, H, d, d), and no convolution."""
    layer, state = LinearAttentionLayer(), memory.state
    layer.recurrent_states[0], layer.conv_states[0] = state, state.new_empty(len(state), 0, 0)
    layer.is_recurrent_states_initialized[0] = layer.has_previous_state[0] = True
    return layer


class SympFormerCache(DynamicCache):
    """What `generate()` hands from call to call; it grows with the text. Make one with `SympFormerCache(model.config)`,
    or let it be made."""

    def __init__(self, config: SympFormerConfig, n_layer: int | None = None) -> None:
        self.memory: Cache | None = None
        TransformersCache.__init__(self, layers=[])
        cfg = config.to_model_config()
        if not cfg.causal:
            raise InputError("a model with full visibility cannot continue a text from a cache; use use_cache = False")
        self.n_layer = cfg.n_layer if n_layer is None else n_layer
        self.width = cfg.d_head
        self.limit, self.kind = cfg.block_size, ATTENTIONS[cfg.attention].memory
        self.ids: Tensor | None = None  # (B, columns): kept where tokens cannot be forgotten
        self.real: Tensor | None = None  # (B, columns), False at padding; None: every column is a token
        self.mark: Mark | None = None
        self.recording = False

    @property
    def seen(self) -> int:
        """Columns so far: padding included, and those that wait to be taken in again."""
        if self.memory is None:
            return 0
        return self.memory.length if self.ids is None else self.ids.shape[1]

    def admit(self, like: Tensor, padding: Tensor | None) -> Cache:
        """The memory that new columns (B, T) will go to, after they were found to fit."""
        B, T = like.shape[:2]
        if self.memory is not None and self.batch_size != B:
            raise InputError(f"the cache holds {self.batch_size} rows, got {B}")
        if self.seen + T > self.limit:
            past = self.seen if self.real is None else self.real.sum(1)
            needed = int(torch.as_tensor(past + (T if padding is None else (~padding).sum(1))).max())
            if needed > self.limit:
                raise InputError(f"{needed} tokens exceed max_position_embeddings = {self.limit}; shorten the text")
        if self.memory is None:
            self.memory = self._new_memory(B)
            keep = not self.memory.layers[0].croppable
            self.ids = like.new_empty((B, 0), dtype=torch.long) if keep else None
        return self.memory

    def took_in(self, ids: Tensor | None) -> None:
        """Note that the memory now holds `ids` too; None where they would not be enough to take them in again."""
        assert self.memory is not None
        self.real = self.memory.real
        self.ids = None if ids is None or self.ids is None else torch.cat([self.ids, ids], 1)

    @property
    def waiting(self) -> tuple[Tensor, Tensor | None] | None:
        """Token ids (B, n) that the memory lost on the way back, and which of them are no padding."""
        if self.memory is None or self.ids is None or self.memory.length == self.ids.shape[1]:
            return None
        lost = slice(self.memory.length, None)
        return self.ids[:, lost], None if self.real is None else self.real[:, lost]

    def _new_memory(self, batch_size: int) -> Cache:
        return Cache(batch_size, [self.kind() for _ in range(self.n_layer)])

    def _forget(self, memory: Cache, length: int) -> None:
        """Go back to the first `length` columns."""
        if self.ids is None:
            memory.crop(length)
            self.real = memory.real
            return
        self.real = None if self.real is None else self.real[:, :length]
        self.ids = self.ids[:, :length]
        if memory.length > length:
            back = self._new_memory(memory.batch_size)
            if self.mark is not None and self.mark.length <= length:
                back.layers, back.length = self.mark.layers, self.mark.length
                back.real = None if self.real is None else self.real[:, : back.length]
            self.memory = back
        self.mark = None

    # What transformers asks of a cache.

    @property
    def layers(self) -> list[Any]:
        """Layer by layer, for those who look: keys and values of softmax attention, the state of linear attention."""
        if self.memory is None:
            return []
        return [KeysValues.of(m, self.width) if m.croppable else state_of(m) for m in self.memory.layers]

    @layers.setter
    def layers(self, none: list[Any]) -> None:
        """The base class starts with none."""

    def __len__(self) -> int:
        return self.n_layer

    def __repr__(self) -> str:
        return f"{type(self).__name__}(rows={self.batch_size}, columns={self.seen})"

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Columns so far, padding included."""
        return self.seen

    def get_max_length(self, layer_idx: int | None = None) -> int:
        """-1: no limit of its own."""
        return -1

    def get_mask_sizes(self, query_length: int, layer_idx: int) -> tuple[int, int]:
        """Columns of a mask for `query_length` more, and the first of them."""
        return self.seen + query_length, 0

    @property
    def batch_size(self) -> int:
        """Rows held, -1 before the first call."""
        return -1 if self.memory is None else self.memory.batch_size

    @property
    def is_initialized(self) -> bool:
        return self.memory is not None

    @property
    def is_compileable(self) -> bool:
        return False

    @property
    def is_sliding(self) -> list[bool]:
        return [False] * self.n_layer

    @property
    def is_croppable(self) -> bool:
        return True

    @property
    def nbytes(self) -> int:
        """Bytes held for attention."""
        return 0 if self.memory is None else self.memory.nbytes

    def reset(self) -> None:
        """Forget everything."""
        self.memory = self.ids = self.real = self.mark = None

    def activate_past_recording(self) -> None:
        """From now on steps back will follow: keep a mark between them, so that they cost little."""
        self.recording = True

    def is_recording_past(self, layer_idx: int) -> bool:
        return self.recording

    def crop(self, tokens_to_remove: int) -> None:
        """Drop the last columns; as in transformers their number comes with a minus."""
        if tokens_to_remove > 0:
            raise InputError(f"crop takes the number of columns to drop with a minus, got {tokens_to_remove}")
        if -tokens_to_remove > self.seen:
            raise InputError(f"cannot drop {-tokens_to_remove} columns of a cache that holds {self.seen}")
        if self.memory is not None:
            self._forget(self.memory, self.seen + tokens_to_remove)

    def batch_select_indices(self, indices: Tensor) -> None:
        """Row r becomes what row indices[r] was."""
        if self.memory is None:
            return
        self.memory.select(indices)
        self.ids = None if self.ids is None else self.ids[indices]
        self.real = None if self.real is None else self.real[indices]
        if self.mark is not None:
            self.mark.select(indices)

    def reorder_cache(self, beam_idx: Tensor) -> None:
        """Beams move between rows."""
        self.batch_select_indices(beam_idx)

    def batch_repeat_interleave(self, repeats: int) -> None:
        """Every row `repeats` times, copies side by side."""
        if self.memory is not None:
            self.batch_select_indices(torch.arange(self.batch_size).repeat_interleave(repeats))


def adopted(cache: TransformersCache, config: SympFormerConfig) -> SympFormerCache:
    """The cache that somebody handed in. An empty one of transformers' becomes one of ours, so that who goes on with
    the same object goes on with what was seen."""
    if isinstance(cache, SympFormerCache):
        return cache
    if type(cache) is not DynamicCache or cache.get_seq_length():
        raise InputError(
            "past_key_values must be a SympFormerCache, or an empty DynamicCache, got"
            f" {type(cache).__name__} with {int(cache.get_seq_length())} tokens; leave it out and the model makes one"
        )
    own = SympFormerCache(config)
    cache.__class__ = type(own)  # whoever handed it in goes on with it
    vars(cache).clear()
    vars(cache).update(vars(own))
    return cast(SympFormerCache, cache)
