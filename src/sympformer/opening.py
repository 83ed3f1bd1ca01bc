"""A language model by name, for every command: a variant, a run, any Hugging Face folder, anyone's factory."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, Protocol

import torch
from torch import Tensor, nn

from sympformer.data import Tokenizer
from sympformer.errors import InputError, missing_extra, unknown_name
from sympformer.files import read_json
from sympformer.inertia import is_accelerated, load_accelerated
from sympformer.machine import calm_onednn
from sympformer.models import VARIANTS, LanguageModel, build_model, variant
from sympformer.models.foreign import as_text_model, block_size_of, logits_of, one_line, vocab_size_of
from sympformer.training.folder import is_model, is_run, stored_model
from sympformer.training.sampling import sample_text

Kind = Literal["variant", "run", "hf", "factory"]

# a variant named on its own is built this small: every mechanism is at work, and it is quick
VARIANT_SIZE: dict[str, Any] = {"n_layer": 3, "n_head": 2, "d_model": 32, "block_size": 128, "vocab_size": 256}
TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "vocab.json", "tokenizer.model")
FACTORY = "build"  # the factory of a file named without one


class TextTokenizer(Protocol):
    """What the tokenizer of any model can do."""

    @property
    def end_of_text(self) -> int | None:
        """The id that ends a document, if there is one."""

    def encode(self, text: str) -> list[int]:
        """The ids of a text, without special tokens."""

    def decode(self, ids: list[int]) -> str:
        """The text of ids."""


@dataclass(frozen=True)
class Opened:
    """A language model ready to be used, in eval mode."""

    name: str
    kind: Kind
    model: Any  # a torch module from ids to logits, our own `LanguageModel` or anyone's
    tokenizer: Any  # a `TextTokenizer`, None where there is none
    vocab_size: int
    block_size: int | None
    folder: Path | None = None
    step: int | None = None  # of a run
    about: dict[str, Any] = field(default_factory=dict)  # where the weights come from

    @torch.no_grad()
    def logits(self, idx: Tensor) -> Tensor:
        """(B, T) ids -> (B, T, V), whatever the model returns."""
        return logits_of(self.model)(idx)

    def sample(self, prompt: str, max_new_tokens: int = 100, **options: Any) -> str:
        """Continue a text, with a trained model of this package; see `sample_text`."""
        return sample_text(*self.ours(), prompt, max_new_tokens, **options)

    def ours(self) -> tuple[LanguageModel, Tokenizer]:
        """Model and tokenizer, where they are of this package."""
        if not isinstance(self.model, LanguageModel):
            raise InputError(f"{self.name} is a {type(self.model).__name__}: this needs a model of this package")
        if not isinstance(self.tokenizer, Tokenizer):
            raise InputError(f"{self.name} has no tokenizer: name a run folder, or one that 'sympformer export' wrote")
        return self.model, self.tokenizer


def open_model(
    name: str | Path,
    which: Literal["best", "last"] = "best",
    trust_remote_code: bool = False,
    vocab_size: int | None = None,
    say: Callable[[str], None] = lambda text: print(text, file=sys.stderr),
) -> Opened:
    """The model that a name means: a variant, a run or Hugging Face folder, `module:factory`, `file.py:factory`.

    which: of a run, the best weights by validation loss or the last. trust_remote_code: run code that lies in a
    Hugging Face folder. vocab_size: for a model that does not tell its own. say: hears of files that are passed over.
    """
    text, path = str(name), Path(name)
    if is_model(path):
        found = stored_model(path, which, say)
        kind: Kind = "run" if is_run(path) else "hf"
        cfg = found.model.cfg
        return Opened(
            text, kind, found.model, found.tokenizer, cfg.vocab_size, cfg.block_size, path, found.step, found.about
        )
    kind, model, tokenizer = _others(text, path, trust_remote_code)
    model.eval()
    size, folder = vocab_size_of(model) if vocab_size is None else vocab_size, path if kind == "hf" else None
    return Opened(text, kind, model, tokenizer, size, block_size_of(model), folder)


def _others(text: str, path: Path, trust_remote_code: bool) -> tuple[Kind, nn.Module, TextTokenizer | None]:
    if text in VARIANTS:
        return "variant", build_model(variant(text, **VARIANT_SIZE), seed=0), None
    calm_onednn()  # a model of others may compute in it
    if (path / "config.json").is_file():
        return "hf", *_hugging_face(path, trust_remote_code)
    if path.is_dir():
        raise InputError(f"{text} holds no model: neither a run nor config.json of a Hugging Face model")
    if ":" in text or path.suffix == ".py":
        return "factory", _made_by_factory(text), None
    if len(path.parts) > 1:
        raise InputError(f"{text} does not exist: name a run folder, a Hugging Face folder, or a variant")
    raise unknown_name("model", text, [*VARIANTS, "a folder", "module:factory", "file.py:factory"])


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

    _check_code(folder, trust_remote_code)
    if not any(folder.glob("*.safetensors")):
        raise InputError(
            f"{folder} has no .safetensors weights: save them as safetensors, pickled weights are not read"
        )
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
