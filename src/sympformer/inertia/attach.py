"""Give a model's residual blocks a momentum, and take it away again."""

import copy
import threading
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple, TypeVar

from torch import Tensor, nn

from sympformer.errors import InputError, unknown_name
from sympformer.inertia.step import KEY, Inertia, InertiaConfig, Momentum
from sympformer.inertia.trial import positions_in, positions_out, try_blocks

Model = TypeVar("Model", bound=nn.Module)
Blocks = str | Callable[[nn.Module], nn.Module]
PART, MARK = "inertia", "_sympformer_inertia"  # names of the part in a block, and of what the owner remembers

# model_type of a Hugging Face config -> where its base model keeps the blocks
FAMILIES: dict[str, str] = {"gpt2": "h", "llama": "layers", "qwen2": "layers", "qwen3": "layers", "vit": "layers"}
POST_NORM = ("albert", "bert", "camembert", "distilbert", "electra", "openai-gpt", "roberta", "xlm-roberta")


def accelerate(
    model: Model,
    integrator: str = "plain_euler",
    *,
    blocks: Blocks | None = None,
    damping: str | None = None,
    start: Mapping[str, float] | None = None,
    per_channel: bool = False,
    example: Any = None,
) -> Model:
    """Let a momentum run through the residual blocks of a model: the same model, changed in place.

        drift, y = integrator step from (0, y) on x' = y, y' = block(x) - x - alpha y        x = block(x) + gain drift

    Gains start at zero, so that the model computes what it did before, to the last bit; they and the other scalars
    (h, and factor or c_log and c_lin) are parameters of the blocks and learn with the rest.

    integrator: a scheme with one evaluation a step, as plain_euler, exp_euler or ab2. blocks: dotted name of the
    ModuleList that holds the blocks, or a function from the model to it; known for GPT-2, Llama, Qwen 2 and 3 and ViT
    of Hugging Face. damping: constant (default), nesterov or log-linear, for all schemes but plain_euler. start: other
    starting values, by name. per_channel: a gain for every channel. example: an input of the model (a tensor, a tuple
    of arguments, a mapping), to try the blocks on; made for models of Hugging Face. Raises InputError where a block is
    no residual step.
    """
    if any(hasattr(module, MARK) for module in model.modules()):
        raise InputError(f"{type(model).__name__} is accelerated already: decelerate it first")
    if hasattr(getattr(model, "config", None), KEY):
        raise InputError(
            "the model was saved accelerated and loaded without its scalars: load it with sympformer.load_accelerated"
        )
    place = find_blocks(model, blocks)
    chosen = {"integrator": integrator, "damping": damping, "start": dict(start or {}), "per_channel": per_channel}
    InertiaConfig.from_dict({**chosen, "width": 1})  # wrong choices before the trial, which takes longer
    width = try_blocks(model, place.blocks, example)
    config = InertiaConfig.from_dict({**chosen, "width": width, "blocks": None if blocks is None else place.name})
    attach(model, config)
    if (shared := getattr(model, "config", None)) is not None:
        own = copy.deepcopy(shared)  # other models may have been built from this one
        setattr(own, KEY, config.to_dict())
        for module in model.modules():
            if getattr(module, "config", None) is shared:
                module.config = own
    return model


def decelerate(model: Model) -> Model:
    """Take the momentum away: the plain model, changed in place. Raises InputError where that would change its output.

    It does not where every gain is zero.
    """
    owner, stack = _stack(model)
    parts = inertia_parts(model)
    if any(not isinstance(part, Inertia) for part in parts.values()):
        raise InputError("the scalars belong to an adapter: merge it first (merge_and_unload)")
    used = {f"{name}.gain": part.report()["gain"] for name, part in parts.items() if bool(part.gain.any())}
    if used:
        values = ", ".join(f"{name} = {value:.3g}" for name, value in list(used.items())[:3])
        more = f" and {len(used) - 3} more" if len(used) > 3 else ""
        raise InputError(f"the model uses its momentum, and without it gives other outputs: {values}{more} must be 0")
    for hook in stack.hooks:
        hook.remove()
    for name in stack.blocks:
        delattr(owner.get_submodule(name), PART)
    delattr(owner, MARK)
    if hasattr(getattr(model, "config", None), KEY):
        delattr(model.config, KEY)
    return model


def inertia_scalars(model: nn.Module) -> dict[str, dict[str, float]]:
    """The present scalars of every block of an accelerated model, by the name of their module."""
    return {name: part.report() for name, part in inertia_parts(model).items()}


def inertia_parts(model: nn.Module) -> dict[str, Any]:
    """The modules that hold the scalars of an accelerated model, by name, first block to last."""
    owner, stack = _stack(model)
    prefix = next(name for name, module in model.named_modules() if module is owner)
    paths = [".".join(filter(None, (prefix, name, PART))) for name in stack.blocks]
    return {path: model.get_submodule(path) for path in paths}


