"""What `generate()` of transformers is told of these models: their caches, their lengths, their places."""

from typing import Any

from transformers import GenerationMixin
from transformers.generation import GenerationMode
from transformers.utils import logging

from sympformer.errors import InputError
from sympformer.hf.cache import adopted
from sympformer.hf.configuration_sympformer import SympFormerConfig

logger = logging.get_logger(__name__)


class SympFormerGenerationMixin(GenerationMixin):
    """`generate()` with a cache of ours."""

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
        kind = generation_config.cache_implementation
        if kind not in (None, "dynamic"):
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
            model_kwargs["past_key_values"] = self.model.new_cache()
            if generation_config.is_assistant:
                model_kwargs["past_key_values"].activate_past_recording()

    def _prepare_generated_length(
        self, generation_config: Any, has_default_max_length: Any, *args: Any, **kwargs: Any
    ) -> Any:
        """Without a length a text goes on to its end or as far as the model sees."""
        if has_default_max_length and generation_config.max_new_tokens is None:
            room = self.config.max_position_embeddings - kwargs["inputs_tensor"].shape[1]
            generation_config.max_new_tokens = max(room, 0) + 1  # the last token takes no place
        before: Any = super()
        return before._prepare_generated_length(generation_config, has_default_max_length, *args, **kwargs)

    def _prepare_position_ids_for_generation(self, *args: Any, **kwargs: Any) -> Any:
        """None: places follow from the mask, also behind a text that is padded on the right."""
        return None
