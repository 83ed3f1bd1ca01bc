"""Give a model's residual blocks a momentum, and take it away again."""

import copy
import threading
from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

from torch import Tensor, nn

from sympformer.errors import InputError
from sympformer.inertia.config import KEY, InertiaConfig
from sympformer.inertia.places import Blocks, Place, find_blocks
from sympformer.inertia.step import Inertia, Momentum
from sympformer.inertia.trial import positions_in, positions_out, try_blocks

Model = TypeVar("Model", bound=nn.Module)
PART, MARK = "inertia", "_sympformer_inertia"  # names of the part in a block, and of what the owner remembers


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
    starting values, by name. per_channel: a gain for every channel. example: an input of the model, to try the blocks
    on; found for most. Raises InputError where a block is no residual step.
    """
    _refuse_twice(model)
    place = find_blocks(model, blocks)
    chosen = {"integrator": integrator, "damping": damping, "start": dict(start or {}), "per_channel": per_channel}
    InertiaConfig.from_dict({**chosen, "width": 1})  # wrong choices before the trial, which takes longer
    width = try_blocks(model, place, example)
    config = InertiaConfig.from_dict({**chosen, "width": width, "blocks": None if blocks is None else place.name})
    attach(model, config)
    if getattr(model, "config", None) is not None:
        _note(model, config)
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
    if getattr(getattr(model, "config", None), KEY, None) is not None:
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
    for i, block in enumerate(place.blocks.values()):
        at = next(block.parameters(), None)
        part = Inertia(config, last=i == len(place.blocks) - 1)
        block.add_module(PART, part if at is None else part.to(at.device))
    setattr(place.owner, MARK, Stack(place))


def _note(model: nn.Module, config: InertiaConfig) -> None:
    """Write the choices into the model's config, a copy of its own: other models may have been built from this one."""
    shared = model.config
    own = copy.deepcopy(shared)
    setattr(own, KEY, config.to_dict())
    for module in model.modules():
        if getattr(module, "config", None) is shared:
            module.config = own


# --- the way of the momentum through a pass


class Carried(threading.local):
    """The momentum between two blocks of a pass, one for every thread; `running` from the pass's start to its end."""

    running = False
    momentum: Momentum | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return Carried, ()  # a copy of a model is at rest


class Stack:
    """The hooks of one accelerated stack."""

    def __init__(self, place: Place) -> None:
        carried, depth = Carried(), len(place.owner_name) + 1 if place.owner_name else 0
        self.blocks = [name[depth:] for name in place.blocks]
        self.hooks = [
            place.owner.register_forward_pre_hook(PassBegins(carried), prepend=True),
            place.owner.register_forward_hook(PassEnds(carried), always_call=True),
        ]
        for name, block in place.blocks.items():
            # before all other hooks: what they see of a block (hidden states, for one) includes its momentum
            hook = BlockDone(name, carried)
            self.hooks.append(block.register_forward_hook(hook, prepend=True, with_kwargs=True))


class PassBegins:
    """Hook before the owner's pass: at rest."""

    def __init__(self, carried: Carried) -> None:
        self.carried = carried

    def __call__(self, owner: nn.Module, args: Any) -> None:
        self.carried.running, self.carried.momentum = True, None


class PassEnds:
    """Hook behind the owner's pass, also where it failed: the last momentum is let go."""

    def __init__(self, carried: Carried) -> None:
        self.carried = carried

    def __call__(self, owner: nn.Module, args: Any, output: Any) -> None:
        self.carried.running, self.carried.momentum = False, None


class BlockDone:
    """Hook behind a block: its update becomes a kick, the momentum a drift."""

    def __init__(self, name: str, carried: Carried) -> None:
        self.name, self.carried = name, carried

    def __call__(self, block: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> Any:
        if not self.carried.running:
            raise InputError(
                f"{self.name} of an accelerated model ran alone, but its momentum comes from the blocks before it: run"
                " the whole model (checkpoint a block's forward, not the block)"
            )
        x, out, before = positions_in(block, args, kwargs), positions_out(output), self.carried.momentum
        _check_shapes(self.name, x, out, before)
        x_next, self.carried.momentum = block.get_submodule(PART)(x, out, before)
        return x_next if isinstance(output, Tensor) else type(output)([x_next, *output[1:]])


def _check_shapes(name: str, x: Any, out: Any, before: Momentum | None) -> None:
    if not isinstance(out, Tensor) or not isinstance(x, Tensor) or out.shape != x.shape:
        raise InputError(f"{name} changes the shape of its input: it is no residual block")
    if before is not None and before.y.shape != out.shape:
        raise InputError(
            f"{name} works on {tuple(out.shape)} where the block before it had {tuple(before.y.shape)}: a momentum runs"
            " through blocks of one shape only"
        )


def _stacks(model: nn.Module) -> Iterator[tuple[nn.Module, Stack]]:
    for module in model.modules():
        if isinstance(stack := getattr(module, MARK, None), Stack):
            yield module, stack


def _stack(model: nn.Module) -> tuple[nn.Module, Stack]:
    found = next(_stacks(model), None)
    if found is None:
        raise InputError(f"{type(model).__name__} is not accelerated")
    return found


def _refuse_twice(model: nn.Module) -> None:
    if next(_stacks(model), None) is not None:
        raise InputError(f"{type(model).__name__} is accelerated already: decelerate it first")
    if getattr(getattr(model, "config", None), KEY, None) is not None:
        raise InputError(
            "the model was saved accelerated and loaded without its scalars: load it with sympformer.load_accelerated"
        )
