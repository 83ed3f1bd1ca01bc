"""The memory of a model as `generate()` wants it: rows of different lengths, beams, steps back.

It is a `sympformer.models.Cache` of all columns, padding included, as `generate()` counts them. Going back is exact.
Softmax attention drops the last keys and values. A memory that cannot forget single tokens, such as the state of linear
attention, goes back to a mark (or to the start): the cache keeps the token ids, and those after the mark are taken in
again by the next call.
"""

from typing import Any, NamedTuple, cast

import torch
from torch import Tensor
from transformers import Cache as TransformersCache
from transformers import DynamicCache, GenerationMixin
from transformers.cache_utils import LinearAttentionLayer
from transformers.generation import GenerationMode
from transformers.utils import logging

from sympformer.errors import InputError
from sympformer.hf.configuration_sympformer import SympFormerConfig
from sympformer.models import Cache
from sympformer.nn import ATTENTIONS

logger = logging.get_logger(__name__)


class KeysValues(NamedTuple):
    """What a layer of softmax attention remembers, (B, H, t, d/H), averaged heads side by side."""

    keys: Tensor
    values: Tensor


def remembered(memory: Any, width: int) -> Any:
    """What a layer remembers, for those who look: keys and values in heads of a `width`, or a state (B, H, d, d)."""
    if memory.croppable:
        pair = memory.kept["pairs"].rows.chunk(2, 1)  # (B, G, t, c) each
        return KeysValues(*(t.transpose(1, 2).flatten(2).unflatten(2, (-1, width)).transpose(1, 2) for t in pair))
    layer, state = LinearAttentionLayer(), memory.state
    layer.recurrent_states[0], layer.conv_states[0] = state, state.new_empty(len(state), 0, 0)  # no convolution
    layer.is_recurrent_states_initialized[0] = layer.has_previous_state[0] = True
    return layer


class SympFormerCache(DynamicCache):
    """What `generate()` hands from call to call; it grows with the text. Make one with `SympFormerCache(model.config)`,
    or let it be made."""

    is_compileable = False
    is_croppable = True

    def __init__(self, config: SympFormerConfig, n_layer: int | None = None) -> None:
        self.memory: Cache | None = None
        TransformersCache.__init__(self, layers=[])
        cfg = config.to_model_config()
        if not cfg.causal:
            raise InputError("a model with full visibility cannot continue a text from a cache; use use_cache = False")
        self.n_layer = cfg.n_layer if n_layer is None else n_layer
        self.width, self.limit, self.kind = cfg.d_head, cfg.block_size, ATTENTIONS[cfg.attention].memory
        self.ids: Tensor | None = None  # (B, columns): kept where tokens cannot be forgotten
        self.real: Tensor | None = None  # (B, columns), False at padding; None: every column is a token
        self.mark: Cache | None = None  # the memory as it once was
        self.recording = False
        self.constants: Any = None  # what depends on weights alone, worked out once a text

    def __getstate__(self) -> dict[str, Any]:
        """A cache that is copied or sent about leaves behind what the model can work out again."""
        return vars(self) | {"constants": None}

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
            if not self.memory.layers[0].croppable:
                self.ids = like.new_empty((B, 0), dtype=torch.long)
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

    def set_mark(self) -> None:
        """Where steps back will follow, keep what the memory holds now."""
        if self.recording and self.ids is not None and self.mark is None and self.memory is not None:
            self.mark = self.memory.copy() if self.memory.length else None

    def _new_memory(self, batch_size: int) -> Cache:
        return Cache(batch_size, [self.kind() for _ in range(self.n_layer)])

    # What transformers asks of a cache.

    @property
    def layers(self) -> list[Any]:
        """Layer by layer, for those who look: keys and values of softmax attention, the state of linear attention."""
        return [] if self.memory is None else [remembered(memory, self.width) for memory in self.memory.layers]

    @layers.setter
    def layers(self, none: list[Any]) -> None:
        """The base class starts with none."""

    def __len__(self) -> int:
        return self.n_layer

    def __repr__(self) -> str:
        return f"{type(self).__name__}(rows={self.batch_size}, columns={self.seen})"

    def get_seq_length(self, layer_idx: int = 0) -> int:
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
    def is_sliding(self) -> list[bool]:
        return [False] * self.n_layer

    @property
    def nbytes(self) -> int:
        return 0 if self.memory is None else self.memory.nbytes

    def reset(self) -> None:
        self.memory = self.ids = self.real = self.mark = self.constants = None

    def activate_past_recording(self) -> None:
        """From now on steps back will follow: keep a mark between them, so that they cost little."""
        self.recording = True

    def is_recording_past(self, layer_idx: int) -> bool:
        return self.recording

    def crop(self, tokens_to_remove: int) -> None:
        """Drop the last columns; as in transformers their number comes with a minus."""
        if tokens_to_remove > 0:
            raise InputError(f"crop takes the number of columns to drop with a minus, got {tokens_to_remove}")
        length, memory = self.seen + tokens_to_remove, self.memory
        if length < 0:
            raise InputError(f"cannot drop {-tokens_to_remove} columns of a cache that holds {self.seen}")
        if memory is None:
            return
        self.real = None if self.real is None else self.real[:, :length]
        if self.ids is None:
            memory.crop(length)
            return
        self.ids, back, self.mark = self.ids[:, :length], self.mark, None
        if memory.length > length:
            self.memory = back if back is not None and back.length <= length else self._new_memory(memory.batch_size)
            self.memory.real = None if self.real is None else self.real[:, : self.memory.length]

    def batch_select_indices(self, indices: Tensor) -> None:
        """Row r becomes what row indices[r] was."""
        for memory in (self.memory, self.mark):
            if memory is not None:
                memory.select(indices)
        self.ids = None if self.ids is None else self.ids[indices]
        self.real = None if self.real is None else self.real[indices]

    def reorder_cache(self, beam_idx: Tensor) -> None:
        self.batch_select_indices(beam_idx)

    def batch_repeat_interleave(self, repeats: int) -> None:
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


