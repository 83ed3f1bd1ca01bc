"""`sympformer.watch(model, idx)`: run a model on a text, and keep what its tokens do on the way."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sympformer.errors import InputError
from sympformer.models import LanguageModel
from sympformer.nn import Layer, Stack, State, View
from sympformer.nn.stack import Call
from sympformer.watching import foreign
from sympformer.watching.lens import Readout, look
from sympformer.watching.physics import Sighting, gather
from sympformer.watching.record import Record, Stage


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
    with _evaluating(model):
        if isinstance(model, Stack):
            return _with_lens(_watch_ours(model, idx, rows), _readout(model), lens)
        return _with_lens(*foreign.watch_foreign(model, idx, rows), lens)


def readout(model: nn.Module) -> Readout:
    """What makes logits of positions: the final norm and the head of a language model of ours."""
    read = _readout(native(model))
    if read is None:
        raise InputError(f"{type(model).__name__} has no readout of ours: watch it with lens=5")
    return read


def _readout(model: nn.Module) -> Readout | None:
    if not isinstance(model, LanguageModel):
        return None
    return lambda x: F.linear(model.norm(x), model.head_weight)


def native(model: nn.Module) -> nn.Module:
    """The language model in the Hugging Face form of one; any other model as it is."""
    made: Any = getattr(model, "to_language_model", None)
    return model if made is None else made()


class _Tape:
    """What is kept of a stack on its way."""

    def __init__(self, rows: tuple[int, ...]) -> None:
        self.rows = rows
        self.stages: list[Stage] = []
        self.states: list[State] = []
        self.figures: list[dict[str, Tensor]] = []
        self.attention: list[Tensor] = []

    def run(self, layer: Layer, state: State, view: View, constants: Any, k: int) -> State:
        """Layer k (from 0), by halves."""
        kernels: list[Tensor] | None = [] if self.rows else None
        state = layer.ahead(state, view)
        halves = layer.stepper.halves
        for half in range(len(halves)):
            with _listening(layer, state.y) as heard:
                state = layer.take(half, state, view._replace(kernels=kernels), constants)
            if not half:
                self.figures.append(heard[0].figures(layer.stepper.has_momentum) if heard else {})
            name: Any = "layer" if layer.parallel and layer.mlp is not None else halves[half]
            self.keep(Stage(k + 1, name), state)
        if kernels:
            heads = 1 if layer.attention.cfg.heads == "averaged" else None  # one kernel, left under every head
            self.attention.append(kernels[0][:, :heads, list(self.rows)])
        return state

    def keep(self, stage: Stage, state: State) -> State:
        """Note a state, and hand it on."""
        self.stages.append(stage)
        self.states.append(state)
        return state


def _watch_ours(stack: Stack, inputs: Tensor, rows: tuple[int, ...]) -> Record:
    layers, tape = stack.layers(), _Tape(rows)

    with _calling(stack, tape.run, partial(tape.keep, Stage(0, "embedding"))):
        stack(inputs)
    momentum = stack.cfg.has_momentum
    if rows and len(tape.attention) < len(layers):
        raise InputError("the attention of this model does not show its rows: watch it with attention=False")
    return Record(
        inputs,
        tuple(tape.stages),
        torch.stack([state.x for state in tape.states]),
        torch.stack([state.y for state in tape.states]) if momentum else None,
        gather(tape.figures, layers[0], stack.cfg.causal, stack.layer_scalars()),
        rows,
        torch.stack(tape.attention) if rows else None,
    )


def _with_lens(seen: Record, read: Readout | None, k: int) -> Record:
    if k < 0:
        raise InputError(f"lens is a number of guesses, got {k}")
    if k == 0:
        return seen
    if read is None:
        raise InputError(
            "this model has no logits that are its final norm and head applied to its states: watch with lens=0"
        )
    return Record(**vars(seen) | {"lens": look(read, seen.x, seen.idx, k)})


def _rows(attention: bool | Sequence[int], idx: Tensor) -> tuple[int, ...]:
    T = idx.shape[1] if idx.ndim > 1 else 0
    rows = tuple(range(T) if attention else ()) if isinstance(attention, bool) else tuple(attention)
    if wrong := [row for row in rows if not 0 <= row < T]:
        raise InputError(f"attention asks for the row of token {wrong[0]} in a text of {T} tokens, counted from 0")
    return rows


@contextmanager
def _evaluating(model: nn.Module) -> Iterator[None]:
    """Every module in evaluation mode within the block, and afterwards in its own."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training


@contextmanager
def _calling(stack: Any, call: Call, begin: Callable[[State], State]) -> Iterator[None]:
    """Layers run by `call` within the block, whatever a stack does around them; `begin` sees what they start from."""

    def advance(state: State, view: View, memories: Any = None, constants: Any = None, _: Any = None) -> State:
        return type(stack).advance(stack, begin(state), view, memories, constants, call)

    stack.advance = advance
    try:
        yield
    finally:
        del stack.advance


@contextmanager
def _listening(layer: Layer, y: Tensor) -> Iterator[list[Sighting]]:
    """What the layer's attention is asked at momenta y, and what it answers, within the block."""
    heard: list[Sighting] = []

    def hear(module: nn.Module, args: Any, answer: Any) -> None:
        heard.append(Sighting(args[0], y, answer, layer.stepper.inertial))

    hook = layer.attention.register_forward_hook(hear)
    try:
        yield heard
    finally:
        hook.remove()
