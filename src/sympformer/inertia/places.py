"""Where a model keeps its residual blocks: by family, by dotted name, or by a function."""

from collections.abc import Callable
from dataclasses import dataclass

from torch import nn

from sympformer.errors import InputError, unknown_name

Blocks = str | Callable[[nn.Module], nn.Module]

# model_type of a Hugging Face config -> where its base model keeps the blocks
FAMILIES: dict[str, str] = {"gpt2": "h", "llama": "layers", "qwen2": "layers", "qwen3": "layers", "vit": "layers"}
POST_NORM = ("albert", "bert", "camembert", "distilbert", "electra", "openai-gpt", "roberta", "xlm-roberta")


@dataclass(frozen=True)
class Place:
    """The blocks of a model, their dotted names, and the module whose pass runs through them, once each time."""

    name: str
    blocks: dict[str, nn.Module]
    owner: nn.Module
    owner_name: str


def find_blocks(model: nn.Module, blocks: Blocks | None) -> Place:
    """The residual blocks of a model."""
    if hasattr(model, "peft_config"):
        raise InputError("the model has adapters: accelerate it first, then attach them")
    name = _by_family(model) if blocks is None else _named(model, blocks)
    modules = dict(model.named_modules(remove_duplicate=False))
    if name not in modules:
        raise InputError(f"{type(model).__name__} has no module {name!r}: say with blocks= where its blocks are")
    found = modules[name]
    if not isinstance(found, nn.ModuleList | nn.Sequential) or len(found) == 0:
        raise InputError(
            f"{name} of {type(model).__name__} is {type(found).__name__}: blocks= must name a torch.nn.ModuleList that"
            " holds residual blocks"
        )
    owner = _owner(modules, name)
    blocks_by_name = {f"{name}.{i}".lstrip("."): block for i, block in enumerate(found)}
    return Place(name, blocks_by_name, modules[owner], owner)


def _by_family(model: nn.Module) -> str:
    family = getattr(getattr(model, "config", None), "model_type", None)
    if family is None:
        raise InputError(
            f"{type(model).__name__} is not of a known family: say with blocks= where its residual blocks are"
        )
    if family in POST_NORM:
        raise InputError(
            f"{family} normalises after it adds (post-norm), so its blocks are no residual steps that a momentum could"
            " carry on: take a pre-norm model"
        )
    if family not in FAMILIES:
        raise unknown_name("family", family, [*FAMILIES, "any other with blocks="])
    prefix = str(getattr(model, "base_model_prefix", ""))
    return f"{prefix}.{FAMILIES[family]}" if prefix and hasattr(model, prefix) else FAMILIES[family]


def _named(model: nn.Module, blocks: Blocks) -> str:
    """The dotted name of the blocks."""
    if isinstance(blocks, str):
        return blocks
    found = blocks(model)
    for name, module in model.named_modules():
        if module is found:
            return name
    raise InputError(f"blocks= gave {type(found).__name__}, which is not a module of {type(model).__name__}")


def _owner(modules: dict[str, nn.Module], name: str) -> str:
    """The nearest module at or above the blocks that has a forward pass; a ModuleDict on the way has none."""
    while type(modules[name]).forward is nn.Module.forward:
        if not name:
            raise InputError("the blocks' model has no forward pass: hand in the model that runs them")
        name = name.rpartition(".")[0]
    return name
