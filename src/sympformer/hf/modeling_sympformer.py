# trf-ignore: TRF028 - it wants the header of Hugging Face's own repository; LICENSE covers this file
# trf-ignore: TRF057 (below) - @auto_docstring knows only the models of that repository, and would write "a None model"
"""The models of `sympformer.models` as Hugging Face models: a wrapper around the same modules, for all variants."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.modules import module as torch_modules
from torch.utils._pytree import tree_flatten, tree_unflatten
from torch.utils.checkpoint import checkpoint
from transformers import Cache as TransformersCache
from transformers import PreTrainedModel
from transformers import initialization as init
from transformers.modeling_layers import (
    GenericForQuestionAnswering,
    GenericForSequenceClassification,
    GenericForTokenClassification,
    GradientCheckpointingLayer,
)
from transformers.modeling_outputs import BaseModelOutputWithPast, CausalLMOutputWithPast
from transformers.utils import can_return_tuple

from sympformer import ops
from sympformer.errors import InputError
from sympformer.hf.cache import SympFormerCache, SympFormerGenerationMixin, adopted
from sympformer.hf.configuration_sympformer import SympFormerConfig
from sympformer.hf.inputs import Given, check_names, given_of, ids_of, is_packed, present, said_last
from sympformer.hf.peft import tell_peft
from sympformer.models import Cache, LanguageModel, build_model
from sympformer.models.model import Head
from sympformer.nn import Channels, Layer, Matrix, Norm, Projection, RMSNorm, Scalars, State, View


def untouched(module: nn.Module) -> bool:
    """Whether calling a module runs its class's own forward and nothing else, on weights that are there.

    Hooks, a replaced forward (patches, offloading) and weights that are not materialised want the plain way.
    """
    listened = module._forward_hooks or module._forward_pre_hooks or module._backward_hooks
    anywhere = torch_modules._global_forward_hooks or torch_modules._global_forward_pre_hooks
    there = all(parameter is None or not parameter.is_meta for parameter in module._parameters.values())
    return not listened and not anywhere and "forward" not in vars(module) and there


# trf-ignore: TRF057
class SympFormerPreTrainedModel(PreTrainedModel):
    """Loading, saving and starting weights."""

    config: SympFormerConfig
    config_class = SympFormerConfig
    base_model_prefix = "model"
    supports_gradient_checkpointing = True
    _can_compile_fullgraph = False  # there is no static cache
    _supports_sdpa = True  # and means the same as "eager": there is one attention path, flash kernels with their lse
    # trf-ignore: TRF022 - the layer is that of sympformer.nn
    _no_split_modules: ClassVar = ["Layer"]  # type: ignore[misc]
    _skip_keys_device_placement: ClassVar = ["past_key_values"]  # type: ignore[misc]
    # a step size of 0.05 in bfloat16 has three digits, and the clock adds them up
    _keep_in_fp32_modules_strict: ClassVar = ["scalars"]  # type: ignore[misc]

    def post_init(self) -> None:
        super().post_init()
        if not any("scalars" in name.split(".") for name, _ in self.named_parameters()):
            # layers that learn no scalars have nothing to keep
            vars(self)["_keep_in_fp32_modules_strict"] = set()
        tell_peft()

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
        if isinstance(module, Scalars):
            for name, parameter in module.named_parameters(recurse=False):
                init.copy_(parameter, module.start(name))
        elif isinstance(module, Projection | Matrix | Norm | RMSNorm | Channels):
            module.reset_parameters()  # by torch's functions, which transformers keeps from loaded weights
        else:
            super()._init_weights(module)

    def _resize_token_embeddings(self, *args: Any, **kwargs: Any) -> nn.Module:
        embeddings = super()._resize_token_embeddings(*args, **kwargs)
        body = cast(LanguageModel, self.base_model.body)
        size = len(embeddings.weight)
        for table in (body.token_momenta, body.second_tokens):
            if table is not None:
                self._get_resized_embeddings(table, size)
        body.cfg = body.cfg.replace(vocab_size=size)
        return embeddings

    def get_position_embeddings(self) -> nn.Embedding:
        table: Any = cast(LanguageModel, self.base_model.body).positions
        if not isinstance(table, nn.Embedding):
            raise InputError("only positions = 'learned' have a table; others take any place as it is")
        return table

    def resize_position_embeddings(self, new_num_position_embeddings: int) -> None:
        """Another context length. Places keep their vectors, new ones start afresh; turns need no table."""
        body, room = cast(LanguageModel, self.base_model.body), new_num_position_embeddings
        tables: list[Any] = [body.positions, body.position_momenta]
        for table in tables:
            if isinstance(table, nn.Embedding):
                self._get_resized_embeddings(table, room, mean_resizing=False)
        body.cfg = body.cfg.replace(block_size=room)
        self.config.max_position_embeddings = room

    def _set_gradient_checkpointing(  # type: ignore[override]  # options: older versions have others
        self, enable: bool = True, gradient_checkpointing_func: Callable[..., Any] = checkpoint, **options: Any
    ) -> None:
        """As in transformers; where torch's own function is not told how, it takes the way it recommends."""
        func = gradient_checkpointing_func
        if getattr(func, "func", func) is checkpoint and "use_reentrant" not in getattr(func, "keywords", {}):
            func = partial(func, use_reentrant=False)
        super()._set_gradient_checkpointing(enable, func, **options)