class SympFormerGenerationMixin(GenerationMixin):
    """What `generate()` is told of these models: their caches, their lengths, their places."""

    config: SympFormerConfig
    model: Any

    def _prepare_cache_for_generation(  # type: ignore[override]
        self,
        generation_config: Any,
        model_kwargs: dict[str, Any],
        generation_mode: Any,
        batch_size: int,
        max_cache_length: int,
    ) -> None:
        """Put our cache into `model_kwargs`, and refuse what cannot end well before the first token is made."""
        if not self.model.causal:
            raise InputError("a model with full visibility cannot generate; train one with causal = True")
        if (kind := generation_config.cache_implementation) not in (None, "dynamic"):
            raise InputError(
                f"cache_implementation = {kind!r} does not fit these layers, whose cache grows; leave it out"
            )
        mask = model_kwargs.get("attention_mask")
        mask = mask if mask is not None and mask.ndim == 2 else None
        if generation_config.prefill_chunk_size and mask is not None and bool((mask[:, -1] == 0).any()):
            raise InputError(
                "a prompt taken in by chunks must be padded on the left: set tokenizer.padding_side = 'left'"
            )
        padding = 0 if mask is None else int((mask == 0).sum(1).min())
        # candidates are tried together with the token that follows them
        needed = max_cache_length - padding + (generation_mode == GenerationMode.ASSISTED_GENERATION)
        room = self.config.max_position_embeddings
        if needed > room:
            generation_config.max_length -= needed - room
            logger.warning_once(
                f"prompt and new tokens need {needed} places and the model has max_position_embeddings = {room}:"
                " texts end there; ask for fewer with max_new_tokens"
            )
        if (given := model_kwargs.get("past_key_values")) is not None:
            adopted(given, self.config)
        elif generation_config.use_cache is not False:
            model_kwargs["past_key_values"] = cache = self.model.new_cache()
            cache.recording = bool(generation_config.is_assistant)

    def _prepare_generated_length(
        self, generation_config: Any, has_default_max_length: Any, *args: Any, **kwargs: Any
    ) -> Any:
        """Without a length a text goes on to its end or as far as the model sees."""
        if has_default_max_length and generation_config.max_new_tokens is None:
            room = self.config.max_position_embeddings - kwargs["inputs_tensor"].shape[1]
            generation_config.max_new_tokens = max(room, 0) + 1  # the last token takes no place
        before: Any = super()
        return before._prepare_generated_length(generation_config, has_default_max_length, *args, **kwargs)

    def prepare_inputs_for_generation(
        self, input_ids: Any, *args: Any, inputs_embeds: Tensor | None = None, **kwargs: Any
    ) -> dict[str, Any]:
        """Ids that were given beside the embeddings of a prompt stay there."""
        before: Any = super()
        inputs = before.prepare_inputs_for_generation(input_ids, *args, inputs_embeds=inputs_embeds, **kwargs)
        embedded = inputs.get("inputs_embeds")
        if embedded is not None and embedded.shape[:2] == input_ids.shape:
            inputs["input_ids"] = input_ids
        return cast(dict[str, Any], inputs)

    def _prepare_position_ids_for_generation(self, *args: Any, **kwargs: Any) -> Any:
        """None: places follow from the mask, also behind a text that is padded on the right."""
        return None
