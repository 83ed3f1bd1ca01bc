"""A language model by name: a variant, a trained run, a Hugging Face folder, or anyone's factory of a torch model."""

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, Protocol

import torch
from torch import Tensor, nn

from sympformer.errors import InputError, missing_extra, unknown_name
from sympformer.inertia import is_accelerated, load_accelerated
from sympformer.machine import calm_onednn
from sympformer.models import VARIANTS, build_model, variant
from sympformer.nn import Encoder
from sympformer.safe_files import check_files, check_regular, check_weights, read_json, read_sealed

Kind = Literal["variant", "run", "hf", "factory"]
Logits = Callable[[Tensor], Tensor]  # (B, T) ids -> (B, T, V)

# a variant named on its own is built this small: every mechanism is at work, and it is quick
VARIANT_SIZE: dict[str, Any] = {"n_layer": 3, "n_head": 2, "d_model": 32, "block_size": 128, "vocab_size": 256}
BLOCK_SIZE_FIELDS = ("block_size", "max_position_embeddings", "n_positions", "n_ctx")
TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "vocab.json", "tokenizer.model")
WEIGHTS, RECORD = "model.safetensors", "sympformer_run.json"  # of an export
FACTORY = "build"  # the factory of a file named without one


class TextTokenizer(Protocol):
    """What a target's tokenizer can do."""

    @property
    def end_of_text(self) -> int | None:
        """The id that ends a document, if there is one."""

    def encode(self, text: str) -> list[int]:
        """The ids of a text, without special tokens."""

    def decode(self, ids: list[int]) -> str:
        """The text of ids."""


@dataclass(frozen=True)
class Target:
    """A language model ready to be looked at, in eval mode."""

    name: str
    kind: Kind
    model: nn.Module
    vocab_size: int
    block_size: int | None
    tokenizer: TextTokenizer | None = None

    @torch.no_grad()
    def logits(self, idx: Tensor) -> Tensor:
        """(B, T) ids -> (B, T, V), whatever the model returns."""
        return logits_of(self.model)(idx)


def open_target(text: str, trust_remote_code: bool = False, vocab_size: int | None = None) -> Target:
    """The model that a text names: a variant, a run folder, a Hugging Face folder, `module:factory`, `file.py:factory`.

    trust_remote_code: run code that lies in a Hugging Face folder. vocab_size: for a model that does not tell its own.
    """
    kind, model, tokenizer = _load(text, trust_remote_code)
    model.eval()
    size = vocab_size_of(model) if vocab_size is None else vocab_size
    return Target(text, kind, model, size, block_size_of(model), tokenizer)


def _load(text: str, trust_remote_code: bool) -> tuple[Kind, nn.Module, TextTokenizer | None]:
    path = Path(text)
    if text in VARIANTS:
        return "variant", build_model(variant(text, **VARIANT_SIZE), seed=0), None
    if (path / "config.yaml").is_file():
        return "run", *_run(path)
    calm_onednn()  # a model of others may compute in it
    if (path / "config.json").is_file():
        return "hf", *_hugging_face(path, trust_remote_code)
    if path.is_dir():
        raise InputError(f"{text} holds no model: neither config.yaml of a run nor config.json of a Hugging Face model")
    if ":" in text or path.suffix == ".py":
        return "factory", _made_by_factory(text), None
    if len(path.parts) > 1:
        raise InputError(f"{text} does not exist: name a run folder, a Hugging Face folder, or a variant")
    raise unknown_name("model", text, [*VARIANTS, "a folder", "module:factory", "file.py:factory"])


# --- what a model returns, and what it says about itself


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
    for name in ("cfg", "config"):
        size = getattr(getattr(model, name, None), "vocab_size", None)
        if isinstance(size, int):
            return size
    tables = token_tables(model)
    if not tables:
        raise InputError(
            "the model does not tell its vocabulary (no .cfg.vocab_size, no .config.vocab_size, no nn.Embedding that"
            " reads tokens): give --vocab_size (vocab_size=... in Python)"
        )
    return min(table.num_embeddings for table in tables)


def block_size_of(model: nn.Module) -> int | None:
    """Longest text a model takes, where its config tells."""
    for config in (getattr(model, "cfg", None), getattr(model, "config", None)):
        for field in BLOCK_SIZE_FIELDS:
            size = getattr(config, field, None)
            if isinstance(size, int) and size > 0:
                return size
    return None


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


# --- where models come from


def _run(folder: Path) -> tuple[nn.Module, TextTokenizer]:
    from sympformer.training import load_run

    trained = load_run(folder, say=lambda text: print(text, file=sys.stderr))
    return trained.model, trained.tokenizer


