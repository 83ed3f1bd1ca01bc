"""How a layer moves its tokens under a force: gradient, Nesterov's and Hamiltonian steps.

A stepper says which scalars it learns (`specs`), makes of their values what its steps need, for all layers at once
(`factors`, by half of a layer), and takes the step of one half (`step`). A force is asked at positions and gives an
update, or a field: its `first_order()` is then the update, and the Hamiltonian step alone takes the flow itself.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from sympformer import ops
from sympformer.errors import InputError
from sympformer.flows import INTEGRATORS, Field, FrozenIntegrator, LogLinear, Step, Sum
from sympformer.flows.damping import Scalar
from sympformer.nn.options import StackConfig
from sympformer.nn.parts import Bound, under
from sympformer.nn.scalars import ScalarSpec
from sympformer.nn.tables import ATTENTIONS, BASES, NO_MLP, register

Force = Callable[[Tensor], Any]  # positions -> an update (B, T, d), or a Field
Values = dict[str, Any]  # scalars by name, vectors over the layers or numbers


class State(NamedTuple):
    """What one layer hands to the next."""

    x: Tensor  # (B, T, d) positions
    y: Tensor  # (B, T, d) momenta
    v: Tensor | None = None  # (B, T, d) the velocity that the MLP extends, where it is not y (mlp_velocity)
    history: Any = None  # of a multistep integrator
    t: Scalar = 1.0  # the clock before the first layer, where a stack goes on with what another left


def update_of(answer: Any) -> Tensor:
    """A field's first order; an update as it is."""
    return answer if isinstance(answer, Tensor) else answer.first_order()


class Stepper(ABC):
    """Abstract base."""

    options: ClassVar[dict[str, Any]] = {}  # the options of a config that it uses, and what they are unless given
    mlp_options: ClassVar[dict[str, Any]] = {}  # those of a step under the MLP
    has_momentum: ClassVar[bool] = True  # whether a state's y is used
    inertial: ClassVar[bool] = False  # whether it asks fields for velocity and force
    summary: ClassVar[str] = "every layer is a step of a kind of its own"  # for descriptions

    def __init__(self, cfg: StackConfig) -> None:
        alone = cfg.mlp == NO_MLP or cfg.splitting == "parallel"
        self.halves = ("attention",) if alone else ("attention", "mlp")  # the steps of a layer
        self.n_bounds = len(self.halves)  # places for a norm: one a half, unless halves share theirs
        self.specs: dict[str, ScalarSpec] = {}

    @classmethod  # noqa: B027 - many have nothing to refuse
    def check(cls, cfg: StackConfig) -> None:
        """Refuse combinations of options that make no sense together."""

    @abstractmethod
    def factors(self, s: Values, t: Scalar) -> list[Any]:
        """Of every half what its steps need, from time t on: vectors over the layers, numbers, and tuples of such."""

    @abstractmethod
    def step(self, half: int, state: State, force: Force, factors: Any, bound: Bound) -> State:
        """One step under a force."""

    def clock(self, s: Values) -> Values:
        """What else may be told of the layers: time and damping."""
        return {}


class Gradient(Stepper):
    """x = x + h N(f(x))        with h = 1 under the MLP, and under attention too unless h_x is given"""

    options: ClassVar[dict[str, Any]] = {"bound": "none", "h_x": None}
    has_momentum = False
    summary = "a classical transformer block, a gradient step of its tokens"

    def __init__(self, cfg: StackConfig) -> None:
        super().__init__(cfg)
        self.specs = {} if cfg.h_x is None else {"h_x": ScalarSpec(cfg.h_x, "positive")}

    @classmethod
    def check(cls, cfg: StackConfig) -> None:
        for name, value, others in (
            ("bound", cfg.bound, ("none", "update")),
            ("transport", cfg.transport or "none", ("none", "positions")),
        ):
            if value not in others:
                raise InputError(f"{name} = {value!r} is for momenta, which stepper = 'gradient' does not have; choose"
                                 f" {' or '.join(others)}")  # fmt: skip

    def factors(self, s: Values, t: Scalar) -> list[Any]:
        return [s.get("h_x", 1.0), 1.0][: len(self.halves)]

    def step(self, half: int, state: State, force: Force, factors: Any, bound: Bound) -> State:
        return state._replace(x=ops.plus(state.x, factors, under(bound.force, update_of(force(state.x)))))