class TimeStep(GradientCheckpointingLayer):
    """A layer as transformers checkpoints it: tensors in, tensors out. It holds nothing of its own."""

    def run(self, layer: Layer, state: State, view: View, constants: Any) -> State:
        """The layer, forgotten and computed anew in the backward pass."""
        leaves, before = tree_flatten((state, view.second, constants))  # all that gradients go back to
        after = before

        def call(*leaves: Any) -> tuple[Any, ...]:
            nonlocal after
            given, second, own = tree_unflatten(leaves, before)
            new, after = tree_flatten(layer(given, view._replace(second=second), own))
            return tuple(new)

        leaves = self(call, *leaves)
        return cast(State, tree_unflatten(leaves, after))

    def forward(self, call: Callable[..., tuple[Any, ...]], *leaves: Any) -> tuple[Any, ...]:
        return call(*leaves)


class Watch(NamedTuple):
    """What somebody wants to see of the layers: lists to fill, None where nobody asks."""

    hidden: list[Tensor] | None = None
    momenta: list[Tensor] | None = None
    kernels: list[Tensor] | None = None

    def note(self, state: State, view: View) -> State:
        """Note a state; what was noted is what the layer gets, so that gradients reach it."""
        if self.hidden is not None:
            state = state._replace(x=view.tokens(state.x))
            self.hidden.append(state.x)
        if self.momenta is not None:
            state = state._replace(y=view.tokens(state.y))
            self.momenta.append(state.y)
        return state


WATCHED = ("output_hidden_states", "output_momenta", "output_attentions")  # as in `Watch`


# trf-ignore: TRF057
@dataclass
class SympFormerOutput(BaseModelOutputWithPast):
    """The usual output, and with output_momenta the momenta beside the hidden states."""

    momenta: tuple[Tensor, ...] | None = None


# trf-ignore: TRF057
@dataclass
class SympFormerCausalLMOutput(CausalLMOutputWithPast):
    """The same of a language model."""

    momenta: tuple[Tensor, ...] | None = None


