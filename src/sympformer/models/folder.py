"""A model in a folder, in the form that transformers loads, written and read without it.

config.json          the sizes under the names that tools look for, all other options under `model_options`
model.safetensors    `model.body.NAME` for every weight NAME, and `lm_head.weight` where the head has one of its own
"""

import json
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from sympformer.errors import InputError
from sympformer.files import read_json
from sympformer.models.config import SIZES, ModelConfig
from sympformer.models.model import LanguageModel, build_model

CONFIG, WEIGHTS, INDEX, GENERATION = (
    "config.json", "model.safetensors", "model.safetensors.index.json", "generation_config.json",
)  # fmt: skip
KIND, CLASS = "sympformer", "SympFormerForCausalLM"
PREFIX, HEAD = "model.body.", {"head.weight": "lm_head.weight"}
PICKLES = ("pytorch_model.bin", "pytorch_model.bin.index.json", "model.pt", "model.pth")
Tensors = dict[str, Tensor]


def config_files(cfg: ModelConfig, end_of_text: int) -> dict[str, str]:
    """config.json and generation_config.json: file name -> content."""
    options = cfg.to_dict()
    sizes = {name: options.pop(own) for name, own in SIZES.items()}
    special = {f"{place}_token_id": end_of_text for place in ("bos", "eos", "pad")}
    about = {"architectures": [CLASS], "model_type": KIND, "dtype": "float32"}
    whole = {**about, **sizes, "model_options": options, **special, "use_cache": True}
    return {CONFIG: json.dumps(whole, indent=2) + "\n", GENERATION: json.dumps(special, indent=2) + "\n"}


def read_config(folder: Path) -> ModelConfig:
    """The ModelConfig in a folder's config.json."""
    values = read_json(folder / CONFIG)
    try:
        options = {own: values[name] for name, own in SIZES.items() if name in values}
        return ModelConfig.from_dict({**(values.get("model_options") or {}), **options})
    except (InputError, TypeError, ValueError) as error:
        raise InputError(f"{folder / CONFIG} does not read: {error}") from error


def saved_names(tensors: Mapping[str, Tensor]) -> Tensors:
    """Weights by the names that they have in a folder."""
    return {HEAD.get(name, PREFIX + name): tensor for name, tensor in tensors.items()}


def own_names(tensors: Mapping[str, Tensor], cfg: ModelConfig) -> Tensors:
    """And back. A head that is tied may be saved beside the table that it is."""
    own = {theirs: name for name, theirs in HEAD.items() if not cfg.tie_head}
    tied = set(HEAD.values()) if cfg.tie_head else set()
    return {own.get(name, name.removeprefix(PREFIX)): tensor for name, tensor in tensors.items() if name not in tied}


def is_own(folder: Path) -> bool:
    """Whether a folder holds a model of this package."""
    return (folder / CONFIG).is_file() and read_json(folder / CONFIG).get("model_type") == KIND


def read_weights(folder: Path) -> tuple[Tensors, dict[str, str]]:
    """The weights in a folder, in one file or several, by the names that they have there; and what a header says."""
    if not (folder / WEIGHTS).is_file() and not (folder / INDEX).is_file():
        pickled = next((name for name in PICKLES if (folder / name).exists()), None)
        why = f"; {pickled} is pickled, which can run any program, and is not read" if pickled else ""
        raise InputError(f"{folder} has no {WEIGHTS}: it is not whole{why}")
    one = (folder / WEIGHTS).is_file()
    files = [WEIGHTS] if one else sorted(set(read_json(folder / INDEX).get("weight_map", {}).values()))
    tensors, about = Tensors(), dict[str, str]()
    for name in files:
        path = folder / Path(name).name
        try:
            path.open("rb").close()  # says what is wrong, where the library says "No such file" of one that is denied
            with safe_open(path, "pt") as file:
                about |= file.metadata() or {}
                tensors |= {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118  (it is no mapping)
        except (OSError, SafetensorError) as error:
            raise InputError(f"cannot read {folder / name} ({error}): take a fresh copy of it") from error
    return tensors, about


def build_from(cfg: ModelConfig, tensors: Mapping[str, Tensor], where: Path) -> LanguageModel:
    """The model of a config with these weights, in float32. Every weight must be there and fit."""
    with torch.device("meta"):
        wanted = {name: tensor.shape for name, tensor in build_model(cfg).state_dict().items()}
    check_fit(wanted, tensors, where)
    model = build_model(cfg, seed=0)
    model.load_state_dict({name: tensor.float() for name, tensor in tensors.items()})
    return model.eval()


def check_fit(wanted: Mapping[str, torch.Size], tensors: Mapping[str, Tensor], where: Path) -> None:
    """Refuse weights of other names or shapes than a model has."""
    for what, names in (("missing", wanted.keys() - tensors.keys()), ("unexpected", tensors.keys() - wanted.keys())):
        if names:
            raise InputError(f"the weights in {where} belong to another model: {what} {min(names)} (of {len(names)})")
    if wrong := [name for name in wanted if wanted[name] != tensors[name].shape]:
        raise InputError(f"the weights in {where} belong to another model: {wrong[0]} has another shape")
