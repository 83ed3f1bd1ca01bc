# trf-ignore: TRF028 - it wants the header of Hugging Face's own repository; LICENSE covers this file
# trf-ignore: TRF057 (below) - @auto_docstring knows only the models of that repository, and would write "a None model"
"""The models of `sympformer.models` as Hugging Face models: a wrapper around the same modules, for all variants."""

from collections.abc import Callable
from typing import Any, ClassVar, cast
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint
from transformers import GenerationMixin, PreTrainedModel
from transformers import initialization as init
from transformers.generation import GenerationMode
from transformers.modeling_outputs import BaseModelOutputWithPast, CausalLMOutputWithPast
from transformers.utils import can_return_tuple

from sympformer import ops
from sympformer.errors import InputError
from sympformer.hf.adapters import check_adapters
from sympformer.hf.cache import Mark, SympFormerCache
from sympformer.hf.configuration_sympformer import SympFormerConfig
from sympformer.hf.inputs import check_names, given_of, is_packed
from sympformer.models import NOTHING, Cache, Decoder, Given, LanguageModel, build_model
from sympformer.models.model import Head
from sympformer.nn import LearnedScalars, Norm, Projection, RMSNorm, State, View
from sympformer.nn.fast import Program

# Beside the caches, not in them: a cache is copied and sent about, a decoder holds the model.
DECODERS: WeakKeyDictionary[SympFormerCache, Decoder] = WeakKeyDictionary()


# trf-ignore: TRF057
class SympFormerPreTrainedModel(PreTrainedModel):
    """Loading, saving and starting weights."""

    config: SympFormerConfig
    config_class = SympFormerConfig
    base_model_prefix = "model"
    supports_gradient_checkpointing = True
    # trf-ignore: TRF022 - the layers are those of sympformer.nn.dynamics
    _no_split_modules: ClassVar = ["Classical", "Nesterov", "Hamiltonian"]  # type: ignore[misc]
    _skip_keys_device_placement: ClassVar = ["past_key_values"]  # type: ignore[misc]
    # a step size of 0.05 in bfloat16 has three digits, and the clock adds them up
    _keep_in_fp32_modules_strict: ClassVar = ["scalars"]  # type: ignore[misc]

    @classmethod
    def from_pretrained(cls, *args: Any, use_safetensors: bool | None = True, **kwargs: Any) -> Any:
        """As in transformers, from .safetensors only: loading a model never unpickles."""
        if use_safetensors is False:
            raise InputError(
                "sympformer loads .safetensors only, as a pickled file can run code; leave use_safetensors"
            )
        return super().from_pretrained(*args, use_safetensors=True, **kwargs)

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        """Start a module's own parameters as `sympformer.nn` does; those that were loaded stay as they are."""
        if isinstance(module, LearnedScalars):
            for name, parameter in module.named_parameters(recurse=False):
                init.copy_(parameter, module.start(name))  # type: ignore[arg-type]
        elif isinstance(module, Projection) and module.identity:
            init.eye_(module.weight)
        elif isinstance(module, Projection):
            init.normal_(module.weight, std=module.std)
        elif isinstance(module, Norm | RMSNorm):
            init.constant_(module.weight, module.gain)
        else:
            super()._init_weights(module)

    def _resize_token_embeddings(self, *args: Any, **kwargs: Any) -> nn.Module:
        embeddings = super()._resize_token_embeddings(*args, **kwargs)
        body = cast(LanguageModel, self.base_model.body)
        size = len(embeddings.weight)
        if body.token_momenta is not None:
            self._get_resized_embeddings(body.token_momenta, size)
        body.cfg = body.cfg.replace(vocab_size=size)
        return embeddings

    def _set_gradient_checkpointing(
        self, enable: bool = True, gradient_checkpointing_func: Callable[..., Any] = checkpoint, every_n_layers: int = 1
    ) -> None:
        if getattr(gradient_checkpointing_func, "keywords", {}).get("use_reentrant"):
            raise InputError("use_reentrant = True loses gradients between these layers; set it to False, or leave it")
        super()._set_gradient_checkpointing(enable, gradient_checkpointing_func, every_n_layers)
        cast(SympFormerModel, self.base_model).checkpoint_every = every_n_layers


