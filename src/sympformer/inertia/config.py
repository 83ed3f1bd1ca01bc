"""What inertia a stack of blocks gets: scheme, damping, starting values. A Hugging Face config keeps it."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from sympformer.config_checks import check_names, check_types
from sympformer.errors import InputError, unknown_name
from sympformer.flows import INTEGRATORS, FrozenIntegrator
from sympformer.nn.scalars import ScalarSpec

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
        scheme(self.integrator)
        if self.width < 1:
            raise InputError(f"width must be at least 1, got {self.width}")
        starts = self._starts()
        for name, value in self.start.items():
            if name not in starts:
                raise unknown_name(f"start of {self.integrator}:", name, starts)
            _check_start(name, value)
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

    def _starts(self) -> dict[str, float]:
        """The scalars that learn, with their usual starts; settles the damping."""
        if not scheme(self.integrator).damped:
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
    usable = [row for row, kind in INTEGRATORS.items() if issubclass(kind, FrozenIntegrator)]
    if name in INTEGRATORS and name not in usable:
        raise InputError(f"{name} does not step on one evaluation of a block: choose one of {', '.join(usable)}")
    if name not in usable:
        raise unknown_name("integrator", name, usable)
    made = INTEGRATORS[name]()
    assert isinstance(made, FrozenIntegrator)
    return made


def _check_start(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e6:
        raise InputError(f"start {name} must be a positive number below 1e6, got {value!r}")
    if name == "factor" and value >= 1:
        raise InputError(f"start factor must lie between 0 and 1, got {value}")
