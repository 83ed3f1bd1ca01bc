"""The one place where a layer is exchanged for a faster program that gives the same.

`programs(layers)` is what a stack calls instead of its layers: their fused forms, while the door (`ops.plain`) is open
and a layer is nothing but ours; otherwise the layer itself. `folded(layer)` is the same for a decoder, which takes a
token at a time and learns nothing: there the way through `nn.Module.__call__` costs as much as the small matrix
product it leads to, so constants are worked out once and modules are called directly.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.modules import module as torch_modules

from sympformer import ops
from sympformer.flows import Euler, Field, LogLinear, Step
from sympformer.flows.damping import Scalar
from sympformer.nn.attention.base import View
from sympformer.nn.attention.linear import LinearAttention, LinearOracle
from sympformer.nn.attention.queries import QueryKeys
from sympformer.nn.attention.softmax import CurvedAttention, Mobility, SoftmaxAttention, SoftmaxField, SoftmaxOracle
from sympformer.nn.config import CURVED
from sympformer.nn.dynamics.base import State
from sympformer.nn.dynamics.classical import Classical
from sympformer.nn.dynamics.hamiltonian import Hamiltonian, HamiltonianScalars
from sympformer.nn.dynamics.nesterov import Nesterov
from sympformer.nn.dynamics.streams import Streams
from sympformer.nn.parts import MLP, Matrix, Norm, Projection, RMSNorm, bounded, rms_norm
from sympformer.nn.scalars import LearnedScalars

Program = Callable[[State, View], State]
Function = Callable[..., Any]


def programs(layers: Sequence[nn.Module], t: Scalar, k: int = 0) -> list[Program]:
    """What to call for every layer of a stack whose first step is the k-th, at time t."""
    if not ops.fast():
        return [*layers]
    fit = [type(layer) in FUSED and untouched(layer) for layer in layers]
    alike = all(fit) and all(untouched(layer.scalars) for layer in layers)  # type: ignore[arg-type]
    ours = together(layers, t, k) if alike else layers
    return [
        partial(FUSED[type(layer)], own) if fits else layer for layer, own, fits in zip(layers, ours, fit, strict=True)
    ]


def untouched(module: nn.Module) -> bool:
    """Whether calling a module runs its class's own forward and nothing else, on weights that are there.

    Hooks, a replaced forward (patches, offloading) and weights that are not materialised want the plain way.
    """
    listened = module._forward_hooks or module._forward_pre_hooks or module._backward_hooks
    anywhere = torch_modules._global_forward_hooks or torch_modules._global_forward_pre_hooks
    there = all(parameter is None or not parameter.is_meta for parameter in module._parameters.values())
    return not listened and not anywhere and "forward" not in vars(module) and there


# --- fused layers: the equations of nn.dynamics with fewer intermediates kept for the backward pass


def classical(layer: Any, state: State, view: View) -> State:
    """`Classical`; a unit step multiplies nothing."""
    h, x = layer.scalars().h_x, state.x
    update = layer.attention(layer.norm_attention(x), view)
    x = ops.plus(x, h, bounded(layer.bound_attention, update))
    if layer.mlp is not None:
        x = x + bounded(layer.bound_mlp, layer.mlp(x))
    return state._replace(x=x)


def nesterov(layer: Any, state: State, view: View) -> State:
    """`Nesterov`."""
    s, x, y = layer.scalars(), state.x, state.y
    if layer.step in CURVED:
        x, y = Nesterov.curved_step(layer, s, x, y, view)
    else:
        ahead = ops.plus(x, s.mu_attention, y) if layer.step == "ahead" else x
        update = layer.attention(layer.norm_attention(ahead), view)
        y = bounded_sum(layer.bound, s.beta_attention, y, s.gamma_attention, update)
        x = x + bounded(layer.drift, y)
    if layer.mlp is not None:
        update = layer.mlp(ops.plus(x, s.mu_mlp, y))
        y = bounded_sum(layer.bound, s.beta_mlp, y, s.gamma_mlp, update)
        x = x + bounded(layer.drift, y)
    return state._replace(x=x, y=y)


def hamiltonian(layer: Any, state: State, view: View) -> State:
    """`Hamiltonian`."""
    s, (x, y, v, t, k, history) = layer.scalars(), state
    field = layer.oracle(layer.norm_attention(ops.plus(x, s.mu, y) if layer.look_ahead else x), view)
    x_next, y, history = _advance(layer, layer.drifting(field), x, y, layer.time_step(s, t, k), history)
    if layer.mlp is not None:
        velocity = layer.mlp_velocity
        u: Any = y if velocity == "momentum" else v if velocity == "own" else (x_next - x) / s.h_x
        update = layer.mlp(ops.plus(x_next, s.mlp_look_ahead, u))
        if layer.bound_mlp is None:  # nothing of u is carried on
            x_next = ops.plus(x_next, s.gamma, update)
        else:
            u = bounded_sum(layer.bound_mlp, s.beta, u, s.gamma, update)
            x_next = x_next + bounded(layer.drift_mlp, u)
            y, v = layer.mlp_output(u, y, v)
    return State(x_next, y, v, t + s.h_x, k + 1, history)


def streams(layer: Any, state: State, view: View) -> State:
    """`Streams`: nothing but its scalars, worked out for all layers together."""
    return Streams.mlp_half(layer, Streams.attention_half(layer, state, view))


FUSED: dict[type[nn.Module], Callable[[Any, State, View], State]] = {
    Classical: classical,
    Nesterov: nesterov,
    Hamiltonian: hamiltonian,
    Streams: streams,
}


def _advance(layer: Any, field: Field, x: Tensor, y: Tensor, step: Step, history: Any) -> tuple[Tensor, Tensor, Any]:
    """The integrator's step and the bound on the momentum: in one for Euler schemes."""
    bound = layer.bound_attention
    if not isinstance(layer.scheme, Euler):
        x, y, history = layer.scheme.advance(field, x, y, step, history)
        return x, bound(y), history
    zeta_1, zeta_2 = layer.scheme.prefactors(step)
    if type(field) is SoftmaxField and is_plain_norm(bound) and (own := _own_parts(field)) is not None:
        return *ops.own_euler_step(x, y, *own, step.h_x, zeta_1, zeta_2, bound.weight), None
    velocity, force = field.both(y)
    return ops.plus(x, step.h_x, velocity), bounded_sum(bound, zeta_1, y, zeta_2, force), None


