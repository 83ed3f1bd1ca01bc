"""Anyone's torch language model from outside: what it returns, and what it says about itself."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from sympformer.errors import InputError
from sympformer.nn import Encoder

Logits = Callable[[Tensor], Tensor]  # (B, T) ids -> (B, T, V)
BLOCK_SIZE_FIELDS = ("block_size", "max_position_embeddings", "n_positions", "n_ctx")


class EncodedTexts(nn.Module):
    """An encoder as a model of texts: tokens of a few random vectors, and its results in place of logits."""

    N_TOKENS = 64

    def __init__(self, encoder: Encoder) -> None:
        super().__init__()
        self.encoder, self.cfg = encoder, encoder.cfg
        self.tokens = nn.Embedding(self.N_TOKENS, encoder.cfg.d_model)
        self.tokens.to(next(encoder.parameters()))

    def forward(self, idx: Tensor) -> Tensor:
        return self.encoder(self.tokens(idx))


def as_text_model(model: nn.Module) -> nn.Module:
    """A model from token ids to logits: an encoder with tokens of its own, any other model as it is."""
    return EncodedTexts(model) if isinstance(model, Encoder) else model


def sees_all(model: nn.Module) -> bool:
    """Whether it is an encoder whose tokens see all others. In a language model the same would be a leak."""
    return isinstance(model, EncodedTexts) and not model.cfg.causal


def logits_of(model: nn.Module) -> Logits:
    """The logits of a model as a function (B, T) -> (B, T, V); what goes wrong inside becomes one sentence."""

    def logits(idx: Tensor) -> Tensor:
        try:
            output = model(idx)
        except Exception as error:
            raise InputError(f"the model failed on {_shape(idx)} token ids: {one_line(error)}") from error
        return find_logits(output, idx)

    return logits


def find_logits(output: Any, idx: Tensor) -> Tensor:
    """The logits in what a model returned for `idx`: a tensor, .logits, ["logits"], or a part of a tuple."""
    found = output
    if isinstance(output, Mapping):  # before .logits: Hugging Face's outputs are both
        found = output.get("logits")
    elif hasattr(output, "logits"):
        found = output.logits
    elif isinstance(output, (tuple, list)):
        found = next((part for part in output if isinstance(part, Tensor) and part.ndim == 3), None)
    if not isinstance(found, Tensor):
        raise InputError(
            f"the model returned {type(output).__name__} without logits: it must return a (batch, tokens, vocabulary)"
            " tensor, or hold one as .logits, as ['logits'] or in a tuple"
        )
    if found.ndim != 3 or found.shape[:2] != idx.shape or not found.is_floating_point():
        raise InputError(
            f"the model returned logits of shape {_shape(found)} for {_shape(idx)} token ids: they must have shape"
            " (batch, tokens, vocabulary), a row for every token"
        )
    return found


def vocab_size_of(model: nn.Module) -> int:
    """Number of token ids a model knows: from its config, or from the table that reads the tokens."""
    if (size := _told(model, ("vocab_size",))) is not None:
        return size
    if not (tables := token_tables(model)):
        raise InputError(
            "the model does not tell its vocabulary (no .cfg.vocab_size, no .config.vocab_size, no nn.Embedding that"
            " reads tokens): give --vocab_size (vocab_size=... in Python)"
        )
    return min(table.num_embeddings for table in tables)


def block_size_of(model: nn.Module) -> int | None:
    """Longest text a model takes, where its config tells."""
    return _told(model, BLOCK_SIZE_FIELDS)


def _told(model: nn.Module, names: tuple[str, ...]) -> int | None:
    """The first of some sizes that a model's config tells."""
    configs = (getattr(model, "cfg", None), getattr(model, "config", None))
    sizes = (getattr(config, name, None) for config in configs for name in names)
    return next((size for size in sizes if isinstance(size, int) and size > 0), None)


@torch.no_grad()
def token_tables(model: nn.Module) -> list[nn.Embedding]:
    """The embeddings that read the token ids themselves (not places or segments), found by watching one pass."""
    device = next((p.device for p in model.parameters()), torch.device("cpu"))
    idx = torch.tensor([[1, 0]], device=device)  # no table of places is asked for 1, then 0
    read: list[nn.Embedding] = []

    def watch(table: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        if isinstance(table, nn.Embedding) and args and args[0].flatten().tolist() == [1, 0]:
            read.append(table)

    hooks = [m.register_forward_hook(watch) for m in model.modules() if isinstance(m, nn.Embedding)]
    try:
        if hooks:
            logits_of(model)(idx)
    finally:
        for hook in hooks:
            hook.remove()
    return list(dict.fromkeys(read))


def _shape(tensor: Tensor) -> str:
    return " x ".join(map(str, tensor.shape)) or "()"


def one_line(error: BaseException) -> str:
    """An error in one line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}" if str(error) else type(error).__name__
