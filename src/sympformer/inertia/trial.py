"""Try the blocks of a model once, before anything is changed: are they residual steps that a momentum can carry on?"""

import inspect
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor, nn

from sympformer.errors import InputError

LARGE = 1e3  # size of the positions that a block is tried at; what a residual block adds is far smaller
KEPT = 0.1  # of that size must still be there behind the block
TOKENS = 4


def positions_in(block: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """The first argument of a block, however it was passed."""
    return args[0] if args else kwargs.get(_first_name(block))


def _first_name(block: nn.Module) -> str:
    return next(iter(inspect.signature(block.forward).parameters), "")


def positions_out(output: Any) -> Any:
    """What a block returned, or the first part of it."""
    return output[0] if isinstance(output, tuple | list) and output else output


def try_blocks(model: nn.Module, blocks: Mapping[str, nn.Module], example: Any) -> int:
    """The width of the residual stream; raises InputError where a block is unfit.

    example: an input of the model, as a tensor, a tuple of arguments or a mapping. None: of Hugging Face's models one
    is made.
    """
    widths: dict[str, int] = {}

    def look(block: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
        name = next(name for name, one in blocks.items() if one is block)
        widths[name] = _width(name, block, args, kwargs)

    modes = {module: module.training for module in model.modules()}
    with torch.no_grad(), torch.random.fork_rng(devices=[]), ExitStack() as hooks:
        for block in blocks.values():
            hooks.enter_context(block.register_forward_hook(look, with_kwargs=True))
        try:
            _run(model.eval(), _example(model) if example is None else example)
        finally:
            for module, mode in modes.items():
                module.training = mode
    for name in blocks:
        if name not in widths:
            raise InputError(f"{name} takes no part in a pass of the model: blocks= must name the blocks that do")
    return next(iter(widths.values()))


def _run(model: nn.Module, example: Any) -> None:
    arguments = example if isinstance(example, tuple | list) else (example,)
    try:
        model(**example) if isinstance(example, Mapping) else model(*arguments)
    except InputError:
        raise
    except Exception as error:
        line = " ".join(f"{type(error).__name__}: {error}".split())
        raise InputError(f"the model failed on the example: {line}") from error


def _example(model: nn.Module) -> dict[str, Any]:
    config: Any = getattr(model, "config", None)
    weights = next(model.parameters())
    match getattr(model, "main_input_name", None):
        case "input_ids":
            quiet = {"use_cache": False} if hasattr(config, "use_cache") else {}
            return {"input_ids": torch.arange(TOKENS, device=weights.device).remainder(2)[None], **quiet}
        case "pixel_values":
            size = config.image_size
            height, width = size if isinstance(size, tuple | list) else (size, size)
            return {"pixel_values": weights.new_zeros(1, config.num_channels, height, width)}
    raise InputError(f"give example=, an input of {type(model).__name__}: its blocks are tried once in a pass")


def _width(name: str, block: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
    """Run a block again on large positions, with all else as it was; the width, if it is a residual step."""
    x = positions_in(block, args, kwargs)
    if not isinstance(x, Tensor) or not x.is_floating_point():
        raise InputError(f"{name} takes {type(x).__name__} first: a residual block takes the positions")
    noise = torch.randn(x.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    large = (LARGE * noise).to(x)
    given, others = large.clone(), {k: v for k, v in kwargs.items() if args or k != _first_name(block)}
    out = positions_out(block.forward(given, *args[1:], **others))
    if not isinstance(out, Tensor) or out.shape != x.shape:
        shape = tuple(out.shape) if isinstance(out, Tensor) else type(out).__name__
        raise InputError(f"{name} changes the shape of its input, {tuple(x.shape)} to {shape}: it is no residual block")
    if not torch.equal(given, large):
        raise InputError(f"{name} changes its input in place, so its update cannot be told: write x = x + ... there")
    before, after = (float(u.float().square().mean().sqrt()) for u in (large, out))
    if after < KEPT * before:
        raise InputError(
            f"{name} does not carry its input on: it gives {after:.2g} for positions of size {before:.2g},"
            " as blocks do that normalise after they add (post-norm); take a pre-norm model"
        )
    return int(x.shape[-1])
