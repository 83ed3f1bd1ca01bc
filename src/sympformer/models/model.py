"""The language model: embeddings, layers as time steps, final norm, head."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sympformer import ops
from sympformer.errors import InputError
from sympformer.models.cache import Cache
from sympformer.models.config import ModelConfig, Overflow
from sympformer.models.generate import Prompt, generate
from sympformer.nn import Embedding, Projection, Stack, State, View, grouped_parameters
from sympformer.nn.fast import Program
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
        self.blocks = self.new_blocks()
        self.norm = norm(cfg)
        self.head = None if cfg.tie_head else Head(cfg.d_model, cfg.vocab_size)

    @property
    def head_weight(self) -> Tensor:
        """The head's matrix (V, d): the token embedding when tied."""
        return self.tokens.weight if self.head is None else self.head.weight

    def forward(self, idx: Tensor, targets: Tensor | None = None, cache: Cache | None = None) -> ModelOutput:
        """idx (B, T) token ids. With `targets` (B, T), -100 ignored, the mean cross-entropy in nats.

        With `cache` the T tokens continue the cached ones, and the cache takes them in.
        """
        hidden = self.hidden(idx, cache)
        loss = None if targets is None else ops.linear_cross_entropy(hidden, self.head_weight, targets)
        return ModelOutput(hidden, self.head_weight, loss, cache)

    def hidden(
        self,
        idx: Tensor,
        cache: Cache | None = None,
        call: Call = call_layer,
        programs: Sequence[Program] | None = None,
    ) -> Tensor:
        """The last layer's positions after the final norm, (B, T, d).

        `call` runs a layer, and may watch it. `programs`: what to run instead of the layers, with a clock of numbers.
        """
        start = self._check_input(idx, cache)
        T, device, dtype = idx.shape[1], idx.device, self.tokens.weight.dtype
        places = torch.arange(start, start + T, device=device)
        state = self.embed(idx, places)
        if programs is None:
            state = state._replace(t=torch.full((), self.cfg.t0, dtype=state.x.dtype, device=device))
        view = View.make(self.cfg.causal, start, T, device, dtype)
        view = view._replace(rotation=self.positions.rotation(places, dtype))
        state = self.advance(state, view, None if cache is None else cache.layers, programs, call)
        if cache is not None:
            cache.length += T
        return self.norm(state.x)

    def embed(self, idx: Tensor, places: Tensor | None = None) -> State:
        """Positions and momenta of the tokens at time t0, at `places` (T,) or (B, T); by default 0, 1, 2, ..."""
        places = torch.arange(idx.shape[1], device=idx.device) if places is None else places
        x = dropout(with_positions(self.tokens(idx), self.positions, places), self.cfg.dropout, self.training)
        if self.token_momenta is not None and self.position_momenta is not None:
            y = with_positions(self.token_momenta(idx), self.position_momenta, places)
        else:
            y = torch.zeros_like(x)
        v = torch.zeros_like(x) if self.cfg.mlp_velocity == "own" else None
        return State(x, y, v, self.cfg.t0)

    def new_cache(self, batch_size: int) -> Cache:
        """An empty memory for `batch_size` texts; hand it to successive calls, in chunks of any size."""
        if not self.cfg.causal:
            raise InputError("a model with full visibility cannot continue a text from a cache; set causal = True")
        if batch_size < 1:
            raise InputError(f"batch_size must be at least 1, got {batch_size}")
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

    def _check_input(self, idx: Tensor, cache: Cache | None) -> int:
        """Shapes and lengths; returns the place of the first token."""
        if idx.ndim != 2 or idx.shape[1] < 1:
            raise InputError(f"token ids must have shape (batch, tokens), at least one token, got {tuple(idx.shape)}")
        start = 0 if cache is None else cache.length
        if start + idx.shape[1] > self.cfg.block_size:
            raise InputError(
                f"{start + idx.shape[1]} tokens exceed block_size = {self.cfg.block_size}; shorten the text,"
                " or generate with overflow = 'slide'"
            )
        if cache is not None and cache.batch_size != idx.shape[0]:
            raise InputError(f"the cache holds {cache.batch_size} texts, got {idx.shape[0]}")
        return start


def build_model(cfg: ModelConfig, seed: int | None = None) -> LanguageModel:
    """The model of a config, freshly started. With a seed the start is repeatable and global state untouched."""
    if seed is None:
        return LanguageModel(cfg)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return LanguageModel(cfg)
