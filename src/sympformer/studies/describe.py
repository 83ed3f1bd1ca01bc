"""`sympformer describe`: what a model is, in numbers; or what the machine is."""

from typing import TYPE_CHECKING, Any, Literal

from sympformer.errors import InputError
from sympformer.machine import report

if TYPE_CHECKING:
    from sympformer.models import LanguageModel

SIZES = {"n_layer": 4, "n_head": 4, "d_model": 64, "block_size": 128, "vocab_size": 50304}


def describe(
    name: str = "softmax-exp-euler",
    preset: Literal["tuned", "full", "paper", "paper-spd", "modern"] | None = None,
    n_layer: int | None = None,
    n_head: int | None = None,
    d_model: int | None = None,
    block_size: int | None = None,
    vocab_size: int | None = None,
    machine: bool = False,
) -> None:
    """Print a model's parameters by part, its kernel passes, and the scalars of every layer with their meaning.

    A variant is freshly built, in any size; the model of a folder is as it was trained.

    Args:
        name: One of the fourteen variants, such as softmax-exp-euler or linear-baseline, or a folder with a model.
        preset: Of a variant: tuned (ours, unless given), full (with all terms of the flow), the paper's to the letter
            or under its assumptions, or modern.
        n_layer: Of a variant: number of layers, 4 unless given.
        n_head: Of a variant: number of heads, 4 unless given.
        d_model: Of a variant: width of a token, 64 unless given.
        block_size: Of a variant: longest context in tokens, 128 unless given.
        vocab_size: Of a variant: number of token ids, 50304 unless given.
        machine: Print instead what this machine is: cores, instruction sets, what is broken, threads, memory.
    """
    if machine:
        print(report())
        return
    from sympformer.models import VARIANTS, build_model, variant

    sizes = dict(zip(SIZES, (n_layer, n_head, d_model, block_size, vocab_size), strict=True))
    given = {option: value for option, value in sizes.items() if value is not None}
    if name in VARIANTS:
        model = build_model(variant(name, preset=preset or "tuned", **SIZES | given))
    else:
        model = _stored(name)
        if given or preset is not None:
            raise InputError(f"the model in {name} has its preset and sizes: leave {[*given, 'preset'][0]} out")
    print(model.describe())


def _stored(name: str) -> "LanguageModel":
    """The model of a run folder or a Hugging Face folder, in this package's own form."""
    from sympformer.models import LanguageModel
    from sympformer.opening import open_model

    opened: Any = open_model(name).model
    if hasattr(opened, "to_language_model"):
        opened = opened.to_language_model()
    if not isinstance(opened, LanguageModel):
        raise InputError(f"{name} is a {type(opened).__name__}: describe knows the models of this package")
    return opened