def attach(model: nn.Module, config: InertiaConfig) -> None:
    """Put parts and hooks into the blocks, untried."""
    place = find_blocks(model, config.blocks)
    taken = next((name for name, block in place.blocks.items() if hasattr(block, PART)), None)
    if taken is not None:
        raise InputError(f"{taken} has something of its own that is called {PART!r}: rename it there")
    passing, depth = Pass(), len(place.owner_name) + 1 if place.owner_name else 0
    hooks = [
        place.owner.register_forward_pre_hook(passing.begin, prepend=True),
        place.owner.register_forward_hook(passing.end, always_call=True),
    ]
    for i, (name, block) in enumerate(place.blocks.items()):
        at = next(block.parameters(), None)
        part = Inertia(config, last=i == len(place.blocks) - 1)
        block.add_module(PART, part if at is None else part.to(at.device))
        # before all other hooks: what they see of a block (hidden states, for one) includes its momentum
        step = partial(passing.step, name)
        hooks.append(block.register_forward_hook(step, prepend=True, with_kwargs=True))
    setattr(place.owner, MARK, Stack([name[depth:] for name in place.blocks], hooks))


class Stack(NamedTuple):
    """What the owner of accelerated blocks remembers: their names and the hooks."""

    blocks: list[str]
    hooks: list[Any]


class Pass(threading.local):
    """The momentum on its way through a pass of the owner, one for every thread; the methods are hooks."""

    running = False
    momentum: Momentum | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return Pass, ()  # a copy of a model is at rest

    def begin(self, owner: nn.Module, args: Any) -> None:
        """Before the owner's pass: at rest."""
        self.running, self.momentum = True, None

    def end(self, owner: nn.Module, args: Any, output: Any) -> None:
        """Behind it, also where it failed: the last momentum is let go."""
        self.running, self.momentum = False, None

    def step(self, name: str, block: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> Any:
        """Behind a block: its update becomes a kick, the momentum a drift."""
        if not self.running:
            raise InputError(
                f"{name} of an accelerated model ran alone, but its momentum comes from the blocks before it: run"
                " the whole model (checkpoint a block's forward, not the block)"
            )
        x, out, before = positions_in(block, args, kwargs), positions_out(output), self.momentum
        if not isinstance(out, Tensor) or not isinstance(x, Tensor) or out.shape != x.shape:
            raise InputError(f"{name} changes the shape of its input: it is no residual block")
        if before is not None and before.y.shape != out.shape:
            raise InputError(
                f"{name} works on {tuple(out.shape)} where the block before it had {tuple(before.y.shape)}: a momentum"
                " runs through blocks of one shape only"
            )
        x_next, self.momentum = block.get_submodule(PART)(x, out, before)
        return x_next if isinstance(output, Tensor) else type(output)([x_next, *output[1:]])


def _stack(model: nn.Module) -> tuple[nn.Module, Stack]:
    for module in model.modules():
        if isinstance(stack := getattr(module, MARK, None), Stack):
            return module, stack
    raise InputError(f"{type(model).__name__} is not accelerated")


# --- where a model keeps its residual blocks


class Place(NamedTuple):
    """The blocks of a model, their dotted names, and the module whose pass runs through them, once each time."""

    name: str
    blocks: dict[str, nn.Module]
    owner: nn.Module
    owner_name: str


def find_blocks(model: nn.Module, blocks: Blocks | None) -> Place:
    """The residual blocks of a model: by family, by dotted name, or by a function."""
    if hasattr(model, "peft_config"):
        raise InputError("the model has adapters: accelerate it first, then attach them")
    modules, kind = dict(model.named_modules(remove_duplicate=False)), type(model).__name__
    if callable(blocks):
        given = blocks(model)
        name = next((n for n, module in modules.items() if module is given), None)
        if name is None:
            raise InputError(f"blocks= gave {type(given).__name__}, which is not a module of {kind}")
    else:
        name = _by_family(model) if blocks is None else blocks
    if name not in modules:
        raise InputError(f"{kind} has no module {name!r}: say with blocks= where its blocks are")
    found = modules[name]
    if not isinstance(found, nn.ModuleList | nn.Sequential) or len(found) == 0:
        raise InputError(
            f"{name} of {kind} is {type(found).__name__}: blocks= must name a torch.nn.ModuleList of residual blocks"
        )
    owner = name  # the nearest module at or above the blocks that has a forward pass; a ModuleDict on the way has none
    while owner and type(modules[owner]).forward is nn.Module.forward:
        owner = owner.rpartition(".")[0]
    if type(modules[owner]).forward is nn.Module.forward:
        raise InputError("the blocks' model has no forward pass: hand in the model that runs them")
    return Place(name, {f"{name}.{i}".lstrip("."): b for i, b in enumerate(found)}, modules[owner], owner)


def _by_family(model: nn.Module) -> str:
    family = getattr(getattr(model, "config", None), "model_type", None)
    if family is None:
        kind = type(model).__name__
        raise InputError(f"{kind} is not of a known family: say with blocks= where its residual blocks are")
    if family in POST_NORM:
        raise InputError(
            f"{family} normalises after it adds (post-norm), so its blocks are no residual steps that a momentum could"
            " carry on: take a pre-norm model"
        )
    if family not in FAMILIES:
        raise unknown_name("family", family, [*FAMILIES, "any other with blocks="])
    prefix = str(getattr(model, "base_model_prefix", ""))
    return f"{prefix}.{FAMILIES[family]}" if prefix and hasattr(model, prefix) else FAMILIES[family]
