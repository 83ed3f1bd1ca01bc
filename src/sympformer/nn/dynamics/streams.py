"""Two streams without dynamics: the control for what a second vector a token does by itself."""

from typing import NamedTuple

from torch import Tensor

from sympformer.flows.damping import Scalar
from sympformer.nn.attention.base import View
from sympformer.nn.config import StackConfig
from sympformer.nn.dynamics.base import State
from sympformer.nn.dynamics.classical import Block
from sympformer.nn.parts import bounded
from sympformer.nn.scalars import LearnedScalars, ScalarSpec
from sympformer.nn.tables import NO_MLP


class Mixing(NamedTuple):
    """What a half reads of the streams x and y, how it mixes them, and what it writes into them.

    The starts are those of a classical block on x. y takes up every update, though nothing reads it yet: were that 0 as
    well, a y of zeros would have no gradient, and none of the weights that could change it.
    """

    read_x: Scalar = 1.0
    read_y: Scalar = 0.0
    xx: Scalar = 1.0
    xy: Scalar = 0.0
    yx: Scalar = 0.0
    yy: Scalar = 1.0
    write_x: Scalar = 1.0
    write_y: Scalar = 1.0

    def read(self, x: Tensor, y: Tensor) -> Tensor:
        """What the half is a function of."""
        return self.read_x * x + self.read_y * y

    def written(self, x: Tensor, y: Tensor, f: Tensor) -> tuple[Tensor, Tensor]:
        """The streams after the update f."""
        return self.xx * x + self.xy * y + self.write_x * f, self.yx * x + self.yy * y + self.write_y * f


class StreamScalars(NamedTuple):
    """The mixing of the attention half, then that of the MLP half."""

    read_x_attention: Scalar
    read_y_attention: Scalar
    xx_attention: Scalar
    xy_attention: Scalar
    yx_attention: Scalar
    yy_attention: Scalar
    write_x_attention: Scalar
    write_y_attention: Scalar
    read_x_mlp: Scalar = 0.0
    read_y_mlp: Scalar = 0.0
    xx_mlp: Scalar = 0.0
    xy_mlp: Scalar = 0.0
    yx_mlp: Scalar = 0.0
    yy_mlp: Scalar = 0.0
    write_x_mlp: Scalar = 0.0
    write_y_mlp: Scalar = 0.0


class Streams(Block):
    """f = Attn(LN(r_x x + r_y y))        (x, y) = M (x, y) + (g_x, g_y) f        and the same with the MLP

    with r, the 2 x 2 matrix M and g learned, of each half its own: hyper-connections of two streams that do not depend
    on the tokens. The streams are the positions and momenta of a state, so that y starts as a momentum does
    (start_momentum). update_norm: a norm on f, as in a classical block.
    """

    summary = "a classical transformer block on two streams that it mixes, a control without dynamics"

    def __init__(self, cfg: StackConfig) -> None:
        super().__init__(cfg)
        halves = ("attention",) if cfg.mlp == NO_MLP else ("attention", "mlp")
        starts = {f"{name}_{half}": start for half in halves for name, start in Mixing()._asdict().items()}
        self.scalars = LearnedScalars(StreamScalars, {name: ScalarSpec(v, "real") for name, v in starts.items()})

    def attention_half(self, state: State, view: View) -> State:
        mixing, x, y = Mixing(*self.scalars()[:8]), state.x, state.y
        f = bounded(self.bound_attention, self.attention(self.norm_attention(mixing.read(x, y)), view))
        x, y = mixing.written(x, y, f)
        return state._replace(x=x, y=y)

    def mlp_half(self, state: State) -> State:
        if self.mlp is None:
            return state
        mixing, x, y = Mixing(*self.scalars()[8:]), state.x, state.y
        x, y = mixing.written(x, y, bounded(self.bound_mlp, self.mlp(mixing.read(x, y))))  # the norm is the MLP's own
        return state._replace(x=x, y=y)
