"""SympFormer: a step of the damped Hamiltonian system, then an inertial MLP step (the paper's Algorithm 1)."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor

from sympformer.flows import Field, FrozenIntegrator, LogLinear, Step, get_integrator
from sympformer.flows.damping import Scalar
from sympformer.nn.attention.base import View
from sympformer.nn.config import StackConfig
from sympformer.nn.dynamics.base import Layer, State
from sympformer.nn.parts import bound_options, bounded, drift_norm, mlp, momentum_bound, norm
from sympformer.nn.scalars import LearnedScalars, ScalarSpec
from sympformer.nn.tables import ATTENTIONS, NO_MLP


class HamiltonianScalars(NamedTuple):
    """Steps, damping alpha(t) = c_log/t + c_lin or a momentum factor, look-aheads, the MLP step's factor and gain."""

    h_x: Scalar
    h_y: Scalar
    factor: Scalar | None = None
    c_log: Scalar = 0.0
    c_lin: Scalar = 0.0
    mu: Scalar = 0.0
    mlp_look_ahead: Scalar = 0.0
    beta: Scalar = 0.0
    gamma: Scalar = 0.0


@dataclass(frozen=True)
class Drifting(Field):
    """A field whose velocity goes through a norm; its force is as it was."""

    field: Field
    norm: Callable[[Tensor], Tensor]

    def velocity(self, y: Tensor) -> Tensor:
        return self.norm(self.field.velocity(y))

    def force(self, y: Tensor) -> Tensor:
        return self.field.force(y)

    def both(self, y: Tensor) -> tuple[Tensor, Tensor]:
        velocity, force = self.field.both(y)
        return self.norm(velocity), force

    def first_order(self) -> Tensor:
        return self.field.first_order()