# trf-ignore: TRF057
class SympFormerModel(SympFormerPreTrainedModel):
    """Token ids to hidden states. `body` is the `LanguageModel`; the head, tied or not, belongs to the causal model."""

    def __init__(self, config: SympFormerConfig) -> None:
        super().__init__(config)
        self.body = build_model(config.to_model_config().replace(tie_head=True))
        self.causal = self.body.cfg.causal
        self.gradient_checkpointing = False
        self.checkpoint_every = 1
        self.post_init()

    def get_input_embeddings(self) -> nn.Module:
        return self.body.tokens

    def set_input_embeddings(self, value: nn.Module) -> None:
        self.body.tokens = value  # type: ignore[assignment]

    # trf-ignore: TRF057
    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        past_key_values: SympFormerCache | None = None,
        inputs_embeds: Tensor | None = None,
        use_cache: bool | None = None,
        **kwargs: Any,
    ) -> BaseModelOutputWithPast:
        """input_ids (B, T) or inputs_embeds (B, T, d), attention_mask (B, T) with zeros at padding, anywhere in a row
        (with a cache: of all columns so far). position_ids (B, T): places other than those that follow from the mask;
        where they start again at 0 and there is no mask, a new text begins, which sees nothing of the others.

        Hidden states are zero at padding. Without gradients a cache is made and returned unless use_cache is False;
        with gradients, only if it is True. output_hidden_states: the embedding, then every layer, the last normalised.
        """
        collect = kwargs.pop("output_hidden_states", None)
        collect = bool(self.config.output_hidden_states if collect is None else collect)
        position_ids = kwargs.pop("position_ids", None)
        check_names(kwargs)
        tokens = input_ids if inputs_embeds is None else inputs_embeds
        if tokens is None or tokens.ndim < 2 or (input_ids is not None and inputs_embeds is not None):
            raise InputError("give input_ids of shape (batch, tokens), or inputs_embeds in their place")
        if torch.is_grad_enabled() and self.training:
            check_adapters(self.body)
        if past_key_values is None and use_cache is None and is_packed(position_ids, attention_mask):
            use_cache = False  # several texts in a row: which of them would go on?
        cache = self._cache(past_key_values, use_cache)
        given = given_of((tokens.shape[0], tokens.shape[1]), attention_mask, position_ids, inputs_embeds, cache)
        if cache is None:
            states = self._states(input_ids, None, given, collect)
        else:
            states = self._continue(input_ids, tokens, cache, given, collect)
        return BaseModelOutputWithPast(
            last_hidden_state=cast(Any, states[-1]),  # transformers' own hints change between versions
            past_key_values=cache,
            hidden_states=cast(Any, tuple(states) if collect else None),
        )

    def _cache(self, given: object, use_cache: bool | None) -> SympFormerCache | None:
        """The cache to use: the one that was given, a new one, or none."""
        if given is not None and not isinstance(given, SympFormerCache):
            raise InputError(
                f"past_key_values must be a SympFormerCache, got {type(given).__name__};"
                " leave it out and the model makes its own"
            )
        wanted = use_cache if use_cache is not None else self.config.use_cache and not torch.is_grad_enabled()
        if self.gradient_checkpointing and self.training and (given is not None or use_cache):
            raise InputError("a cache and gradient checkpointing exclude each other; set use_cache = False")
        if given is not None:
            return given
        return SympFormerCache(self.config) if wanted and (use_cache or self.causal) else None

    def _states(self, ids: Tensor | None, memory: Cache | None, given: Given, collect: bool) -> list[Tensor]:
        """The hidden states of texts (B, T): the last, or with `collect` all of them. Zero at padding."""
        states: list[Tensor] = []

        def call(layer: Program, state: State, view: View, k: int) -> State:
            if collect:
                states.append(view.tokens(state.x))
            if self.gradient_checkpointing and self.training and k % self.checkpoint_every == 0:
                return self._gradient_checkpointing_func(layer, state, view)
            return layer(state, view)

        last = self.body.hidden(ids, memory, given, call)
        return [*states, last]

    def _decoder(self, cache: SympFormerCache, collect: bool) -> Decoder | None:
        """The fast way to continue the texts of a cache, while nothing learns and nobody watches."""
        if torch.is_grad_enabled() or self.training or collect:
            return None
        if cache not in DECODERS:
            DECODERS[cache] = Decoder(self.body)
        return DECODERS[cache]

    def _continue(
        self, ids: Tensor | None, tokens: Tensor, cache: SympFormerCache, given: Given, collect: bool
    ) -> list[Tensor]:
        """New columns through a cache."""
        memory, decoder = cache.admit(tokens, given.key_padding_mask), self._decoder(cache, collect)
        self._catch_up(cache, memory)
        states = [decoder.hidden(ids, memory, given)] if decoder else self._states(ids, memory, given, collect)
        cache.took_in(ids if given.position_ids is None else None)
        return states

    def _catch_up(self, cache: SympFormerCache, memory: Cache) -> None:
        """Take in again what a step back has lost, and mark the place if more such steps will follow."""
        if (waiting := cache.waiting) is not None:
            ids, real = waiting
            self.body.hidden(ids, memory, NOTHING if real is None else Given(key_padding_mask=~real))
        if cache.recording and cache.ids is not None and cache.mark is None and memory.length:
            cache.mark = Mark.of(memory)


