"""What a layer is: one time step from `State` to `State`."""

from typing import Any, NamedTuple

from torch import Tensor, nn

from sympformer.flows.damping import Scalar
from sympformer.nn.attention.base import View
from sympformer.nn.config import StackConfig
from sympformer.nn.scalars import LearnedScalars


class State(NamedTuple):
    """What one layer hands to the next."""

    x: Tensor  # (B, T, d) positions
    y: Tensor  # (B, T, d) momenta
    v: Tensor | None = None  # (B, T, d) the velocity that the MLP extends, where it is not y (mlp_velocity)
    t: Scalar = 1.0  # the clock
    k: int = 0  # time steps taken
    history: Any = None  # of a multistep integrator


class Layer(nn.Module):
    """Abstract base of the dynamics. Its two halves are the equation, as it stands in the paper.

    Dynamics that have no such halves write `forward` themselves.
    """

    has_momentum = True  # whether y is used
    summary = "every layer is a step of dynamics of its own"  # for descriptions
    scalars: LearnedScalars[Any]

    @staticmethod
    def options(cfg: StackConfig) -> frozenset[str]:
        """The options of a config that layers of this kind use, beside those of every layer."""
        return frozenset()

    def forward(self, state: State, view: View) -> State:
        """One time step."""
        return self.mlp_half(self.attention_half(state, view))

    def attention_half(self, state: State, view: View) -> State:
        """What the tokens do to each other."""
        raise NotImplementedError

    def mlp_half(self, state: State) -> State:
        """What every token does by itself; nothing in layers without an MLP."""
        raise NotImplementedError

    def report(self, t: float) -> tuple[dict[str, float], float]:
        """The present scalars at time t, and the time after the step."""
        return self.scalars.report(), t