class Nesterov(Stepper):
    """y = N(beta y + gamma f(x + mu y))        x = x + y

    the same under attention and under the MLP, with one N for both and scalars of their own for each. Bound "drift": y
    under a cap alone, and N where it moves x.
    """

    options: ClassVar[dict[str, Any]] = {"bound": "momentum", "mu": 0.1, "beta": 0.3}
    summary = "every layer is a step of Nesterov's method in Euclidean space"

    def __init__(self, cfg: StackConfig) -> None:
        super().__init__(cfg)
        self.n_bounds = 1
        for half in self.halves:
            self.specs |= nesterov_specs(half, cfg.mu, cfg.beta)

    @classmethod
    def check(cls, cfg: StackConfig) -> None:
        if cfg.mu == 0:
            raise InputError("mu must lie strictly between 0 and 1 with stepper = 'nesterov', got 0")

    def factors(self, s: Values, t: Scalar) -> list[Any]:
        return [nesterov_factors(s, half) for half in self.halves]

    def step(self, half: int, state: State, force: Force, factors: Any, bound: Bound) -> State:
        return nesterov_step(state, force, factors, bound)


def nesterov_specs(half: str, mu: float | None, beta: float | None) -> dict[str, ScalarSpec]:
    starts = {"mu": mu, "beta": beta, "gamma": 1.0}
    return {f"{name}_{half}": ScalarSpec(start, "positive" if name == "gamma" else "fraction")
            for name, start in starts.items() if start is not None}  # fmt: skip


def nesterov_factors(s: Values, half: str) -> tuple[Any, ...]:
    return tuple(s.get(f"{name}_{half}") for name in ("mu", "beta", "gamma"))


def nesterov_step(state: State, force: Force, factors: Any, bound: Bound) -> State:
    """y = N(beta y + gamma f(x + mu y))        x = x + y"""
    (mu, beta, gamma), (x, y) = factors, state[:2]
    update = under(bound.force, update_of(force(ops.plus(x, mu, y))))
    y = under(bound.momentum, Sum(beta, y, gamma, update))
    return state._replace(x=x + under(bound.drift, y), y=y)


