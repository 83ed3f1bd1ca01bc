"""From the `model` part of a config to a full ModelConfig."""

from typing import Any

from sympformer.data import Tokenizer
from sympformer.errors import InputError
from sympformer.models import ModelConfig, variant
from sympformer.training.config import DEFAULT_VARIANT


def choose_model(options: dict[str, Any], tokenizer: Tokenizer | None = None) -> ModelConfig:
    """The ModelConfig that options name: variant, preset and overrides, or `architecture` and plain fields.

    With a tokenizer the vocabulary is its own, padded, unless the options give a larger one.
    """
    options = dict(options)
    if tokenizer is not None:
        options["vocab_size"] = _vocabulary(options.get("vocab_size"), tokenizer)
    if "architecture" not in options:
        name, preset = options.pop("variant", DEFAULT_VARIANT), options.pop("preset", "tuned")
        cfg = variant(name, preset, **options)
    elif "variant" in options or "preset" in options:
        raise InputError(
            "model takes a 'variant' with its 'preset', or an 'architecture' with all its options, not both"
        )
    else:
        cfg = ModelConfig.from_dict(options)
    if not cfg.causal:
        raise InputError("model.causal = False sees the next token it should predict; train with causal = True")
    return cfg


def _vocabulary(asked: object, tokenizer: Tokenizer) -> object:
    if asked is None:
        return tokenizer.padded_vocab_size
    if isinstance(asked, int) and asked < tokenizer.vocab_size:
        raise InputError(
            f"model.vocab_size is {asked}, but the tokenizer {tokenizer.name} has {tokenizer.vocab_size} ids"
        )
    return asked