def _own_parts(field: SoftmaxField) -> tuple[Tensor, Tensor, Tensor] | None:
    """B, mean and log z of a field that the fused step computes: form "own" with all its terms."""
    fits = field.form == "own" and field.with_rho and field.dropout == 0 and field.output is None
    return (field.B, field.mean, field.log_z) if fits and field.B is not None and field.log_z is not None else None


def bounded_sum(bound: Any, a: Scalar, u: Tensor, b: Scalar, v: Tensor) -> Tensor:
    """bound(a u + b v); a LayerNorm does it without keeping the sum."""
    if is_plain_norm(bound):
        return ops.norm_of_sum(a, u, b, v, bound.weight)
    return bound(ops.plus(a * u, b, v))


def is_plain_norm(bound: Any) -> bool:
    """Whether a bound is our LayerNorm, so that its gain may be read instead of calling it."""
    return type(bound) is FoldedNorm or (type(bound) is Norm and untouched(bound))


# --- scalars of all layers at once: a layer's own would be some hundred operations on single numbers


def together(layers: Sequence[Any], t: Scalar, k: int) -> Sequence[Any]:
    """The layers of a stack, with scalars and time steps that are worked out for all of them in one go."""
    rows = LearnedScalars.together([layer.scalars for layer in layers])
    split = [_of_layer(value, len(layers)) for value in rows]
    own = [type(rows)(*values) for values in zip(*split, strict=True)] or [rows] * len(layers)
    if not isinstance(rows, HamiltonianScalars):
        return [Folded(layer, scalars=partial(_given, row)) for layer, row in zip(layers, own, strict=True)]
    if not isinstance(rows.h_x, Tensor):
        return layers
    start = torch.as_tensor(t, dtype=rows.h_x.dtype, device=rows.h_x.device).view(1)
    times = torch.cat((start, rows.h_x[:-1])).cumsum(0)
    schedule = Schedule(LogLinear(rows.c_log, rows.c_lin, layers[0].t0), times, rows.h_y, k)
    return [
        Folded(layer, scalars=partial(_given, row), time_step=partial(_step_at, schedule))
        for layer, row in zip(layers, own, strict=True)
    ]


def _of_layer(value: Any, n_layer: int) -> Sequence[Any]:
    """A scalar of every layer: the entries of a vector, or one number for all."""
    return value.unbind() if isinstance(value, Tensor) else [value] * n_layer


def _given(row: Any) -> Any:
    return row


def _step_at(schedule: "Schedule", s: HamiltonianScalars, t: Scalar, k: int) -> Step:
    return Step(k, t, s.h_x, s.h_y, AtStep(schedule, k), s.factor)


class Schedule:
    """A damping schedule at the steps of a whole stack, (layers,) each: what one layer asks for is made for all."""

    def __init__(self, damping: LogLinear, t: Tensor, h: Scalar, first: int) -> None:
        self._damping, self._t, self._h, self.first = damping, t, h, first
        self._made: dict[str, Sequence[Tensor]] = {}  # no `cached_property`: torch.compile stops at its lock

    @property
    def alpha(self) -> Sequence[Tensor]:
        return self._once("alpha", self._t)

    @property
    def sigma(self) -> Sequence[Tensor]:
        return self._once("sigma", self._t, self._h)

    @property
    def weight(self) -> Sequence[Tensor]:
        return self._once("weight", self._t, self._h)

    def _once(self, name: str, *step: Scalar) -> Sequence[Tensor]:
        if name not in self._made:
            self._made[name] = getattr(self._damping, name)(*step).unbind()
        return self._made[name]


