"""A stack of layers: time steps of one flow, each a block of its own or all the same block."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from sympformer.flows.damping import Scalar
from sympformer.nn import fast
from sympformer.nn.attention.base import Memory, View
from sympformer.nn.config import StackConfig
from sympformer.nn.dynamics.base import Layer, State
from sympformer.nn.prelude import Prelude, StepMemory, new_memory, with_neighbours
from sympformer.nn.rows import DYNAMICS

# runs layer k; the default is to call it
Call = Callable[[fast.Program, State, View, int], State]


def call_layer(layer: fast.Program, state: State, view: View, k: int) -> State:
    """Run layer k."""
    return layer(state, view)


class Stack(nn.Module):
    """Abstract base of what is made of layers: `blocks`, what comes before each (`preludes`), the way through them."""

    blocks: nn.ModuleList
    preludes: nn.ModuleList | None

    def __init__(self, cfg: StackConfig) -> None:
        super().__init__()
        self.cfg = cfg

    def make_blocks(self, second: bool = False) -> None:
        """Fresh blocks and preludes. second: whether there is a second table of tokens."""
        cfg = self.cfg
        n_blocks = 1 if cfg.share_layers else cfg.n_layer
        self.blocks = nn.ModuleList(DYNAMICS[cfg.architecture](cfg) for _ in range(n_blocks))
        some = second or cfg.transport != "none"
        self.preludes = nn.ModuleList(Prelude(cfg, second) for _ in range(n_blocks)) if some else None

    def layers(self) -> list[Any]:
        """The block of every layer, first to last."""
        return self._of_layers(self.blocks)

    def _of_layers(self, modules: nn.ModuleList) -> list[Any]:
        return [*modules] * (self.cfg.n_layer if self.cfg.share_layers else 1)

    def start(self, x: Tensor, y: Tensor | None = None) -> State:
        """Tokens at positions x (B, T, d) before the first layer, at rest unless momenta y are given, at time t0."""
        v = torch.zeros_like(x) if self.cfg.mlp_velocity == "own" else None
        return State(x, torch.zeros_like(x) if y is None else y, v, self.cfg.t0)

    def new_memories(self) -> list[Memory]:
        """What the layers keep of a text, at its start."""
        return [new_memory(self.cfg) for _ in range(self.cfg.n_layer)]

    def programs(self, t: Scalar, k: int = 0) -> list[fast.Program]:
        """What to call for every layer, the first of which is step k, at time t."""
        return fast.programs(self.layers(), t, k)

    def advance(
        self,
        state: State,
        view: View,
        memories: Sequence[Memory] | None = None,
        programs: Sequence[fast.Program] | None = None,
        call: Call = call_layer,
    ) -> State:
        """The state after the last layer. `memories`: of each layer. `call` runs a whole layer, and may watch it.

        `programs`: what to run instead of the layers, with a clock of numbers.
        """
        if programs is None and not isinstance(state.t, Tensor):  # the steps that move the clock learn
            state = state._replace(t=torch.full((), state.t, dtype=state.x.dtype, device=state.x.device))
        if self.cfg.transport != "none":
            view = with_neighbours(view, forgetful=memories is not None and not memories[0].croppable)
        for k, layer in enumerate(self.programs(state.t, state.k) if programs is None else programs):
            seen = view if memories is None else view._replace(memory=memories[k])
            state = call(self.whole(k, layer), state, seen, k)
        return state

    def whole(self, k: int, layer: fast.Program) -> fast.Program:
        """Layer k, or a program in its place, with its prelude."""
        return layer if self.preludes is None else lambda state, view: layer(*self.ahead(k, state, view))

    def ahead(self, k: int, state: State, view: View) -> tuple[State, View]:
        """What layer k itself gets: the state after its prelude, and a view with the memory of its attention alone."""
        if self.preludes is not None:
            state = self.preludes[0 if self.cfg.share_layers else k](state, view)
        if isinstance(view.memory, StepMemory):
            view = view._replace(memory=view.memory.attention)
        return state, view

    def layer_scalars(self) -> list[dict[str, float]]:
        """Per layer: the present scalars, and where there is a clock its time t and the damping rate alpha(t)."""
        rows, t = [], self.cfg.t0
        for layer in self.layers():
            assert isinstance(layer, Layer)
            values, t = layer.report(t)
            rows.append(values)
        return rows
