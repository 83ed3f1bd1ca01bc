"""The language model: embeddings, layers as time steps, final norm, head."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sympformer import ops
from sympformer.errors import InputError
from sympformer.models.cache import Cache, FixedCache
from sympformer.models.config import ModelConfig, Overflow
from sympformer.models.generate import Prompt, generate
from sympformer.models.lookup import entries, tokens_of
from sympformer.nn import Embedding, Projection, Stack, State, View, grouped_parameters
from sympformer.nn.fast import Program
from sympformer.nn.padding import check_seen, places_of, real_columns
from sympformer.nn.parts import dropout, norm
from sympformer.nn.positions import positions, with_positions
from sympformer.nn.stack import Call, call_layer


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


class Given(NamedTuple):
    """What may be known of the tokens beside their ids."""

    key_padding_mask: Tensor | None = None  # (B, T), True at padding, which nobody sees and which takes no place
    position_ids: Tensor | None = None  # (B, T) places; by default a token's place among those of its row
    inputs_embeds: Tensor | None = None  # (B, T, d) in place of the ids
    mask: Tensor | None = None  # boolean (B, 1, T, S), True where a token sees a column of all so far: `same_text`


NOTHING = Given()


class LanguageModel(Stack):
    """GPT-2 shaped: token and position embeddings, `n_layer` blocks, final norm, (tied) head, no biases."""

    cfg: ModelConfig

    def __init__(self, cfg: ModelConfig) -> None:
        super().__init__(cfg)
        embedded = cfg.start_momentum == "embedded"
        self.tokens = Embedding(cfg.vocab_size, cfg.d_model)
        self.positions = positions(cfg)
        self.token_momenta = Embedding(cfg.vocab_size, cfg.d_model) if embedded else None
        self.position_momenta = positions(cfg) if embedded else None
        second = cfg.second_table == "every_layer"
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

        With `cache` the T tokens continue the cached ones, and the cache takes them in. For the rest see `Given`.
        """
        given = Given(key_padding_mask, position_ids, inputs_embeds, mask)
        hidden = self.hidden(idx, cache, given)
        loss = None if targets is None else ops.linear_cross_entropy(hidden, self.head_weight, targets)
        return ModelOutput(hidden, self.head_weight, loss, cache)

    def hidden(
        self,
        idx: Tensor | None,
        cache: Cache | None = None,
        given: Given = NOTHING,
        call: Call = call_layer,
        programs: Sequence[Program] | None = None,
    ) -> Tensor:
        """The last layer's positions after the final norm, (B, T, d); zero at padding.

        `call` runs a layer, and may watch it. `programs`: what to run instead of the layers, with a clock of numbers.
        """
        B, T = self._check_input(idx, cache, given)
        real = real_columns(given.key_padding_mask, (B, T))
        tokens = idx if idx is not None else given.inputs_embeds
        assert tokens is not None
        if isinstance(cache, FixedCache):
            places, view = self._look(cache, T, real, given)
        else:
            start = 0 if cache is None else cache.length
            columns = real if cache is None else cache.columns(T, real)
            places = self._places(start, T, columns, given.position_ids, tokens.device)
            view = self._view(tokens, start, columns, given.mask)
        state = self.embed(idx, places, given.inputs_embeds)
        second = None if self.second_tokens is None else self._entries(self.second_tokens, idx, given.inputs_embeds)
        view = view._replace(rotation=self.positions.rotation(places, self.tokens.weight.dtype), second=second)
        state = self.advance(state, view, None if cache is None else cache.layers, programs, call)
        if isinstance(cache, FixedCache):
            cache.taken.add_(T)
        elif cache is not None:
            cache.length, cache.real = start + T, columns
        return view.tokens(self.norm(state.x))

    def embed(self, idx: Tensor | None, places: Tensor | None = None, embedded: Tensor | None = None) -> State:
        """Tokens at time t0, at their `places` (T,) or (B, T); `embedded` (B, T, d) in place of their ids."""
        rows = self.tokens(idx) if embedded is None else embedded
        if places is None:
            places = torch.arange(rows.shape[1], device=rows.device)
        x = dropout(with_positions(rows, self.positions, places), self.cfg.dropout, self.training)
        if self.token_momenta is None or self.position_momenta is None:
            return self.start(x)
        return self.start(
            x, with_positions(self._entries(self.token_momenta, idx, embedded), self.position_momenta, places)
        )

    def _entries(self, table: Embedding, idx: Tensor | None, embedded: Tensor | None) -> Tensor:
        """What a table says of tokens, by their ids, or else of the tokens that the vectors `embedded` are."""
        if idx is not None:
            return table(idx)
        assert embedded is not None
        return entries(table, tokens_of(embedded, self.tokens.weight))

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

    def _look(self, cache: FixedCache, T: int, real: Tensor | None, given: Given) -> tuple[Tensor, View]:
        """Places and view of the next T columns of a cache of a fixed size."""
        if given.mask is not None:
            raise InputError("a cache of a fixed size knows padding, but no mask of what each token sees; use one that"
                             " grows")  # fmt: skip
        places, view = cache.look(T, real, self.tokens.weight.dtype)
        places = places if given.position_ids is None else given.position_ids
        if not torch.compiler.is_compiling() and (last := int(places.max())) >= self.cfg.block_size:
            raise self._too_long(last + 1)
        return places, view

    def _view(self, x: Tensor, start: int, columns: Tensor | None, mask: Tensor | None) -> View:
        """What the present tokens see."""
        (B, T), causal, dtype = x.shape[:2], self.cfg.causal, self.tokens.weight.dtype
        if mask is not None:
            seen = check_seen(mask, (B, T, start + T))
            if columns is None:
                return View.masked(causal, seen, dtype)
            return View.masked(causal, seen & columns[:, None, None], dtype)._replace(real=columns[:, -T:])
        if columns is not None:
            return View.padded(causal, columns, T, dtype)
        return View.make(causal, start, T, x.device, dtype)

    def new_cache(self, batch_size: int, room: int | None = None) -> Cache:
        """An empty memory for `batch_size` texts; hand it to successive calls, in chunks of any size.

        room: of so many columns from the start, for compiled programs, whose shapes may not change.
        """
        if not self.cfg.causal:
            raise InputError("a model with full visibility cannot continue a text from a cache; set causal = True")
        if batch_size < 1:
            raise InputError(f"batch_size must be at least 1, got {batch_size}")
        if room is not None:
            return FixedCache(batch_size, self.new_memories(), room, self.tokens.weight.device)
        return Cache(batch_size, self.new_memories())

    def generate(
        self,
        idx: Prompt,
        max_new_tokens: int = 100,
        temperature: float = 1.0,
        top_k: int | None = None,
        top_p: float | None = None,
        seed: int | None = None,
        stop_tokens: tuple[int, ...] = (),
        use_cache: bool = True,
        overflow: Overflow | None = None,
    ) -> Tensor | list[Tensor]:
        """Continue texts; see `sympformer.models.generate.generate`."""
        return generate(self, idx, max_new_tokens, temperature, top_k, top_p, seed, stop_tokens, use_cache, overflow)

    def parameter_groups(self) -> dict[str, list[nn.Parameter]]:
        """Every parameter once, by optimizer group: matrix, embedding, gain, scalar."""
        return grouped_parameters(self)

    def describe(self) -> str:
        """Parameters by part, kernel passes, and the scalars of every layer, as text."""
        from sympformer.models.describe import describe

        return describe(self)

    def _check_input(self, idx: Tensor | None, cache: Cache | None, given: Given) -> tuple[int, int]:
        """Rows and columns of the input, after it was found to be of a fit form."""
        embedded, places = given.inputs_embeds, given.position_ids
        if (idx is None) == (embedded is None):
            raise InputError("give token ids or inputs_embeds, one of the two")
        if embedded is not None:
            if embedded.ndim != 3 or embedded.shape[1] < 1 or embedded.shape[2] != self.cfg.d_model:
                wanted = f"(batch, tokens, d_model = {self.cfg.d_model}), at least one token"
                raise InputError(f"inputs_embeds must have shape {wanted}, got {tuple(embedded.shape)}")
            B, T = embedded.shape[:2]
        else:
            assert idx is not None
            if idx.ndim != 2 or idx.shape[1] < 1:
                raise InputError(
                    f"token ids must have shape (batch, tokens), at least one token, got {tuple(idx.shape)}"
                )
            B, T = idx.shape
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


def build_model(cfg: ModelConfig, seed: int | None = None) -> LanguageModel:
    """The model of a config, freshly started. With a seed the start is repeatable and global state untouched."""
    if seed is None:
        return LanguageModel(cfg)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return LanguageModel(cfg)
