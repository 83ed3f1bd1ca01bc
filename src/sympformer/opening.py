"""A language model by name, for every command: a variant, a run, any Hugging Face folder, anyone's factory."""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

import torch
from torch import nn

from sympformer.errors import InputError, missing_extra, unknown_name
from sympformer.files import read_json
from sympformer.inertia import is_accelerated, load_accelerated
from sympformer.machine import calm_onednn
from sympformer.models import VARIANTS, build_model, variant
from sympformer.models.foreign import as_text_model, block_size_of, one_line, vocab_size_of
from sympformer.training.folder import Kind, is_model, stored_model
from sympformer.training.folder import Opened as Opened

# a variant named on its own is built this small: every mechanism is at work, and it is quick
VARIANT_SIZE: dict[str, Any] = {"n_layer": 3, "n_head": 2, "d_model": 32, "block_size": 128, "vocab_size": 256}
TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "vocab.json", "tokenizer.model")
FACTORY = "build"  # the factory of a file named without one


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
        return stored_model(path, which, say)
    kind: Kind = "factory"
    model, tokenizer = nn.Module(), None
    if text in VARIANTS:
        kind, model = "variant", build_model(variant(text, **VARIANT_SIZE), seed=0)
    elif (path / "config.json").is_file():
        kind = "hf"
        model, tokenizer = _hugging_face(path, trust_remote_code)
    elif path.is_dir():
        raise InputError(f"{text} holds no model: neither a run nor config.json of a Hugging Face model")
    elif ":" in text or path.suffix == ".py":
        model = _made_by_factory(text)
    elif len(path.parts) > 1:
        raise InputError(f"{text} does not exist: name a run folder, a Hugging Face folder, or a variant")
    else:
        raise unknown_name("model", text, [*VARIANTS, "a folder", "module:factory", "file.py:factory"])
    size = vocab_size_of(model.eval()) if vocab_size is None else vocab_size
    return Opened(text, kind, model.eval(), tokenizer, size, block_size_of(model), path if kind == "hf" else None)


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


def _hugging_face(folder: Path, trust_remote_code: bool) -> tuple[nn.Module, HFTokenizer | None]:
    """The model and tokenizer of a folder: its own files only, no pickled weights, foreign code only if trusted."""
    if find_spec("transformers") is None:
        raise missing_extra(f"{folder}, a Hugging Face model,", "transformers", "hf")
    import transformers
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    config = read_json(folder / "config.json")
    if "auto_map" in config and config.get("model_type") not in list(CONFIG_MAPPING) and not trust_remote_code:
        raise InputError(f"the model in {folder} comes with code of its own: read it, then give --trust_remote_code")
    if not any(folder.glob("*.safetensors")):
        raise InputError(
            f"{folder} has no .safetensors weights: save them as safetensors, pickled weights are not read"
        )
    calm_onednn()  # it may compute in bfloat16
    options: dict[str, Any] = {"local_files_only": True, "trust_remote_code": trust_remote_code}
    weights: dict[str, Any] = {"dtype": torch.float32, "output_loading_info": True}
    load: Any = transformers.AutoModelForCausalLM.from_pretrained
    if is_accelerated(config):
        load = load_accelerated
    else:
        weights["use_safetensors"] = True
    try:
        model, loaded = load(folder, **weights, **options)
        tokenizer = None
        if any((folder / name).is_file() for name in TOKENIZER_FILES):
            tokenizer = HFTokenizer(transformers.AutoTokenizer.from_pretrained(folder, **options))
    except Exception as error:
        raise InputError(f"{folder} does not load as a Hugging Face language model: {one_line(error)}") from error
    if lost := sorted(loaded["missing_keys"]):  # transformers would go on with random ones
        raise InputError(f"the weights in {folder} lack {', '.join(lost[:3])}: save them again")
    return model, tokenizer


def _made_by_factory(text: str) -> nn.Module:
    """The module that `package.module:factory` or `path/to/file.py:factory` returns, made with seed 0."""
    place, _, name = text.partition(":")
    beside = str((Path(place).parent if place.endswith(".py") else Path()).resolve())
    calm_onednn()  # it may compute in bfloat16
    sys.path.insert(0, beside)  # and import what lies there
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            model = _called(_module(place), place, name or FACTORY)
    finally:
        sys.path.remove(beside)
    if not isinstance(model, nn.Module):
        raise InputError(f"the factory {text} must return a torch.nn.Module, it returned {type(model).__name__}")
    return as_text_model(model)


def _called(module: ModuleType, place: str, name: str) -> Any:
    """What a factory returns."""
    factory = getattr(module, name, None)
    if not callable(factory):
        known = [key for key, value in vars(module).items() if callable(value) and not key.startswith("_")]
        raise unknown_name(f"factory in {place}:", name, known)
    try:
        return factory()
    except Exception as error:
        why = one_line(error)
        raise InputError(f"the factory {place}:{name} failed when called without arguments: {why}") from error


def _module(place: str) -> ModuleType:
    """Import a module by its dotted name, or a file by its path."""
    try:
        if not place.endswith(".py"):
            return import_module(place)
        spec = spec_from_file_location(f"sympformer_target_{Path(place).stem}", place)  # hides no module's name
        assert spec is not None
        assert spec.loader is not None
        module = sys.modules[spec.name] = module_from_spec(spec)  # dataclasses look their module up
        spec.loader.exec_module(module)
        return module
    except FileNotFoundError as error:
        raise InputError(f"{place} does not exist") from error
    except Exception as error:
        raise InputError(f"cannot import {place}: {one_line(error)}") from error
