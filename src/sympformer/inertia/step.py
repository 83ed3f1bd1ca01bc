"""One block as a step of a damped system, beside the step that the block already is.

A residual block x -> x + f(x) is an Euler step of the first-order flow x' = f(x). Inertia adds a momentum y that the
same f drives as its force, and lets it carry the positions along:

    x' = f(x) + c y        y' = f(x) - alpha(t) y

With f = -grad U the energy U(x) + c/2 |y|^2 falls, at the rate |f|^2 + c alpha |y|^2, for every gain c >= 0; c = 0 is
the model as it was. Without y the two lines are x'' + alpha x' + Hess U x' + (c + alpha) grad U = 0: an inertial flow
whose damping also feels the curvature.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from sympformer.config_checks import check_names, check_types
from sympformer.errors import InputError, unknown_name
from sympformer.flows import INTEGRATORS, FrozenIntegrator, LogLinear, Step
from sympformer.flows.damping import Scalar
from sympformer.flows.integrators import added
from sympformer.flows.system import SeparableField
from sympformer.nn.scalars import Scalars, ScalarSpec

KEY = "sympformer_inertia"  # in a Hugging Face config
FIRST_TIME = 3.0  # with c_log = 3 and h = 1 the factor 1 - alpha h of step k is then k/(k+3): Nesterov's

# damping -> the scalars of alpha(t) = c_log/t + c_lin that it has, and their starts
DAMPINGS: dict[str, dict[str, float]] = {
    "constant": {"c_lin": 0.5},
    "nesterov": {"c_log": 3.0},
    "log-linear": {"c_log": 1.0, "c_lin": 0.2},
}


@dataclass(frozen=True)
class InertiaConfig:
    """The choices of `accelerate`. width: of the residual stream. blocks: their place; None where the family tells."""

    integrator: str
    width: int
    damping: str | None = None
    start: dict[str, float] = field(default_factory=dict)
    per_channel: bool = False
    blocks: str | None = None

    def __post_init__(self) -> None:
        check_types(self)
        if self.width < 1:
            raise InputError(f"width must be at least 1, got {self.width}")
        starts = self._starts(scheme(self.integrator).damped)
        for name, value in self.start.items():
            if name not in starts:
                raise unknown_name(f"start of {self.integrator}:", name, starts)
            most = 1.0 if name == "factor" else 1e6
            if not 0 < value < most:
                raise InputError(f"start {name} must be a positive number below {most:g}, got {value!r}")
        object.__setattr__(self, "start", starts | self.start)

    @classmethod
    def from_dict(cls, values: object) -> "InertiaConfig":
        """What `to_dict` gave, from a file that may be anybody's."""
        check_names(cls, values, KEY)
        assert isinstance(values, Mapping)
        if not {"integrator", "width"} <= set(values):
            raise InputError(f"{KEY} must name integrator and width: save the accelerated model again")
        return cls(**values)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def _starts(self, damped: bool) -> dict[str, float]:
        """The scalars that learn, with their usual starts; settles the damping."""
        if not damped:
            if self.damping is not None:
                raise InputError(f"{self.integrator} has a momentum factor and no damping: leave damping out")
            return {"h": 1.0, "factor": 0.5}
        damping = "constant" if self.damping is None else self.damping
        if damping not in DAMPINGS:
            raise unknown_name("damping", damping, DAMPINGS)
        object.__setattr__(self, "damping", damping)
        return {"h": 1.0, **DAMPINGS[damping]}

    def scalar_specs(self, last: bool) -> dict[str, ScalarSpec]:
        """The scalars of a block. What the last one does to the momentum nobody reads, so that does not learn there.

        It does where the drift takes the new momentum (symplectic_euler).
        """
        read = not last or scheme(self.integrator).momenta > 1
        return {
            name: ScalarSpec(value, "fraction" if name == "factor" else "positive", read or name == "h")
            for name, value in self.start.items()
        }


def scheme(name: str) -> FrozenIntegrator:
    """The integrator of that name, if one evaluation of a block is all it needs."""
    usable = {row: kind for row, kind in INTEGRATORS.items() if issubclass(kind, FrozenIntegrator)}
    if name in INTEGRATORS and name not in usable:
        raise InputError(f"{name} does not step on one evaluation of a block: choose one of {', '.join(usable)}")
    if name not in usable:
        raise unknown_name("integrator", name, usable)
    return usable[name]()


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
        force, origin = SeparableField(x - block_x), block_x.new_zeros(())  # -grad U = f
        drift, y, history = self.scheme.advance(force, origin, now.y, factors, now.history)
        x_next = block_x + self.gain.to(block_x.dtype) * added(drift)
        return x_next, Momentum(added(y), now.t + s["h"], now.k + 1, history)

    @torch.no_grad()
    def report(self) -> dict[str, float]:
        """Present values; of a gain a channel its root mean square."""
        gain = self.gain if self.gain.numel() == 1 else self.gain.square().mean().sqrt()
        return {"gain": gain.item(), **self.scalars.report()[0]}