# trf-ignore: TRF057
class SympFormerModel(SympFormerPreTrainedModel):
    """Token ids to hidden states. `body` is the `LanguageModel`; the head, tied or not, belongs to the causal model."""

    def __init__(self, config: SympFormerConfig) -> None:
        super().__init__(config)
        self.body = build_model(config.to_model_config().replace(tie_head=True))
        self.causal = self.body.cfg.causal
        self.steps = nn.ModuleList(TimeStep() for _ in range(config.num_hidden_layers))
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
        position_ids: Tensor | None = None,
        past_key_values: TransformersCache | None = None,
        inputs_embeds: Tensor | None = None,
        use_cache: bool | None = None,
        **kwargs: Any,
    ) -> SympFormerOutput:
        """input_ids (B, T) or inputs_embeds (B, T, d). attention_mask: (B, T) with zeros at padding, anywhere in a row
        (with a cache: of all columns so far), or (B, 1, T, S), what every token sees of all columns.
        position_ids (B, T): places other than those that follow from the mask; where they start again at 0 and there is
        no mask, a new text begins, which sees nothing of the others.

        Hidden states are zero at padding. output_hidden_states: the embedding, then every layer, the last normalised;
        output_momenta: the momenta beside them; output_attentions: the kernel (B, H, T, S) of every layer.
        """
        asked = ((name, kwargs.pop(name, None)) for name in WATCHED)  # by argument, or else by config
        wanted = (getattr(self.config, name, False) if answer is None else answer for name, answer in asked)
        watch = Watch(*([] if each else None for each in wanted))
        check_names(kwargs, position_ids)
        tokens = input_ids if inputs_embeds is None else inputs_embeds
        if tokens is None or tokens.ndim < 2:
            raise InputError("give input_ids of shape (batch, tokens), or inputs_embeds in their place or beside them")
        if past_key_values is None and use_cache is None and self._is_final(position_ids, attention_mask):
            use_cache = False
        cache = self._cache(past_key_values, use_cache)
        given = given_of((tokens.shape[0], tokens.shape[1]), attention_mask, position_ids, inputs_embeds, cache)
        if cache is None:
            last = self._states(input_ids, None, given, watch)
        else:
            last = self._continue(input_ids, tokens, cache, given, watch)
        if watch.hidden is not None:
            watch.hidden.append(last)
        hidden, momenta, kernels = (cast(Any, None if seen is None else tuple(seen)) for seen in watch)
        last = cast(Any, last)  # transformers' own hints change between versions
        return SympFormerOutput(last, cache, hidden, kernels, momenta)

    def _is_final(self, position_ids: Tensor | None, attention_mask: Tensor | None) -> bool:
        """Whether a text cannot go on: rows hold several, or a memory of sums would have to hide some of them."""
        masked = attention_mask is not None and attention_mask.ndim == 4
        return is_packed(position_ids, attention_mask) or (masked and not self.body.new_memories()[0].croppable)

    def new_cache(self) -> SympFormerCache:
        """An empty cache, of all layers even where the config asks for fewer (an early exit)."""
        return SympFormerCache(self.config, self.body.cfg.n_layer)

    def _cache(self, given: TransformersCache | None, use_cache: bool | None) -> SympFormerCache | None:
        """The cache to use: the one that was given, a new one, or none."""
        checkpointed = self.training and any(step.gradient_checkpointing for step in self.steps)
        if checkpointed and (given is not None or use_cache):
            raise InputError("a cache and gradient checkpointing exclude each other; set use_cache = False")
        if given is not None:
            return adopted(given, self.config)
        wanted = use_cache if use_cache is not None else self.config.use_cache and self.causal and not checkpointed
        return self.new_cache() if wanted else None

    def _states(
        self, ids: Tensor | None, memory: Cache | None, given: Given, watch: Watch, constants: list[Any] | None = None
    ) -> Tensor:
        """The last hidden states of texts (B, T). Zero at padding."""
        depth, body = self.config.num_hidden_layers, self.body

        def call(layer: Layer, state: State, view: View, own: Any, k: int) -> State:
            if k >= depth:  # an early exit, as assisted decoding asks for it
                return state
            state = watch.note(state, view)
            step: Any = self.steps[k]
            view = view._replace(kernels=watch.kernels)
            state = step.run(layer, state, view, own) if step.gradient_checkpointing else layer(state, view, own)
            if watch.momenta is not None and k + 1 == depth:
                watch.momenta.append(view.tokens(state.y))
            return state

        by_id = [table.weight for table in (body.second_tokens, body.token_momenta) if table is not None]
        if ids is None and given.inputs_embeds is not None and by_id:
            ids = ids_of(given.inputs_embeds, body.tokens.weight, by_id)
        return body.hidden(ids, memory, **given._asdict(), constants=constants, call=call)

    def _continue(
        self, ids: Tensor | None, tokens: Tensor, cache: SympFormerCache, given: Given, watch: Watch
    ) -> Tensor:
        """New columns through a cache, after it has taken in again what a step back has lost."""
        memory = cache.admit(tokens, given.key_padding_mask)
        if (waiting := cache.waiting) is not None:
            lost, real = waiting
            unseen = Watch(kernels=None if watch.kernels is None else [])
            self._states(lost, memory, Given(key_padding_mask=None if real is None else ~real), unseen)
        cache.set_mark()
        if torch.is_grad_enabled() or self.training or torch.compiler.is_compiling():
            cache.constants = None  # they may learn
        elif cache.constants is None:
            cache.constants = self.body.constants(numbers=True)
        last = self._states(ids, memory, given, watch, cache.constants)
        plain = given.inputs_embeds is None and given.position_ids is None and given.mask is None
        cache.took_in(ids if plain else None)
        return last