# trf-ignore: TRF057
class SympFormerForCausalLM(SympFormerPreTrainedModel, GenerationMixin):
    """A language model with its head: logits, loss, `generate()`."""

    _tied_weights_keys: ClassVar = {"lm_head.weight": "model.body.tokens.weight"}  # type: ignore[misc]
    accepts_loss_kwargs = True

    def __init__(self, config: SympFormerConfig) -> None:
        super().__init__(config)
        self.model = SympFormerModel(config)
        self.lm_head = Head(config.hidden_size, config.vocab_size)
        self.post_init()

    # trf-ignore: TRF057
    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        past_key_values: SympFormerCache | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        use_cache: bool | None = None,
        logits_to_keep: int | Tensor | None = None,
        num_items_in_batch: Tensor | int | None = None,
        **kwargs: Any,
    ) -> CausalLMOutputWithPast:
        """As `SympFormerModel`, and with `labels` (B, T) the loss: column t predicts label t + 1, -100 does not count.

        In training with labels the logits are neither made nor returned unless `logits_to_keep` asks for them: 0 for
        all columns, n for the last n. num_items_in_batch: divide the summed loss by it instead of taking the mean.
        """
        if labels is not None and use_cache is None:
            use_cache = False
        outputs = self.model(
            input_ids, attention_mask, past_key_values, inputs_embeds, use_cache, return_dict=True, **kwargs
        )
        hidden = outputs.last_hidden_state
        loss = None if labels is None else self._loss(hidden, labels, attention_mask, num_items_in_batch)
        logits = None
        if logits_to_keep is not None or loss is None or not self.training:
            kept = logits_to_keep if logits_to_keep is not None else 0
            logits = self.lm_head(hidden[:, -kept:] if isinstance(kept, int) else hidden[:, kept])
        return CausalLMOutputWithPast(
            loss=cast(Any, loss),
            logits=logits,
            past_key_values=outputs.past_key_values,
            hidden_states=outputs.hidden_states,
        )

    def _loss(self, hidden: Tensor, labels: Tensor, mask: Tensor | None, n_items: Tensor | int | None) -> Tensor:
        """The shifted cross-entropy, a few rows of logits at a time. Padding predicts nothing."""
        if labels.shape != hidden.shape[:2]:
            raise InputError(
                f"labels must have the shape of input_ids, {tuple(hidden.shape[:2])}, not {tuple(labels.shape)}"
            )
        targets = F.pad(labels[:, 1:].to(hidden.device), (0, 1), value=-100)
        if mask is not None:
            targets = targets.masked_fill(mask[:, -targets.shape[1] :] == 0, -100)
        n_counted = (targets != -100).sum()
        if n_items is not None and n_counted == 0:
            return hidden.sum() * 0  # the mean of nothing is nan, but a share of the other batches' items is zero
        # the head's matrix can be read only while the head is nothing but a matrix: no adapter, no quantisation
        if type(self.lm_head) in (Head, nn.Linear) and not hasattr(self.lm_head, "_hf_hook"):
            mean = ops.linear_cross_entropy(hidden, self.lm_head.weight, targets)
        else:
            mean = F.cross_entropy(self.lm_head(hidden).float().flatten(0, 1), targets.flatten())
        return mean if n_items is None else mean * n_counted / n_items

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
            raise InputError(f"cache_implementation = {kind!r} does not fit these layers; leave it out")
        mask = model_kwargs.get("attention_mask")
        if mask is not None and bool((mask[:, -1] == 0).any()):
            raise InputError("a batch to continue must be padded on the left; set tokenizer.padding_side = 'left'")
        padding = 0 if mask is None else int((mask == 0).sum(1).min())
        # candidates are tried together with the token that follows them
        needed = max_cache_length - padding + (generation_mode == GenerationMode.ASSISTED_GENERATION)
        if needed > self.config.max_position_embeddings:
            raise InputError(
                f"prompt and new tokens need {needed} places and the model has max_position_embeddings ="
                f" {self.config.max_position_embeddings}; ask for fewer with max_new_tokens"
            )
        if generation_config.use_cache is not False and model_kwargs.get("past_key_values") is None:
            model_kwargs["past_key_values"] = SympFormerCache(self.config)
            if generation_config.is_assistant:
                model_kwargs["past_key_values"].activate_past_recording()

    @classmethod
    def from_language_model(cls, model: LanguageModel, **config_fields: Any) -> "SympFormerForCausalLM":
        """A copy of a native model; `config_fields` such as eos_token_id go into the config."""
        own = cls(SympFormerConfig.from_model_config(model.cfg, **config_fields))
        own = own.to(device=model.tokens.weight.device, dtype=model.tokens.weight.dtype)  # type: ignore[call-arg]
        native = dict(model.state_dict())
        head = native.pop("head.weight", native["tokens.weight"])
        own.load_state_dict({f"model.body.{name}": value for name, value in native.items()} | {"lm_head.weight": head})
        return own.train(model.training)

    def to_language_model(self) -> LanguageModel:
        """The native model on the same parameters: what is learned in one is seen in the other."""
        with torch.device("meta"):
            native = build_model(self.config.to_model_config())
        state = dict(self.model.body.state_dict(keep_vars=True))
        if native.head is not None:
            state["head.weight"] = self.lm_head.weight
        native.load_state_dict(state, assign=True)
        return native.train(self.training)


__all__ = ["SympFormerForCausalLM", "SympFormerModel", "SympFormerPreTrainedModel"]