class Hamiltonian(Stepper):
    """F, G = force(x + mu y)        x, y = integrator step        y = N(y)

    The MLP by itself takes Nesterov's step, x and y as the first half left them. mlp_velocity "own" takes a velocity v
    of its own for y there. "attention" is what the authors' scripts do instead: with v = (x+ - x)/h_x, the velocity of
    the attention step, x = x + gamma MLP(x + m v). Bound "drift" leaves y raw but for a cap, and has N where it moves
    x, so that the damping and the integrators matter.
    """

    # fmt: off
    options: ClassVar[dict[str, Any]] = {
        "bound": "momentum", "integrator": "exp_euler", "damping": None, "h_x": 0.05, "h_y": 1.0, "mu": 0.0,
    }
    # fmt: on
    mlp_options: ClassVar[dict[str, Any]] = {"mu_mlp": 0.1, "beta": 0.3, "mlp_velocity": "momentum"}
    inertial = True
    summary = "every layer is one time step of a damped Hamiltonian flow of the tokens"

    def __init__(self, cfg: StackConfig) -> None:
        super().__init__(cfg)
        scheme = INTEGRATORS[cfg.integrator or ""]()
        assert isinstance(scheme, FrozenIntegrator)  # `check` refuses others
        self.scheme, self.velocity = scheme, cfg.mlp_velocity
        damping = cfg.damping if isinstance(cfg.damping, tuple) else (0.0, 0.0)
        starts = {"h_x": cfg.h_x, "h_y": cfg.h_y, "c_log": damping[0], "c_lin": damping[1]}
        shares = {"factor": None if isinstance(cfg.damping, tuple) else cfg.damping, "mu": cfg.mu}
        self.specs = {name: ScalarSpec(value, "positive") for name, value in starts.items() if value}
        self.specs |= {name: ScalarSpec(value, "fraction") for name, value in shares.items() if value}
        if len(self.halves) > 1:
            self.specs |= nesterov_specs("mlp", cfg.mu_mlp, cfg.beta)
        if self.velocity == "attention":  # nothing of v is carried on
            self.n_bounds = 1

    @classmethod
    def check(cls, cfg: StackConfig) -> None:
        """A layer has one field to offer, at the positions it starts from."""
        scheme, fit = INTEGRATORS[cfg.integrator or ""], "[c_log, c_lin] of alpha = c_log/t + c_lin"
        if not issubclass(scheme, FrozenIntegrator):
            names = ", ".join(name for name, kind in INTEGRATORS.items() if issubclass(kind, FrozenIntegrator))
            raise InputError(f"integrator = {cfg.integrator!r} does not fit a layer, which has one field to offer, at"
                             f" its own positions; choose one of {names}")  # fmt: skip
        if scheme.momenta > 1 and ATTENTIONS[cfg.attention].one_momentum:
            raise InputError(f"{cfg.integrator} needs a second scan with {cfg.attention} attention, whose state mixes x"
                             " and y; choose presymp_euler or exp_euler")  # fmt: skip
        if scheme.damped != isinstance(cfg.damping, tuple):
            fit = fit if scheme.damped else "one number, the momentum's factor"
            raise InputError(f"damping of {cfg.integrator} must be {fit}, got {cfg.damping!r}")
        if isinstance(cfg.damping, float | int) and not 0 < cfg.damping < 1:
            raise InputError(f"damping of {cfg.integrator} must lie strictly between 0 and 1, got {cfg.damping}")

    def factors(self, s: Values, t: Scalar) -> list[Any]:
        first = s.get("mu"), s["h_x"], self.scheme.factors(self._steps(s, t))
        return [first, nesterov_factors(s, "mlp")][: len(self.halves)]

    def _steps(self, s: Values, start: Scalar) -> Step:
        """The layers as time steps of the flow: the clock advances by h_x a layer."""
        h_x = s["h_x"]
        t = torch.cat((torch.ones_like(h_x[:1]) * start, h_x[:-1])).cumsum(0)
        k: Any = torch.arange(len(h_x), device=h_x.device)
        return Step(k, t, h_x, s["h_y"], LogLinear(s.get("c_log", 0.0), s.get("c_lin", 0.0)), s.get("factor"))

    def clock(self, s: Values) -> Values:
        step = self._steps(s, 1.0)
        return {"t": step.t} | ({"alpha": step.damping.alpha(step.t)} if self.scheme.damped else {})

    def step(self, half: int, state: State, force: Force, factors: Any, bound: Bound) -> State:
        if half:
            return self._mlp_step(state, force, factors, bound)
        (mu, h_x, own), (x, y) = factors, state[:2]
        field = force(x if mu is None else ops.plus(x, mu, y))
        if bound.force is not None or bound.drift is not None:
            field = Bounded(field, bound)
        x_next, y_next, history = self.scheme.advance(field, x, y, own, state.history)
        x_next = ops.plus(x_next.u, x_next.b, x_next.v) if isinstance(x_next, Sum) else x_next
        v = (x_next - x) / h_x if self.velocity == "attention" else state.v
        return State(x_next, under(bound.momentum, y_next), v, history, state.t)

    def _mlp_step(self, state: State, force: Force, factors: Any, bound: Bound) -> State:
        if self.velocity == "momentum":
            return nesterov_step(state, force, factors, bound)
        assert state.v is not None
        if self.velocity == "own":
            moved = nesterov_step(state._replace(y=state.v), force, factors, bound)
            return moved._replace(y=state.y, v=moved.y)
        x = ops.plus(state.x, factors[2], force(ops.plus(state.x, factors[0], state.v)))
        return state._replace(x=x, v=None)


class Bounded(Field):
    """A field under the norms on its force, or on its velocity."""

    def __init__(self, field: Field, bound: Bound) -> None:
        self.field, self.bound = field, bound

    def velocity(self, y: Tensor) -> Tensor:
        return under(self.bound.drift, self.field.velocity(y))

    def force(self, y: Tensor) -> Tensor:
        return under(self.bound.force, self.field.force(y))

    def both(self, y: Tensor) -> tuple[Tensor, Tensor]:
        velocity, force = self.field.both(y)
        return under(self.bound.drift, velocity), under(self.bound.force, force)

    def first_order(self) -> Tensor:
        return self.field.first_order()


BASES["stepper"] = Stepper
register("stepper", "gradient", Gradient)
register("stepper", "nesterov", Nesterov)
register("stepper", "hamiltonian", Hamiltonian)