# trf-ignore: TRF057
class SympFormerForCausalLM(SympFormerPreTrainedModel, SympFormerGenerationMixin):
    """A language model with its head: logits, loss, `generate()`."""

    _tied_weights_keys: ClassVar = {"lm_head.weight": "model.body.tokens.weight"}  # type: ignore[misc]
    accepts_loss_kwargs = True
    _fsdp_plan: ClassVar = {"lm_head": "keep_full_weight"}  # type: ignore[misc]

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
        position_ids: Tensor | None = None,
        past_key_values: TransformersCache | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        use_cache: bool | None = None,
        logits_to_keep: int | Tensor | None = None,
        num_items_in_batch: Tensor | int | None = None,
        **kwargs: Any,
    ) -> SympFormerCausalLMOutput:
        """As `SympFormerModel`, and with `labels` (B, T) the loss: column t predicts label t + 1, -100 does not count.

        In training with labels the logits are neither made nor returned unless `logits_to_keep` asks for them: 0 for
        all columns, n for the last n, indices for these. shift_labels: labels that column t predicts.
        num_items_in_batch: divide the summed loss by it instead of taking the mean.
        """
        shift_labels = kwargs.pop("shift_labels", None)  # named above it would be a label that the Trainer waits for
        learning = labels is not None or shift_labels is not None
        if learning and use_cache is None:
            use_cache = False
        tokens = input_ids if inputs_embeds is None else inputs_embeds
        real = None if tokens is None else present(tokens.shape[1], attention_mask)
        outputs = self.model(
            input_ids,
            attention_mask,
            position_ids,
            past_key_values,
            inputs_embeds,
            use_cache,
            return_dict=True,
            **kwargs,
        )
        hidden, loss = outputs.last_hidden_state, None
        if learning:
            targets = self._targets(hidden, labels, shift_labels, real)
            loss = self._loss(hidden, targets, num_items_in_batch)
        logits = None
        if logits_to_keep is not None or loss is None or not self.training:
            kept, said = logits_to_keep if logits_to_keep is not None else 0, said_last(hidden, real)
            logits = self.lm_head(said[:, -kept:] if isinstance(kept, int) else said[:, kept])
        seen = outputs.past_key_values, outputs.hidden_states, outputs.attentions, outputs.momenta
        return SympFormerCausalLMOutput(cast(Any, loss), logits, *seen)

    def _targets(self, hidden: Tensor, labels: Tensor | None, shifted: Tensor | None, real: Tensor | None) -> Tensor:
        """What every column (B, T) predicts. Padding predicts nothing."""
        name, given = ("labels", cast(Tensor, labels)) if shifted is None else ("shift_labels", shifted)
        if given.shape != hidden.shape[:2]:
            raise InputError(
                f"{name} must have the shape of input_ids, {tuple(hidden.shape[:2])}, not {tuple(given.shape)}"
            )
        targets = given.to(hidden.device)
        if shifted is None:
            targets = F.pad(targets[:, 1:], (0, 1), value=-100)
        return targets if real is None else targets.masked_fill(~real.to(targets.device), -100)

    def _loss(self, hidden: Tensor, targets: Tensor, n_items: Tensor | int | None) -> Tensor:
        """The cross-entropy, a few rows of logits at a time."""
        n_counted = (targets != -100).sum()
        if n_items is not None and n_counted == 0:
            return hidden.sum() * 0  # the mean of nothing is nan, but a share of the other batches' items is zero
        # the head's matrix can be read only while the head is nothing but a matrix: no adapter, no hook, no offloading
        if type(self.lm_head) in (Head, nn.Linear) and untouched(self.lm_head):
            mean = ops.linear_cross_entropy(hidden, self.lm_head.weight, targets)
        else:
            mean = F.cross_entropy(self.lm_head(hidden).float().flatten(0, 1), targets.flatten())
        return mean if n_items is None else mean * n_counted / n_items

    @classmethod
    def from_language_model(cls, model: LanguageModel, **config_fields: Any) -> "SympFormerForCausalLM":
        """A copy of a native model; `config_fields` such as eos_token_id go into the config."""
        own = cls(SympFormerConfig.from_model_config(model.cfg, **config_fields))
        own = own.to(device=model.tokens.weight.device, dtype=model.tokens.weight.dtype)  # type: ignore[call-arg]
        state = {f"model.body.{n}": value for n, value in model.state_dict().items() if n != "head.weight"}
        own.load_state_dict(state | {"lm_head.weight": model.head_weight})
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


class SympFormerForSequenceClassification(GenericForSequenceClassification, SympFormerPreTrainedModel):
    """A class for every text, said at its last token."""


class SympFormerForTokenClassification(GenericForTokenClassification, SympFormerPreTrainedModel):
    """A class for every token."""


class SympFormerForQuestionAnswering(GenericForQuestionAnswering, SympFormerPreTrainedModel):
    """Where an answer begins and ends in a text."""

    def get_input_embeddings(self) -> nn.Module:
        return cast(SympFormerPreTrainedModel, self.base_model).get_input_embeddings()

    def set_input_embeddings(self, value: nn.Module) -> None:
        cast(SympFormerPreTrainedModel, self.base_model).set_input_embeddings(value)


__all__ = ["SympFormerForCausalLM", "SympFormerModel", "SympFormerPreTrainedModel"]
