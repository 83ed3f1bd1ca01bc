"""A stack of layers: time steps of one flow, each a block of its own or all the same block."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from sympformer.flows.damping import Scalar
from sympformer.nn.layer import Constants, Layer
from sympformer.nn.memory import Memory
from sympformer.nn.options import StackConfig
from sympformer.nn.scalars import Scalars
from sympformer.nn.steppers import State
from sympformer.nn.tables import ATTENTIONS
from sympformer.nn.view import View, with_neighbours

# runs layer k; the default is to call it
Call = Callable[[Layer, State, View, Constants, int], State]


def call_layer(layer: Layer, state: State, view: View, constants: Constants, k: int) -> State:
    return layer(state, view, constants)


def matrices_of(attention: Any) -> Any:
    """What an attention works out of its weights; nothing where they are split between devices, or elsewhere."""
    there = all(type(weight) is nn.Parameter and not weight.is_meta for weight in attention.parameters())
    return attention.matrices() if there else None


class Stack(nn.Module):
    """Abstract base of what is made of layers: `blocks`, the `scalars` of all of them, and the way through them."""

    blocks: nn.ModuleList
    scalars: Scalars

    def __init__(self, cfg: StackConfig) -> None:
        super().__init__()
        self.cfg = cfg

    def make_blocks(self, second: bool = False) -> None:
        """Fresh blocks. second: whether there is a second table of tokens."""
        n = 1 if self.cfg.share_layers else self.cfg.n_layer
        self.blocks = nn.ModuleList(Layer(self.cfg, second) for _ in range(n))
        self.scalars = Scalars(self.layers()[0].stepper.specs, n)

    def layers(self) -> list[Any]:
        """The block of every layer, first to last."""
        return [*self.blocks] * (self.cfg.n_layer if self.cfg.share_layers else 1)

    def values(self) -> dict[str, Any]:
        """The present scalars by name, vectors (layers,)."""
        n, values = self.cfg.n_layer, self.scalars()
        return {name: v.expand(n) for name, v in values.items()} if self.cfg.share_layers else values

    def constants(self, numbers: bool = False, t: Scalar = 1.0) -> list[Constants]:
        """What every layer needs that depends on weights alone: the factors of its steps from time t on, by half.

        numbers: as plain numbers, and with the matrices of its attention: for texts that grow while nothing learns.
        """
        n = self.cfg.n_layer

        def by_layer(value: Any) -> Sequence[Any]:
            if isinstance(value, tuple | list):
                return list(zip(*map(by_layer, value), strict=True)) if value else [()] * n
            if not isinstance(value, Tensor) or value.ndim == 0:
                return [value] * n
            return value.tolist() if numbers else value.unbind()

        if not numbers:
            return [(factors, None) for factors in by_layer(self.layers()[0].stepper.factors(self.values(), t))]
        with torch.no_grad():
            rows = by_layer(self.layers()[0].stepper.factors(self.values(), t))
            return [(row, matrices_of(layer.attention)) for row, layer in zip(rows, self.layers(), strict=True)]

    def start(self, x: Tensor, y: Tensor | None = None) -> State:
        """Tokens at positions x (B, T, d) before the first layer, at rest unless momenta y are given."""
        v = torch.zeros_like(x) if self.cfg.mlp_velocity == "own" else None
        return State(x, torch.zeros_like(x) if y is None else y, v)

    def new_memories(self) -> list[Memory]:
        """What the layers keep of a text, at its start."""
        return [ATTENTIONS[self.cfg.attention].memory() for _ in range(self.cfg.n_layer)]

    def advance(
        self,
        state: State,
        view: View,
        memories: Sequence[Memory] | None = None,
        constants: Sequence[Constants] | None = None,
        call: Call = call_layer,
    ) -> State:
        """The state after the last layer. memories, constants: of each layer. `call` runs a layer, and may watch it."""
        if self.cfg.transport not in (None, "none"):
            view = with_neighbours(view, forgetful=memories is not None and not memories[0].croppable)
        constants = self.constants(t=state.t) if constants is None else constants
        for k, (layer, own) in enumerate(zip(self.layers(), constants, strict=True)):
            seen = view if memories is None else view._replace(memory=memories[k])
            state = call(layer, state, seen, own, k)
        return state

    @torch.no_grad()
    def layer_scalars(self) -> list[dict[str, float]]:
        """Per layer: the present scalars, and where there is a clock its time t and the damping rate alpha(t)."""
        values = self.values()
        values |= self.layers()[0].stepper.clock(values)
        columns = {name: value.tolist() for name, value in values.items()}
        return [{name: column[k] for name, column in columns.items()} for k in range(self.cfg.n_layer)]