class AtStep:
    """The schedule at step k, as an integrator asks for it."""

    def __init__(self, schedule: Schedule, k: int) -> None:
        self._schedule, self._k = schedule, k - schedule.first

    def alpha(self, t: Scalar) -> Tensor:
        return self._schedule.alpha[self._k]

    def sigma(self, t: Scalar, h: Scalar) -> Tensor:
        return self._schedule.sigma[self._k]

    def weight(self, t: Scalar, h: Scalar) -> Tensor:
        return self._schedule.weight[self._k]


# --- folded layers: what a module computes in evaluation, without the machinery of modules around it


class Folded:
    """A module as a decoder sees it: some of its names hold what is cheaper to call, the others are its own."""

    def __init__(self, module: nn.Module, **parts: Any) -> None:
        self._module = module
        vars(self).update(parts)

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._module, name)
        vars(self)[name] = value  # looked up once
        return value


def folded(layer: nn.Module) -> Program:
    """A program for one layer while a text grows and nothing learns. Weights may not be replaced meanwhile."""
    return _fold(layer) if ops.fast() else layer


def _fold(module: nn.Module) -> Function:
    """A function that gives what calling the module gives, in evaluation; the module itself unless it is plain ours."""
    fold = FOLDS.get(type(module))
    return module if fold is None or module.training or not untouched(module) else fold(module)


def _children(module: nn.Module, **parts: Any) -> Folded:
    """The module with its children folded, and `parts` in place of its own."""
    return Folded(module, **{name: _fold(child) for name, child in module.named_children()}, **parts)


def _fold_projection(module: nn.Module) -> Function:
    parameters = module._parameters
    return lambda x: F.linear(x, parameters["weight"])  # type: ignore[arg-type]


class FoldedNorm:
    """`Norm` as a function whose gain can be read."""

    def __init__(self, module: Norm) -> None:
        self._parameters, self._shape, self._eps = module._parameters, module.normalized_shape, module.eps

    @property
    def weight(self) -> Tensor:
        gain = self._parameters["weight"]
        assert gain is not None
        return gain

    def __call__(self, x: Tensor) -> Tensor:
        # `F.layer_norm` looks up the state of cuDNN first, which takes longer than the norm of a token
        return torch.layer_norm(x, self._shape, self._parameters["weight"], None, self._eps)


def _fold_rms_norm(module: Any) -> Function:
    parameters, eps = module._parameters, module.eps
    return lambda x: rms_norm(x, parameters["weight"], eps)


def _fold_scalars(module: Any) -> Function:
    row = module.numbers()
    return lambda: row


def _fold_forward(module: nn.Module) -> Function:
    """The class's own forward on folded children."""
    return partial(type(module).forward, _children(module))


def _fold_oracle(module: Any) -> Function:
    read = [part for part in module.modules() if isinstance(part, Matrix | Mobility)]
    kept = module.matrices() if all(map(untouched, read)) else None
    parts = {} if kept is None else {"matrices": lambda: kept}
    view: Any = _children(module, **parts)
    return partial(SoftmaxOracle.forward, view)


class OneStep:
    """A damping schedule at one step (t, h), as numbers: a layer of a decoder takes the same step again and again."""

    def __init__(self, step: Step) -> None:
        t, h, damping = step.t, step.h_y, step.damping
        self._values = float(damping.alpha(t)), float(damping.sigma(t, h)), float(damping.weight(t, h))

    def alpha(self, t: Scalar) -> float:
        return self._values[0]

    def sigma(self, t: Scalar, h: Scalar) -> float:
        return self._values[1]

    def weight(self, t: Scalar, h: Scalar) -> float:
        return self._values[2]


def _fold_hamiltonian(module: Any) -> Function:
    kept: dict[int, Step] = {}

    def time_step(s: HamiltonianScalars, t: float, k: int) -> Step:
        if k not in kept:
            step = module.time_step(s, t, k)
            kept[k] = Step(step.k, step.t, step.h_x, step.h_y, OneStep(step), step.factor)
        return kept[k]

    return partial(hamiltonian, _children(module, time_step=time_step))


FOLDS: dict[type[nn.Module], Callable[[Any], Function]] = {
    Projection: _fold_projection,
    Norm: FoldedNorm,
    RMSNorm: _fold_rms_norm,
    MLP: _fold_forward,
    QueryKeys: _fold_forward,
    LearnedScalars: _fold_scalars,
    SoftmaxOracle: _fold_oracle,
    LinearOracle: _fold_forward,
    SoftmaxAttention: _fold_forward,
    CurvedAttention: _fold_forward,
    LinearAttention: _fold_forward,
    Classical: lambda layer: partial(classical, _children(layer)),
    Nesterov: lambda layer: partial(nesterov, _children(layer)),
    Hamiltonian: _fold_hamiltonian,
    Streams: lambda layer: partial(streams, _children(layer)),
}
