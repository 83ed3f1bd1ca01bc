"""A layer: forces, a splitting, a stepper, and a place for the norm.

Ahead of the step, whatever the stepper, a second table is added, then the token before moves on:

    x_i <- x_i + w e_i        u_i <- u_i + c (u_{i-1} - u_i)  for u = x, y or both

e_i is what a second table of tokens says of token i. The second line is an upwind step of d_t u + c d_s u = 0 along the
text; the first token of a text has nobody before it and stays. w and c in (0, 1) are learned, a number for every layer
and channel.
"""

from typing import Any

import torch
from torch import Tensor, nn

from sympformer.flows import Field
from sympformer.nn.options import StackConfig
from sympformer.nn.parts import Bound, Channels, Share, mlp, norm
from sympformer.nn.steppers import State, Stepper
from sympformer.nn.tables import ATTENTIONS, STEPPERS
from sympformer.nn.view import View, neighbours

WEIGHT = 0.3  # start of w
SHARE = 0.1  # start of c
TRANSPORTED = {"positions": "x", "momenta": "y", "both": "xy"}  # transport -> what of a state it moves
Constants = tuple[Any, Any]  # a layer's factors, by half, and the matrices of its attention; None: not worked out yet


class Layer(nn.Module):
    """One time step, from `State` to `State`: for every force, `stepper.step(state, force)`."""

    def __init__(self, cfg: StackConfig, second: bool = False) -> None:
        super().__init__()
        moved, d = TRANSPORTED.get(cfg.transport or "", ""), cfg.d_model
        self.second = Channels(d, WEIGHT) if second else None
        self.share_x = Share(d, SHARE) if "x" in moved else None
        self.share_y = Share(d, SHARE) if "y" in moved else None
        self.norm, self.attention = norm(cfg), ATTENTIONS[cfg.attention](cfg)
        self.mlp, self.parallel = mlp(cfg), cfg.splitting == "parallel"
        self.stepper: Stepper = STEPPERS[cfg.stepper](cfg)
        self.bounds = nn.ModuleList(Bound(cfg) for _ in range(self.stepper.n_bounds))

    def forward(self, state: State, view: View, constants: Constants) -> State:
        state = self.ahead(state, view)
        for half in range(len(constants[0])):
            state = self.take(half, state, view, constants)
        return state

    def take(self, half: int, state: State, view: View, constants: Constants) -> State:
        """The step under attention (0), or under the MLP (1)."""
        factors, matrices = constants
        force: Any = self.mlp if half else lambda x: self.attend(x, view, matrices)
        bound: Any = [*self.bounds][-1 if half else 0]
        return self.stepper.step(half, state, force, factors[half], bound)

    def attend(self, x: Tensor, view: View, matrices: Any = None) -> Field:
        """The field of attention at positions x; under parallel splitting that of the MLP with it."""
        matrices = self.attention.matrices() if matrices is None else matrices
        field: Field = self.attention(self.norm(x), view, matrices)
        return Both(field, self.mlp(x)) if self.parallel and self.mlp is not None else field

    def ahead(self, state: State, view: View) -> State:
        """What happens to the tokens before the step."""
        x, y = state.x, state.y
        if self.second is not None:
            assert view.second is not None
            x = torch.addcmul(x, self.second().to(x.dtype), view.second.to(x.dtype))
        if self.share_x is not None:
            x = torch.lerp(x, neighbours(x, view, "x").to(x.dtype), self.share_x().to(x.dtype))
        if self.share_y is not None:
            y = torch.lerp(y, neighbours(y, view, "y").to(y.dtype), self.share_y().to(y.dtype))
        return state._replace(x=x, y=y)


class Both(Field):
    """Parallel splitting: attention's field and the MLP's force at the same positions."""

    def __init__(self, field: Field, update: Tensor) -> None:
        self.field, self.update = field, update

    def velocity(self, y: Tensor) -> Tensor:
        return self.field.velocity(y)

    def force(self, y: Tensor) -> Tensor:
        return self.field.force(y) + self.update

    def both(self, y: Tensor) -> tuple[Tensor, Tensor]:
        velocity, force = self.field.both(y)
        return velocity, force + self.update

    def first_order(self) -> Tensor:
        return self.field.first_order() + self.update
