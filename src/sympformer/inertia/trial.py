"""Try the blocks of a model once, before anything is changed: are they residual steps that a momentum can carry on?"""

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from sympformer.errors import InputError
from sympformer.inertia.places import Place

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


def try_blocks(model: nn.Module, place: Place, example: Any) -> int:
    """The width of the residual stream; raises InputError where a block is unfit.

    example: an input of the model, as a tensor, a tuple of arguments or a mapping. None: of Hugging Face's models one
    is made, and blocks of others are called alone.
    """
    widths: dict[str, int] = {}
    with torch.no_grad(), torch.random.fork_rng(devices=[]), _in_eval(model):
        example = _example(model) if example is None else example
        if example is None:
            for name, block in place.blocks.items():
                widths[name] = _try_alone(name, block)
        else:
            with _watched(place, widths):
                _run(model, example)
    for name in place.blocks:
        if name not in widths:
            raise InputError(f"{name} takes no part in a pass of the model: blocks= must name the blocks that do")
    return widths[next(iter(widths))]


def _run(model: nn.Module, example: Any) -> None:
    try:
        if isinstance(example, Mapping):
            model(**example)
        else:
            model(*(example if isinstance(example, tuple | list) else (example,)))
    except InputError:
        raise
    except Exception as error:
        line = " ".join(f"{type(error).__name__}: {error}".split())
        raise InputError(f"the model failed on the example: {line}") from error


@contextmanager
def _watched(place: Place, widths: dict[str, int]) -> Iterator[None]:
    """Within the block every pass of a block is followed by a trial of it."""

    def watch(name: str) -> Callable[..., None]:
        def look(block: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
            widths[name] = _check(name, block, args, kwargs)

        return look

    hooks = [b.register_forward_hook(watch(n), with_kwargs=True) for n, b in place.blocks.items()]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def _try_alone(name: str, block: nn.Module) -> int:
    """Call a block on positions of the width that its first weights have."""
    weights = next((p for p in block.parameters() if p.is_floating_point()), None)
    wanted = f"give example=, an input of the model: {name} cannot be tried alone"
    if weights is None:
        raise InputError(wanted)
    try:
        return _check(name, block, (weights.new_zeros(1, TOKENS, weights.shape[-1]),), {})
    except InputError:
        raise
    except Exception as error:
        raise InputError(f"{wanted} ({' '.join(str(error).split())})") from error


def _check(name: str, block: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
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
    if float(out.float().norm()) < KEPT * float(large.float().norm()):
        raise InputError(
            f"{name} does not carry its input on: it gives {_size(out):.2g} for positions of size {_size(large):.2g},"
            " as blocks do that normalise after they add (post-norm); take a pre-norm model"
        )
    return int(x.shape[-1])


def _size(x: Tensor) -> float:
    return float(x.float().square().mean().sqrt())


def _example(model: nn.Module) -> dict[str, Any] | None:
    """An input for a Hugging Face model; None for others."""
    config, weights = getattr(model, "config", None), next(model.parameters())
    quiet = {"use_cache": False} if hasattr(config, "use_cache") else {}
    match getattr(model, "main_input_name", None):
        case "input_ids":
            return {"input_ids": torch.arange(TOKENS, device=weights.device).remainder(2)[None], **quiet}
        case "pixel_values":
            size = config.image_size  # type: ignore[union-attr]
            height, width = size if isinstance(size, tuple | list) else (size, size)
            return {"pixel_values": weights.new_zeros(1, config.num_channels, height, width)}  # type: ignore[union-attr]
    return None


@contextmanager
def _in_eval(model: nn.Module) -> Iterator[None]:
    """Dropout off within the block; every module then goes back to its own mode."""
    modes = {module: module.training for module in model.modules()}
    model.eval()
    try:
        yield
    finally:
        for module, mode in modes.items():
            module.training = mode
