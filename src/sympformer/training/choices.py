"""The model that a config asks for."""

import os
from collections.abc import Mapping
from typing import Any

from sympformer.data import Tokenizer
from sympformer.errors import InputError
from sympformer.models import ModelConfig, variant
from sympformer.training.config import DEFAULT_VARIANT

OVERHEAD = 30_000  # bytes of a layer besides its weights


def choose_model(options: dict[str, Any], tokenizer: Tokenizer | None = None) -> ModelConfig:
    """The ModelConfig that options name: variant, preset and overrides, or without these `stepper` and plain fields.

    With a tokenizer the vocabulary is its own, padded, unless the options give a larger one.
    """
    options = dict(options)
    for name in ("variant", "preset"):
        if name in options and not isinstance(options[name], str):
            raise InputError(f"model.{name} must be a name, got {options[name]!r}")
    if tokenizer is not None:
        options["vocab_size"] = _vocabulary(options.get("vocab_size"), tokenizer)
    if not is_plain(options):
        name, preset = options.pop("variant", DEFAULT_VARIANT), options.pop("preset", "tuned")
        cfg = variant(name, preset, **options)
    else:
        cfg = ModelConfig.from_dict(options)
    if not cfg.causal:
        raise InputError("model.causal = False sees the next token it should predict; train with causal = True")
    check_memory(cfg)
    return cfg


def is_plain(options: Mapping[str, Any]) -> bool:
    """Whether options are the fields of a ModelConfig, and not a variant's with some changed."""
    return "stepper" in options and "variant" not in options and "preset" not in options


def check_memory(cfg: ModelConfig) -> None:
    """Refuse a model whose weights alone would fill the machine, before it is built."""
    layers, mlp = 1 if cfg.share_layers else cfg.n_layer, 2 * (cfg.mlp_ratio or 0)
    numbers = cfg.d_model * (cfg.vocab_size + cfg.block_size + (2 + mlp) * cfg.d_model * layers)
    needed, there = 4 * numbers + OVERHEAD * cfg.n_layer, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if needed > there:
        raise InputError(
            f"the model would need at least {needed / 1e9:,.0f} GB of memory, and this machine has {there / 1e9:,.0f}: "
            "choose a smaller n_layer, d_model, mlp_ratio, vocab_size or block_size"
        )


def model_options(shared: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
    """The options of one model among several: its own over those that all share; a learning rate is none of them."""
    if is_plain(own):
        shared = {name: value for name, value in shared.items() if name not in ("variant", "preset")}
    return {name: value for name, value in (shared | own).items() if name != "lr"}


def _vocabulary(asked: object, tokenizer: Tokenizer) -> object:
    if asked is None:
        return tokenizer.padded_vocab_size
    if isinstance(asked, int) and asked < tokenizer.vocab_size:
        raise InputError(
            f"model.vocab_size is {asked}, but the tokenizer {tokenizer.name} has {tokenizer.vocab_size} ids"
        )
    return asked
