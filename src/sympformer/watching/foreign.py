"""Models of others: any Hugging Face causal model that gives hidden states. Whole layers, no momenta."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from sympformer.errors import InputError
from sympformer.watching.physics import Physics
from sympformer.watching.record import Readout, Record, Stage

NO_MOMENTUM = "No Hamiltonian: this model moves its tokens without momentum."
CLOSE = 1e-3  # of the largest logit: what kernels of another order of sums may differ by


def watch_foreign(model: nn.Module, idx: Tensor, rows: tuple[int, ...]) -> tuple[Record, Readout | None]:
    """The record of a model, and what makes logits of its states; None where they are not norm and head alone."""
    asked: dict[str, Any] = {"output_hidden_states": True, "use_cache": False, "return_dict": True}
    with _last_norm(model) as norms, _rows_shown(model, bool(rows)):
        try:
            output = model(idx, **asked, **({"output_attentions": True} if rows else {}))
        except (TypeError, RuntimeError, ValueError, IndexError) as error:
            why = " ".join(str(error).split())
            raise InputError(f"{type(model).__name__} cannot be watched on {tuple(idx.shape)} tokens: {why}") from error
    states = getattr(output, "hidden_states", None)
    if not states:
        raise InputError(f"{type(model).__name__} gives no hidden states: watch a model of sympformer or transformers")
    x, read = _before_norm(model, list(states), norms, output.logits)
    stages = tuple(Stage(k, "layer" if k else "embedding") for k in range(len(x)))
    physics = Physics(NO_MOMENTUM, None, None, None, None, tuple({} for _ in stages[1:]))
    return Record(idx, stages, torch.stack(x), None, physics, rows, _attention(output, rows)), read


def _before_norm(
    model: Any, states: list[Tensor], norms: list[tuple[nn.Module, Tensor, Tensor]], logits: Tensor
) -> tuple[list[Tensor], Readout | None]:
    """States of one kind: the last one comes normalised, and is taken from before its norm where that is found."""
    head, norm = model.get_output_embeddings(), None
    if norms and norms[0][2].shape == states[-1].shape and torch.equal(norms[0][2], states[-1]):
        norm, states[-1] = norms[0][0], norms[0][1]

    def read(x: Tensor) -> Tensor:
        return head(x if norm is None else norm(x))

    if head is None or (read(states[-1]) - logits).abs().max() > CLOSE * logits.abs().max():
        return states, None
    return states, read


def _attention(output: Any, rows: tuple[int, ...]) -> Tensor | None:
    if not rows:
        return None
    found = getattr(output, "attentions", None)
    if not found or any(layer is None for layer in found):
        raise InputError("this model does not show its attention rows: watch it with attention=False")
    return torch.stack([layer[:, :, list(rows)] for layer in found])


@contextmanager
def _last_norm(model: nn.Module) -> Iterator[list[tuple[nn.Module, Tensor, Tensor]]]:
    """The norm that was called last within the block, its input and its output."""
    last: list[tuple[nn.Module, Tensor, Tensor]] = []

    def keep(module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        if args and isinstance(args[0], Tensor) and isinstance(output, Tensor):
            last[:] = [(module, args[0], output)]

    with ExitStack() as hooks:
        for norm in (m for m in model.modules() if "norm" in type(m).__name__.lower()):
            hooks.enter_context(norm.register_forward_hook(keep))
        yield last


@contextmanager
def _rows_shown(model: Any, wanted: bool) -> Iterator[None]:
    """Attention by the kernel that holds its rows, within the block."""
    config = getattr(model, "config", None)
    before = getattr(config, "_attn_implementation", None)
    if not wanted or before in (None, "eager") or not hasattr(model, "set_attn_implementation"):
        yield
        return
    model.set_attn_implementation("eager")
    try:
        yield
    finally:
        model.set_attn_implementation(before)
