"""`sympformer.watch(model, idx)`: run a model on a text, and keep what its tokens do on the way."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sympformer.errors import InputError
from sympformer.models import LanguageModel
from sympformer.nn import Layer, Stack, State, View
from sympformer.nn.stack import Constants
from sympformer.watching.foreign import watch_foreign
from sympformer.watching.physics import gather, sighted
from sympformer.watching.record import Half, Readout, Record, Stage, look


@torch.no_grad()
def watch(model: nn.Module, idx: Tensor, *, attention: bool | Sequence[int] = False, lens: int = 0) -> Record:
    """Every token's position and momentum after the embedding and after each half of each layer, and the physics.

    model: a `LanguageModel`, its Hugging Face form, any other `nn.Stack` such as an encoder, or any Hugging Face causal
    model that gives hidden states (whole layers, no momenta). idx: (B, T) token ids, or what a stack takes, (B, T, d).
    attention: True keeps all attention rows, a sequence of places those of its tokens; they are (layers, B, heads,
    rows, T), so ask for what you need. lens: keep so many best guesses of the next token at every stage. The model is
    run in evaluation mode and left as it was.
    """
    model, rows = native(model), _rows(attention, idx)
    if lens < 0:
        raise InputError(f"lens is a number of guesses, got {lens}")
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        seen, read = _watch_ours(model, idx, rows) if isinstance(model, Stack) else watch_foreign(model, idx, rows)
        if lens and read is None:
            raise InputError(
                "this model has no logits that are its final norm and head applied to its states: watch with lens=0"
            )
        return Record(**vars(seen) | {"lens": look(read, seen.x, seen.idx, lens)}) if lens and read else seen
    finally:
        for module, training in modes:
            module.training = training


def readout(model: nn.Module) -> Readout:
    """What makes logits of positions: the final norm and the head of a language model of ours."""
    model = native(model)
    if not isinstance(model, LanguageModel):
        raise InputError(f"{type(model).__name__} has no readout of ours: watch it with lens=5")
    return lambda x: F.linear(model.norm(x), model.head_weight)


def native(model: nn.Module) -> nn.Module:
    """The language model in the Hugging Face form of one; any other model as it is."""
    made: Any = getattr(model, "to_language_model", None)
    return model if made is None else made()


def _rows(attention: bool | Sequence[int], idx: Tensor) -> tuple[int, ...]:
    T = idx.shape[1] if idx.ndim > 1 else 0
    rows = tuple(range(T) if attention else ()) if isinstance(attention, bool) else tuple(attention)
    if wrong := [row for row in rows if not 0 <= row < T]:
        raise InputError(f"attention asks for the row of token {wrong[0]} in a text of {T} tokens, counted from 0")
    return rows


class _Tape:
    """What is kept of a stack on its way."""

    def __init__(self, rows: tuple[int, ...]) -> None:
        self.rows = rows
        self.stages: list[tuple[Stage, State]] = []
        self.asked: list[tuple[Tensor, Any]] = []  # what attention was asked at, and its fields
        self.figures: list[dict[str, Tensor]] = []
        self.attention: list[Tensor] = []

    def run(self, layer: Layer, state: State, view: View, constants: Constants, k: int) -> State:
        """Layer k (from 0), by halves."""
        if k == 0:
            self.stages.append((Stage(0, "embedding"), state))
        view = view._replace(kernels=[] if self.rows else None)
        state = layer.ahead(state, view)
        for half, name in enumerate(layer.stepper.halves):
            y, state = state.y, layer.take(half, state, view, constants)
            if not half:
                self.figures.append(sighted(layer.stepper, y, *self.asked[-1]))
            whole = layer.parallel and layer.mlp is not None
            self.stages.append((Stage(k + 1, cast(Half, "layer" if whole else name)), state))
        if view.kernels:
            heads = 1 if layer.attention.cfg.heads == "averaged" else None  # one kernel, left under every head
            self.attention.append(view.kernels[0][:, :heads, list(self.rows)])
        return state

    @contextmanager
    def running(self, stack: Any) -> Iterator[None]:
        """Within the block its layers run by the tape, whatever the stack does around them."""

        def advance(state: State, view: View, memories: Any = None, constants: Any = None, _: Any = None) -> State:
            return type(stack).advance(stack, state, view, memories, constants, self.run)

        def hear(module: nn.Module, args: Any, field: Any) -> None:
            self.asked.append((args[0], field))

        stack.advance = advance
        with ExitStack() as hooks:
            hooks.callback(delattr, stack, "advance")
            for layer in stack.blocks:
                hooks.enter_context(layer.attention.register_forward_hook(hear))
            yield


def _watch_ours(stack: Stack, inputs: Tensor, rows: tuple[int, ...]) -> tuple[Record, Readout | None]:
    layers, tape = stack.layers(), _Tape(rows)
    with tape.running(stack):
        stack(inputs)
    if rows and len(tape.attention) < len(layers):
        raise InputError("the attention of this model does not show its rows: watch it with attention=False")
    stages, states = zip(*tape.stages, strict=True)
    momenta = torch.stack([state.y for state in states]) if stack.cfg.has_momentum else None
    physics = gather(tape.figures, layers[0], stack.cfg.causal, stack.layer_scalars())
    attention = torch.stack(tape.attention) if rows else None
    seen = Record(inputs, stages, torch.stack([state.x for state in states]), momenta, physics, rows, attention)
    return seen, readout(stack) if isinstance(stack, LanguageModel) else None