@dataclass(frozen=True)
class HFTokenizer:
    """A transformers tokenizer behind our three names."""

    inner: Any

    @property
    def end_of_text(self) -> int | None:
        return self.inner.eos_token_id

    def encode(self, text: str) -> list[int]:
        return list(self.inner.encode(text, add_special_tokens=False))

    def decode(self, ids: list[int]) -> str:
        return str(self.inner.decode(ids))


def _hugging_face(folder: Path, trust_remote_code: bool) -> tuple[nn.Module, TextTokenizer | None]:
    """The model and tokenizer of a folder: its own files only, no pickled weights, foreign code only if trusted."""
    if find_spec("transformers") is None:
        raise missing_extra(f"{folder}, a Hugging Face model,", "transformers", "hf")
    import transformers

    import sympformer.hf  # noqa: F401  (registers our own classes)

    check_regular(folder)
    _check_code(folder, trust_remote_code)
    if not any(folder.glob("*.safetensors")):
        raise InputError(
            f"{folder} has no .safetensors weights: save them as safetensors, pickled weights are not read"
        )
    _check_weights(folder)
    options: dict[str, Any] = {"local_files_only": True, "trust_remote_code": trust_remote_code}
    weights: dict[str, Any] = {"dtype": torch.float32, "output_loading_info": True}
    try:
        if is_accelerated(read_json(folder / "config.json")):
            model, loaded = load_accelerated(folder, **weights, **options)
        else:
            plain: Any = transformers.AutoModelForCausalLM
            model, loaded = plain.from_pretrained(folder, use_safetensors=True, **weights, **options)
        tokenizer = None
        if any((folder / name).is_file() for name in TOKENIZER_FILES):
            tokenizer = HFTokenizer(transformers.AutoTokenizer.from_pretrained(folder, **options))
    except Exception as error:
        raise InputError(f"{folder} does not load as a Hugging Face language model: {one_line(error)}") from error
    if loaded["missing_keys"]:  # transformers would go on with random ones
        raise InputError(
            f"the weights in {folder} lack {', '.join(sorted(loaded['missing_keys'])[:3])}: save them again"
        )
    return model, tokenizer


def _check_weights(folder: Path) -> None:
    """Weights fit the sizes in the config, and are those of the export where there is a record of it."""
    config = read_json(folder / "config.json")
    if (folder / WEIGHTS).exists():
        check_weights(folder / WEIGHTS, config)
    if (folder / RECORD).exists():
        files = read_sealed(folder / RECORD).get("files", {})
        if not isinstance(files, dict):
            raise InputError(f"{folder / RECORD} is damaged: take a fresh copy of the folder")
        check_files(folder, files, RECORD)


def _check_code(folder: Path, trust_remote_code: bool) -> None:
    """Refuse a folder whose model needs code of its own, unless that is trusted."""
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    config = read_json(folder / "config.json")
    kind = config.get("model_type")
    known, custom = isinstance(kind, str) and kind in CONFIG_MAPPING, "auto_map" in config
    if custom and not known and not trust_remote_code:
        raise InputError(f"the model in {folder} comes with code of its own: read it, then give --trust_remote_code")


def _made_by_factory(text: str) -> nn.Module:
    """The module that `package.module:factory` or `path/to/file.py:factory` returns, made with seed 0."""
    place, _, name = text.partition(":")
    name = name or FACTORY
    folder = Path(place).parent if place.endswith(".py") else Path()
    with _importing_from(folder), torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        module = _module(place)
        factory = getattr(module, name, None)
        if not callable(factory):
            known = [key for key, value in vars(module).items() if callable(value) and not key.startswith("_")]
            raise unknown_name(f"factory in {place}:", name, known)
        try:
            model = factory()
        except Exception as error:
            raise InputError(f"the factory {text} failed when called without arguments: {one_line(error)}") from error
    if not isinstance(model, nn.Module):
        raise InputError(f"the factory {text} must return a torch.nn.Module, it returned {type(model).__name__}")
    return as_text_model(model)


def _module(place: str) -> ModuleType:
    """Import a module by its dotted name, or a file by its path."""
    try:
        if not place.endswith(".py"):
            return import_module(place)
        spec = spec_from_file_location(f"sympformer_target_{Path(place).stem}", place)  # hides no module's name
        assert spec is not None
        assert spec.loader is not None
        module = module_from_spec(spec)
        sys.modules[spec.name] = module  # dataclasses look their module up
        spec.loader.exec_module(module)
        return module
    except FileNotFoundError as error:
        raise InputError(f"{place} does not exist") from error
    except Exception as error:
        raise InputError(f"cannot import {place}: {one_line(error)}") from error


@contextmanager
def _importing_from(folder: Path) -> Iterator[None]:
    """Modules in a folder can be imported within the block."""
    entry = str(folder.resolve())
    sys.path.insert(0, entry)
    try:
        yield
    finally:
        sys.path.remove(entry)
