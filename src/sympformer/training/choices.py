"""What a config asks for: the prepared tokens (found, or prepared on first use and kept) and the model."""

import hashlib
import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

from sympformer.data import Prepared, Tokenizer, load_prepared, prepare
from sympformer.data.preparation import default_folder
from sympformer.data.prepared import SHEET
from sympformer.errors import InputError
from sympformer.machine import cache_root
from sympformer.models import ModelConfig, variant
from sympformer.training.config import DEFAULT_VARIANT, DataConfig

OVERHEAD = 30_000  # bytes of a layer besides its weights
LATER = ("encoding", "on_bad_file", "overlap_words")  # options of the data that earlier versions did not have


def choose_model(options: dict[str, Any], tokenizer: Tokenizer | None = None) -> ModelConfig:
    """The ModelConfig that options name: variant, preset and overrides, or `architecture` and plain fields.

    With a tokenizer the vocabulary is its own, padded, unless the options give a larger one.
    """
    options = dict(options)
    for name in ("variant", "preset"):
        if name in options and not isinstance(options[name], str):
            raise InputError(f"model.{name} must be a name, got {options[name]!r}")
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
    check_memory(cfg)
    return cfg


def check_memory(cfg: ModelConfig) -> None:
    """Refuse a model whose weights alone would fill the machine, before it is built."""
    layers, mlp = 1 if cfg.share_layers else cfg.n_layer, 0 if cfg.mlp == "none" else 2 * cfg.mlp_ratio
    numbers = cfg.d_model * (cfg.vocab_size + cfg.block_size + (2 + mlp) * cfg.d_model * layers)
    needed, there = 4 * numbers + OVERHEAD * cfg.n_layer, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if needed > there:
        raise InputError(
            f"the model would need at least {needed / 1e9:,.0f} GB of memory, and this machine has {there / 1e9:,.0f}: "
            "choose a smaller n_layer, d_model, mlp_ratio, vocab_size or block_size"
        )


def model_options(shared: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
    """The options of one model among several: its own over those that all share; a learning rate is none of them."""
    if "architecture" in own:
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


def open_data(config: DataConfig, seed: int = 0) -> Prepared:
    """The tokens that a config asks for: from its folder, from ./data, or from the cache, made there if missing."""
    if config.folder is not None:
        return load_prepared(config.folder)
    beside = default_folder(config.corpus, config.tokenizer)
    if (beside / SHEET).is_file():
        try:
            return _prepare(config, beside, seed)
        except InputError:
            pass  # prepared in another way: left alone
    folder = cache_folder(config, seed)
    _check_owner(folder)
    try:
        return _prepare(config, folder, seed)
    except InputError:
        if not (folder / SHEET).is_file():
            raise
    return _prepare(config, folder, seed, overwrite=True)  # the text has changed since, or the cache is damaged


def _check_owner(folder: Path) -> None:
    """In a cache that several people share, only one's own tokens are taken: those of others may be anything."""
    for path in (folder, folder / SHEET, *folder.glob("*.bin")) if folder.exists() else ():
        if hasattr(os, "geteuid") and path.exists() and path.stat().st_uid not in (os.geteuid(), 0):
            raise InputError(f"{path} belongs to another user: choose a cache of your own with SYMPFORMER_CACHE")


def cache_folder(config: DataConfig, seed: int = 0) -> Path:
    """Where the tokens of a config are kept: $SYMPFORMER_CACHE, or sympformer in the user's cache folder."""
    corpus = os.path.abspath(config.corpus) if os.path.exists(config.corpus) else config.corpus
    options = asdict(config) | {"corpus": corpus, "seed": seed}
    for name in LATER:  # as it was before these were options: what is kept already is found
        if options[name] == getattr(DataConfig, name):
            del options[name]
    request = json.dumps(options, sort_keys=True)
    name = f"{default_folder(config.corpus, config.tokenizer).name}-{hashlib.sha256(request.encode()).hexdigest()[:8]}"
    return cache_root() / "data" / name


def _prepare(config: DataConfig, folder: Path, seed: int, overwrite: bool = False) -> Prepared:
    return prepare(
        config.corpus,
        config.tokenizer,
        folder,
        seed=seed,
        validation=config.validation,
        test=config.test,
        column=config.column,
        separator=config.separator,
        encoding=config.encoding,
        on_bad_file=config.on_bad_file,
        limit=config.limit,
        overlap_words=config.overlap_words,
        overwrite=overwrite,
    )
