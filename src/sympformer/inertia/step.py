"""One block as a step of a damped system, beside the step that the block already is.

A residual block x -> x + f(x) is an Euler step of the first-order flow x' = f(x). Inertia adds a momentum y that the
same f drives as its force, and lets it carry the positions along:

    x' = f(x) + c y        y' = f(x) - alpha(t) y

With f = -grad U the energy U(x) + c/2 |y|^2 falls, at the rate |f|^2 + c alpha |y|^2, for every gain c >= 0; c = 0 is
the model as it was. Without y the two lines are x'' + alpha x' + Hess U x' + (c + alpha) grad U = 0: an inertial flow
whose damping also feels the curvature.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from sympformer.flows import LogLinear, Step, Sum
from sympformer.flows.damping import Scalar
from sympformer.flows.system import SeparableField
from sympformer.inertia.config import FIRST_TIME, InertiaConfig, scheme
from sympformer.nn.scalars import Scalars


class Momentum(NamedTuple):
    """What one block hands to the next, beside the positions."""

    y: Tensor  # like the positions
    t: Scalar = FIRST_TIME
    k: int = 0
    history: Any = None


class Inertia(nn.Module):
    """drift, y = integrator step of size h from (0, y) on x' = y, y' = f - alpha y        x = block(x) + c drift

    f = block(x) - x is evaluated once. The gain c, one number or one a channel, starts at zero: the sum is then
    block(x) to the last bit, whatever the scheme. Its gradient there is the drift's, so it leaves zero at once.
    """

    group = "scalar"

    def __init__(self, config: InertiaConfig, last: bool) -> None:
        super().__init__()
        self.scheme = scheme(config.integrator)
        self.gain = nn.Parameter(torch.zeros(config.width if config.per_channel else 1, dtype=torch.float32))
        self.scalars = Scalars(config.scalar_specs(last))

    def forward(self, x: Tensor, block_x: Tensor, before: Momentum | None) -> tuple[Tensor, Momentum]:
        """The next positions and momentum from x, block(x) and the momentum before; None is at rest."""
        s: dict[str, Any] = {n: v[0] if isinstance(v, Tensor) else v for n, v in self.scalars().items()}
        now = Momentum(torch.zeros_like(block_x)) if before is None else before
        damping = LogLinear(s.get("c_log", 0.0), s.get("c_lin", 0.0), FIRST_TIME)
        factors = self.scheme.factors(Step(now.k, now.t, s["h"], s["h"], damping, s.get("factor")))
        field, origin = SeparableField(x - block_x), block_x.new_zeros(())  # -grad U = f
        drift, y, history = self.scheme.advance(field, origin, now.y, factors, now.history)
        drift, y = (u.added() if isinstance(u, Sum) else u for u in (drift, y))
        return block_x + self.gain.to(drift.dtype) * drift, Momentum(y, now.t + s["h"], now.k + 1, history)

    @torch.no_grad()
    def report(self) -> dict[str, float]:
        """Present values; of a gain a channel its root mean square."""
        gain = self.gain if self.gain.numel() == 1 else self.gain.square().mean().sqrt()
        return {"gain": gain.item(), **self.scalars.report()[0]}
