"""The language model: embeddings, layers as time steps, final norm, head."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sympformer import ops
from sympformer.errors import InputError
from sympformer.models.cache import Cache
from sympformer.models.config import ModelConfig
from sympformer.models.describe import describe
from sympformer.models.generate import generate
from sympformer.nn import Embedding, Projection, Stack, State, View, grouped_parameters
from sympformer.nn.layer import Constants
from sympformer.nn.parts import dropout, norm
from sympformer.nn.positions import positions, with_positions
from sympformer.nn.stack import Call, call_layer
from sympformer.nn.view import check_seen, places_of, real_columns


@dataclass
class ModelOutput:
    """What a forward pass gives. `logits` are computed when asked for, so that training never holds them."""

    hidden: Tensor  # (B, T, d), after the final norm
    head: Tensor  # (V, d)
    loss: Tensor | None = None
    cache: Cache | None = None

    @property
    def logits(self) -> Tensor:
        """(B, T, V)."""
        return F.linear(self.hidden, self.head)


class Head(Projection):
    """The matrix of an untied head: a table of tokens, as the embedding is, and no map from features to features."""

    group = "embedding"


class LanguageModel(Stack):
    """GPT-2 shaped: token and position embeddings, `n_layer` blocks, final norm, (tied) head, no biases."""

    cfg: ModelConfig

    def __init__(self, cfg: ModelConfig) -> None:
        super().__init__(cfg)
        embedded, second = cfg.start_momentum == "embedded", cfg.second_table == "every_layer"
        self.tokens = Embedding(cfg.vocab_size, cfg.d_model)
        self.positions = positions(cfg)
        self.token_momenta = Embedding(cfg.vocab_size, cfg.d_model) if embedded else None
        self.position_momenta = positions(cfg) if embedded else None
        self.second_tokens = Embedding(cfg.vocab_size, cfg.d_model) if second else None
        self.make_blocks(second)
        self.norm = norm(cfg)
        self.head = None if cfg.tie_head else Head(cfg.d_model, cfg.vocab_size)

    @property
    def head_weight(self) -> Tensor:
        """The head's matrix (V, d): the token embedding when tied."""
        return self.tokens.weight if self.head is None else self.head.weight

    def forward(
        self,
        idx: Tensor | None,
        targets: Tensor | None = None,
        cache: Cache | None = None,
        key_padding_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        mask: Tensor | None = None,
    ) -> ModelOutput:
        """idx (B, T) token ids. With `targets` (B, T), -100 ignored, the mean cross-entropy in nats.

        With `cache` the T tokens continue the cached ones, and the cache takes them in. For the rest see `hidden`.
        """
        hidden = self.hidden(idx, cache, key_padding_mask, position_ids, inputs_embeds, mask)
        loss = None if targets is None else ops.linear_cross_entropy(hidden, self.head_weight, targets)
        return ModelOutput(hidden, self.head_weight, loss, cache)

    def hidden(
        self,
        idx: Tensor | None,
        cache: Cache | None = None,
        key_padding_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        mask: Tensor | None = None,
        constants: Sequence[Constants] | None = None,
        call: Call = call_layer,
    ) -> Tensor:
        """The last layer's positions after the final norm, (B, T, d); zero at padding.

        key_padding_mask: (B, T), True at padding, which nobody sees and which takes no place. position_ids: (B, T)
        places; by default a token's place among those of its row. inputs_embeds: (B, T, d) in place of the ids, or
        beside them where tables are asked by id (-1: of no token, the tables have nothing for it). mask: boolean
        (B, 1, T, S), True where a token sees a column of all so far: `same_text`. constants: what `Stack.constants`
        gave. `call` runs a layer, and may watch it.
        """
        B, T = self._check_input(idx, cache, position_ids, inputs_embeds)
        x = self.tokens(idx) if inputs_embeds is None else inputs_embeds
        start, dtype = 0 if cache is None else cache.length, self.tokens.weight.dtype
        real = real_columns(key_padding_mask, (B, T))
        columns = real if cache is None else cache.columns(T, real)
        places = self._places(start, T, columns, position_ids, x.device)
        seen = None if mask is None else check_seen(mask, (B, T, start + T))
        view = View.of(self.cfg.causal, start, T, x.device, dtype, columns, seen)
        known = inputs_embeds is None
        second = None if self.second_tokens is None else entries(self.second_tokens, idx, known)
        view = view._replace(rotation=self.positions.rotation(places, dtype), second=second)
        state, memories = self.embed(x, idx, places, known), None if cache is None else cache.layers
        state = self.advance(state, view, memories, constants, call)
        if cache is not None:
            cache.length, cache.real = start + T, columns
        return view.tokens(self.norm(state.x))

    def embed(self, x: Tensor, idx: Tensor | None, places: Tensor, known: bool = True) -> State:
        """Tokens of embeddings x (B, T, d) before the first layer, at their `places` (T,) or (B, T).

        known: whether each is one of the vocabulary's, of id >= 0.
        """
        x = dropout(with_positions(x, self.positions, places), self.cfg.dropout, self.training)
        if self.token_momenta is None or self.position_momenta is None:
            return self.start(x)
        return self.start(x, with_positions(entries(self.token_momenta, idx, known), self.position_momenta, places))

    def _places(self, start: int, T: int, columns: Tensor | None, given: Tensor | None, device: torch.device) -> Tensor:
        """The places of the last T columns in their texts, (T,) or (B, T): padding takes none."""
        room = self.cfg.block_size
        if given is None and columns is None:
            if start + T > room:
                raise self._too_long(start + T)
            return torch.arange(start, start + T, device=device)
        places = given
        if places is None:
            assert columns is not None
            places = places_of(columns)[:, -T:]
        unsure = given is not None or start + T > room
        if unsure and not torch.compiler.is_compiling() and (last := int(places.max())) >= room:
            raise self._too_long(last + 1)
        return places

    def new_cache(self, batch_size: int) -> Cache:
        """An empty memory for `batch_size` texts; hand it to successive calls, in chunks of any size."""
        if not self.cfg.causal:
            raise InputError("a model with full visibility cannot continue a text from a cache; set causal = True")
        if batch_size < 1:
            raise InputError(f"batch_size must be at least 1, got {batch_size}")
        return Cache(batch_size, self.new_memories())

    generate = generate

    def parameter_groups(self) -> dict[str, list[nn.Parameter]]:
        """Every parameter once, by optimizer group: matrix, embedding, gain, scalar."""
        return grouped_parameters(self)

    describe = describe

    def _check_input(
        self, idx: Tensor | None, cache: Cache | None, places: Tensor | None, embedded: Tensor | None
    ) -> tuple[int, int]:
        """Rows and columns of the input, after it was found to be of a fit form."""
        if idx is None and embedded is None:
            raise InputError("give token ids or inputs_embeds")
        if idx is not None and (idx.ndim != 2 or idx.shape[1] < 1):
            raise InputError(f"token ids must have shape (batch, tokens), at least one token, got {tuple(idx.shape)}")
        if idx is None and (self.second_tokens is not None or self.token_momenta is not None):
            raise InputError("a second table of tokens is asked by id: give the token ids beside inputs_embeds")
        if embedded is not None:
            fits = embedded.ndim == 3 and embedded.shape[1] >= 1 and embedded.shape[2] == self.cfg.d_model
            if not fits or (idx is not None and idx.shape != embedded.shape[:2]):
                wanted = f"(batch, tokens, d_model = {self.cfg.d_model}), at least one token"
                raise InputError(f"inputs_embeds must have shape {wanted}, got {tuple(embedded.shape)}")
        B, T = (idx if embedded is None else embedded).shape[:2]  # type: ignore[union-attr]
        if places is not None and (places.shape not in ((B, T), (1, T)) or places.dtype != torch.long):
            raise InputError(
                f"position_ids must be integers of shape {(B, T)}, got {places.dtype} {tuple(places.shape)}"
            )
        if cache is not None and cache.batch_size != B:
            raise InputError(f"the cache holds {cache.batch_size} texts, got {B}")
        return B, T

    def _too_long(self, n: int) -> InputError:
        return InputError(
            f"{n} tokens exceed block_size = {self.cfg.block_size}; shorten the text, or generate with"
            " overflow = 'slide'"
        )


def entries(table: Embedding, idx: Tensor | None, known: bool) -> Tensor:
    """What a table says of tokens; zero of what is none."""
    assert idx is not None
    return table(idx) if known else table(idx.clamp_min(0)).masked_fill((idx < 0).unsqueeze(-1), 0)


def build_model(cfg: ModelConfig, seed: int | None = None) -> LanguageModel:
    """The model of a config, freshly started. With a seed the start is repeatable and global state untouched."""
    if seed is None:
        return LanguageModel(cfg)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return LanguageModel(cfg)
