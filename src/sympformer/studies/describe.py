"""`sympformer describe`: what a model is, in numbers; or what the machine is."""

from typing import Any, Literal

from sympformer.errors import InputError
from sympformer.machine import report


def describe(
    name: str = "softmax-exp-euler",
    preset: Literal["tuned", "full", "paper", "paper-spd", "modern"] = "tuned",
    n_layer: int = 4,
    n_head: int = 4,
    d_model: int = 64,
    block_size: int = 128,
    vocab_size: int = 50304,
    machine: bool = False,
    *,
    given: dict[str, Any],
) -> None:
    """Print a model's parameters by part, its kernel passes, and the scalars of every layer with their meaning.

    A variant is freshly built, in any size; the model of a folder is as it was trained.

    Args:
        name: One of the fourteen variants, such as softmax-exp-euler or linear-baseline, or a folder with a model.
        preset: Of a variant: tuned (ours), full (with all terms of the flow), the paper's to the letter or under its
            assumptions, or modern.
        n_layer: Of a variant: number of layers.
        n_head: Of a variant: number of heads.
        d_model: Of a variant: width of a token.
        block_size: Of a variant: longest context in tokens.
        vocab_size: Of a variant: number of token ids.
        machine: Print instead what this machine is: cores, instruction sets, what is broken, threads, memory.
    """
    if machine:
        print(report())
        return
    from sympformer.models import VARIANTS, LanguageModel, build_model, variant
    from sympformer.opening import open_model

    if name in VARIANTS:
        sizes = {"n_layer": n_layer, "n_head": n_head, "d_model": d_model, "block_size": block_size}
        print(build_model(variant(name, preset, vocab_size=vocab_size, **sizes)).describe())
        return
    if own := [option for option in given if option not in ("name", "machine")]:
        raise InputError(f"the model in {name} has its preset and sizes: leave {own[0]} out")
    model = open_model(name).model
    if not isinstance(model, LanguageModel):
        raise InputError(f"{name} is a {type(model).__name__}: describe knows the models of this package")
    print(model.describe())
