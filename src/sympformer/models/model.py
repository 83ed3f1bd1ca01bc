"""The language model: embeddings, layers as time steps, final LayerNorm, head."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sympformer import ops
from sympformer.errors import InputError
from sympformer.flows import LogLinear
from sympformer.models.blocks import BLOCKS, Carry, SympBlock
from sympformer.models.cache import Cache, LayerCache, Visible
from sympformer.models.config import ModelConfig
from sympformer.models.generate import Prompt, generate
from sympformer.models.layers import Embedding, Norm, Projection, dropout, grouped_parameters


@dataclass
class ModelOutput:
    """What a forward pass gives. `logits` are computed when asked for, so that training never holds them."""

    hidden: Tensor  # (B, T, d), after the final LayerNorm
    head: Tensor  # (V, d)
    loss: Tensor | None = None
    cache: Cache | None = None

    @property
    def logits(self) -> Tensor:
        """(B, T, V)."""
        return F.linear(self.hidden, self.head)


LayerCall = Callable[[nn.Module, Carry, int, Visible, LayerCache | None], Carry]


def call_layer(layer: nn.Module, carry: Carry, k: int, visible: Visible, cache: LayerCache | None) -> Carry:
    """Run layer k."""
    return layer(carry, k, visible, cache)


class LanguageModel(nn.Module):
    """GPT-2 shaped: token and position embeddings, `n_layer` blocks, final LayerNorm, (tied) head, no biases."""

    def __init__(self, cfg: ModelConfig) -> None:
        super().__init__()
        self.cfg = cfg
        self.tokens = Embedding(cfg.vocab_size, cfg.d_model)
        self.positions = Embedding(cfg.block_size, cfg.d_model)
        embedded = cfg.start_momentum == "embedded" and cfg.architecture != "gpt"
        self.token_momenta = Embedding(cfg.vocab_size, cfg.d_model) if embedded else None
        self.position_momenta = Embedding(cfg.block_size, cfg.d_model) if embedded else None
        n_blocks = 1 if cfg.share_layers else cfg.n_layer
        self.blocks = nn.ModuleList(BLOCKS[cfg.architecture](cfg) for _ in range(n_blocks))
        self.norm = Norm(cfg.d_model)
        self.head = None if cfg.tie_head else Projection(cfg.d_model, cfg.vocab_size)

    @property
    def head_weight(self) -> Tensor:
        """The head's matrix (V, d): the token embedding when tied."""
        return self.tokens.weight if self.head is None else self.head.weight

    def layer(self, k: int) -> nn.Module:
        """The block that acts as layer k."""
        return self.blocks[0 if self.cfg.share_layers else k]

    def layers(self) -> list[nn.Module]:
        """The block of every layer, first to last."""
        return [*self.blocks] * (self.cfg.n_layer if self.cfg.share_layers else 1)

    def forward(self, idx: Tensor, targets: Tensor | None = None, cache: Cache | None = None) -> ModelOutput:
        """idx (B, T) token ids. With `targets` (B, T), -100 ignored, the mean cross-entropy in nats.

        With `cache` the T tokens continue the cached ones, and the cache takes them in.
        """
        hidden = self.hidden(idx, cache)
        loss = None if targets is None else ops.linear_cross_entropy(hidden, self.head_weight, targets)
        return ModelOutput(hidden, self.head_weight, loss, cache)

    def hidden(self, idx: Tensor, cache: Cache | None = None, call: LayerCall = call_layer) -> Tensor:
        """The last layer's positions after the final LayerNorm, (B, T, d). `call` runs a layer, and may watch it."""
        start = self._check_input(idx, cache)
        carry = self.embed(idx, start)
        if cache is None or torch.is_grad_enabled():  # otherwise the layers' scalars are numbers, and so is the clock
            carry = carry._replace(t=torch.full((), self.cfg.t0, dtype=carry.x.dtype, device=idx.device))
        T = idx.shape[1]
        visible = Visible.make(self.cfg.causal, start, T, idx.device, self.tokens.weight.dtype)
        memories: list[LayerCache | None] = [None] * self.cfg.n_layer if cache is None else [*cache.layers]
        for k, (layer, memory) in enumerate(zip(self.layers(), memories, strict=True)):
            carry = call(layer, carry, k, visible, memory)
        if cache is not None:
            cache.length += T
        return self.norm(carry.x)

    def embed(self, idx: Tensor, start: int = 0) -> Carry:
        """Positions and momenta of the tokens at time t0, the first token at place `start`."""
        places = torch.arange(start, start + idx.shape[1], device=idx.device)
        x = dropout(self.tokens(idx) + self.positions(places), self.cfg.dropout, self.training)
        if self.token_momenta is not None and self.position_momenta is not None:
            y = self.token_momenta(idx) + self.position_momenta(places)
        else:
            y = torch.zeros_like(x)
        v = torch.zeros_like(x) if self.cfg.mlp_velocity == "own" else None
        return Carry(x, y, v, self.cfg.t0, None)

    def new_cache(self, batch_size: int) -> Cache:
        """An empty memory for `batch_size` texts; hand it to successive calls, in chunks of any size."""
        if not self.cfg.causal:
            raise InputError("a model with full visibility cannot continue a text from a cache; set causal = True")
        if batch_size < 1:
            raise InputError(f"batch_size must be at least 1, got {batch_size}")
        return Cache.empty(batch_size, self.cfg.n_layer)

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
    ) -> Tensor | list[Tensor]:
        """Continue texts; see `sympformer.models.generate.generate`."""
        return generate(self, idx, max_new_tokens, temperature, top_k, top_p, seed, stop_tokens, use_cache)

    def parameter_groups(self) -> dict[str, list[nn.Parameter]]:
        """Every parameter once, by optimizer group: matrix, embedding, gain, scalar."""
        return grouped_parameters(self)

    def layer_scalars(self) -> list[dict[str, float]]:
        """Per layer: the present scalars, the clock t, and the damping rate alpha(t) where there is one."""
        rows, t = [], self.cfg.t0
        for k in range(self.cfg.n_layer):
            block = self.layer(k)
            values = block.scalars.report()  # type: ignore[union-attr, operator]
            if isinstance(block, SympBlock):
                values["t"] = t
                if "c_log" in values or "c_lin" in values:
                    damping = LogLinear(values.get("c_log", 0.0), values.get("c_lin", 0.0), self.cfg.t0)
                    values["alpha"] = float(damping.alpha(t))
                t += values["h_x"]
            rows.append(values)
        return rows

    def describe(self) -> str:
        """Parameters by part, oracle calls, and the scalars of every layer, as text."""
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