class Hamiltonian(Layer):
    """F, G = oracle(LN(x + mu y), y)        x, y = integrator step        y = LN_y(y)

    d = MLP(LN(x + m y))        y = LN_v(beta y + gamma d)        x = x + y

    Bound "drift" leaves y raw but for a cap, and has a norm where it moves x: LN(F) in the first line, x + LN(y) in the
    second, so that the damping and the integrators matter.

    mlp_velocity "own" takes a velocity v of its own for y in the second line. "attention" is what the authors' scripts
    do instead: with v = (x+ - x)/h, the velocity of the attention step, x = x + gamma MLP(LN(x + m v)).
    """

    summary = "every layer is one time step of a damped Hamiltonian flow of the tokens"

    def __init__(self, cfg: StackConfig) -> None:
        super().__init__()
        self.norm_attention, self.oracle = norm(cfg), ATTENTIONS[cfg.attention].oracle(cfg)
        scheme = get_integrator(cfg.integrator)
        assert isinstance(scheme, FrozenIntegrator)  # the config refuses others
        self.scheme = scheme
        self.bound_attention = momentum_bound(cfg)
        self.mlp = mlp(cfg)
        self.bound_mlp = momentum_bound(cfg) if "beta" in _mlp_scalars(cfg) else None
        self.drift = drift_norm(cfg)
        self.drift_mlp = None if self.bound_mlp is None else drift_norm(cfg)
        self.mlp_velocity, self.look_ahead, self.t0 = cfg.mlp_velocity, cfg.look_ahead, cfg.t0
        self.scalars = LearnedScalars(HamiltonianScalars, scalar_specs(cfg))

    def attention_half(self, state: State, view: View) -> State:
        s, (x, y, v, t, k, history) = self.scalars(), state
        bar = self.norm_attention(x + s.mu * y if self.look_ahead else x)
        field = self.drifting(self.oracle(bar, view))  # one kernel pass
        x_next, y, history = self.scheme.advance(field, x, y, self.time_step(s, t, k), history)
        if self.mlp_velocity == "attention":
            v = (x_next - x) / s.h_x
        return State(x_next, self.bound_attention(y), v, t + s.h_x, k + 1, history)

    def mlp_half(self, state: State) -> State:
        if self.mlp is None:
            return state
        s, u = self.scalars(), state.y if self.mlp_velocity == "momentum" else state.v
        assert u is not None
        update = s.gamma * self.mlp(state.x + s.mlp_look_ahead * u)
        u = update if self.bound_mlp is None else self.bound_mlp(s.beta * u + update)
        y, v = self.mlp_output(u, state.y, state.v)
        return state._replace(x=state.x + bounded(self.drift_mlp, u), y=y, v=v)

    def drifting(self, field: Field) -> Field:
        """The field with a norm on its velocity, under bound "drift"."""
        return field if self.drift is None else Drifting(field, self.drift)

    def time_step(self, s: HamiltonianScalars, t: Scalar, k: int) -> Step:
        """The layer as a time step of the flow."""
        return Step(k, t, s.h_x, s.h_y, LogLinear(s.c_log, s.c_lin, self.t0), s.factor)

    def mlp_output(self, u: Tensor, y: Tensor, v: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """(y, v) after the MLP step whose velocity came out as u."""
        if self.mlp_velocity == "momentum":
            return u, v
        return y, u if self.mlp_velocity == "own" else None

    def report(self, t: float) -> tuple[dict[str, float], float]:
        """The scalars, the clock t, and the damping rate alpha(t) where there is one."""
        values = self.scalars.report() | {"t": t}
        if self.scheme.damped:
            damping = LogLinear(values.get("c_log", 0.0), values.get("c_lin", 0.0), self.t0)
            values["alpha"] = float(damping.alpha(t))
        return values, t + values["h_x"]

    @staticmethod
    def options(cfg: StackConfig) -> frozenset[str]:
        used = {"integrator", "t0", "h_x", "h_y", "learn_steps", "look_ahead", *_damping(cfg)}
        used |= {"mu"} if cfg.look_ahead else set()
        used |= {"damping", "learn_damping"} if get_integrator(cfg.integrator).damped else set()
        used |= {*_mlp_scalars(cfg)} | (set() if cfg.mlp == NO_MLP else {"mlp_velocity"})
        kind = ATTENTIONS[cfg.attention]
        used |= kind.options | (kind.shared if cfg.heads != "averaged" else kind.shared - {"n_kv_head"})
        used |= {"zero_start"} if cfg.heads == "projected" else set()
        return frozenset(used) | bound_options(cfg)


def _damping(cfg: StackConfig) -> list[str]:
    """The names of the scalars that damp the momentum."""
    if not get_integrator(cfg.integrator).damped:
        return ["factor"]
    return {"log-linear": ["c_log", "c_lin"], "nesterov": ["c_log"], "constant": ["c_lin"]}[cfg.damping]


def _mlp_scalars(cfg: StackConfig) -> list[str]:
    """The names of the scalars of the MLP step; without beta nothing is carried on, so nothing needs a bound."""
    if cfg.mlp == NO_MLP:
        return []
    return ["mlp_look_ahead", *([] if cfg.mlp_velocity == "attention" else ["beta"]), "gamma"]


def scalar_specs(cfg: StackConfig) -> dict[str, ScalarSpec]:
    """The scalars that a layer of this config uses, and no others."""
    specs = {name: ScalarSpec(getattr(cfg, name), "positive", cfg.learn_steps) for name in ("h_x", "h_y")}
    for name in _damping(cfg):
        if name == "factor":
            specs[name] = ScalarSpec(cfg.factor, "fraction")
        else:
            specs[name] = ScalarSpec(getattr(cfg, name), "positive", cfg.learn_damping)
    if cfg.look_ahead:
        specs["mu"] = ScalarSpec(cfg.mu, "fraction")
    for name in _mlp_scalars(cfg):
        specs[name] = ScalarSpec(getattr(cfg, name), "positive" if name == "gamma" else "fraction")
    return specs
