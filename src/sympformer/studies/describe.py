"""`sympformer describe`: what a variant is, in numbers; or what the machine is."""

from typing import Literal

from sympformer.machine import report
from sympformer.models import build_model, variant


def describe(
    name: str = "softmax-exp-euler",
    preset: Literal["tuned", "paper", "paper-spd", "modern"] = "tuned",
    n_layer: int = 4,
    n_head: int = 4,
    d_model: int = 64,
    block_size: int = 128,
    vocab_size: int = 50304,
    machine: bool = False,
) -> None:
    """Print a variant's parameters by part, its kernel passes, and the starting scalars of every layer.

    Args:
        name: One of the fourteen variants, such as softmax-exp-euler or linear-baseline.
        preset: Ours (tuned), the paper's model to the letter, the same under the paper's assumptions, or newer parts.
        n_layer: Number of layers.
        n_head: Number of heads.
        d_model: Width of a token.
        block_size: Longest context, in tokens.
        vocab_size: Number of token ids.
        machine: Print instead what this machine is: cores, instruction sets, what is broken, threads, memory.
    """
    if machine:
        print(report())
        return
    size = {
        "n_layer": n_layer,
        "n_head": n_head,
        "d_model": d_model,
        "block_size": block_size,
        "vocab_size": vocab_size,
    }
    print(build_model(variant(name, preset=preset, **size)).describe())
