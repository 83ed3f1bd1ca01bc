"""What defines a stack of layers: a frozen, validated dataclass. Every option says which layers use it.

An option that the chosen parts do not use is refused when it is given, and left out when a config is written.
"""

import dataclasses
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Self, get_args

from sympformer.config_checks import check_names, check_types
from sympformer.errors import InputError
from sympformer.flows import INTEGRATORS, FrozenIntegrator
from sympformer.flows.attention import Form
from sympformer.nn.scalars import SMALLEST
from sympformer.nn.tables import ATTENTIONS, DYNAMICS, MLPS, NO_MLP, POSITIONS, check_choice

Heads = Literal["averaged", "multi", "projected"]
Value = Literal["free", "tied"]
Mobility = Literal["free", "spd", "derived", "identity"]
Kernel = Literal["free", "spd"]
Schedule = Literal["log-linear", "nesterov", "constant"]
MlpVelocity = Literal["momentum", "attention", "own"]
MomentumBound = Literal["norm", "cap", "none", "drift"]
Transport = Literal["none", "positions", "momenta", "both"]
AttentionStep = Literal["ahead", "h0", "r2", "h1"]
CURVED: tuple[AttentionStep, ...] = ("r2", "h1")  # the steps with the curvature term of attention

# field -> the table that holds its values
CHOICES = {
    "architecture": "dynamics",
    "attention": "attention",
    "integrator": "integrator",
    "norm": "norm",
    "mlp": "mlp",
    "positions": "positions",
}
# options that decide whether others are of use, and the values they can have
SWITCHES: dict[str, Iterable[Any]] = {
    "look_ahead": (False, True),
    "attention_step": get_args(AttentionStep),
    "momentum_bound": get_args(MomentumBound),
    "damping": get_args(Schedule),
    "integrator": INTEGRATORS,
    "mlp": MLPS,
    "mlp_velocity": get_args(MlpVelocity),
    "heads": get_args(Heads),
    "positions": POSITIONS,
    "update_norm": (False, True),
    "causal": (False, True),
}
ALWAYS = frozenset(
    {
        *("architecture", "attention", "n_layer", "n_head", "d_model", "norm", "mlp", "positions"),
        *("dropout", "share_layers", "causal"),
    }
)


@dataclass(frozen=True)
class StackConfig:
    """The layers of a model, as steps of one of the dynamics."""

    architecture: str = "sympformer"
    """sympformer (damped Hamiltonian step), yuriiformer (Euclidean Nesterov step), gpt (classical block) or streams
    (classical block on two streams, a control)."""
    attention: str = "softmax"
    """softmax or linear attention."""
    integrator: str = "exp_euler"
    """sympformer: its time integrator, a name of flows.INTEGRATORS with one kernel evaluation a step."""

    n_layer: int = 4
    """Number of layers: time steps of the flow."""
    n_head: int = 4
    """Number of heads; it must divide d_model."""
    d_model: int = 64
    """Width of a token's position, and of its momentum."""
    norm: str = "layernorm"
    """layernorm or rmsnorm: in front of attention and MLP, at the end, and on momenta under bound "norm"."""
    mlp: str = "gelu"
    """The MLP of a layer's second half: gelu, relu2, swiglu, or none."""
    mlp_ratio: int = 4
    """Hidden width of the MLP as a multiple of d_model; swiglu takes two thirds of it, for as many parameters."""
    positions: str = "none"
    """How places are told: learned (a table), rotary (queries and keys are turned, head by head), or none."""
    qk_norm: bool = False
    """Norms on queries and keys, head by head, before they are turned."""
    n_kv_head: int = 0
    """Heads of keys and values, each for a group of query heads; it must divide n_head. 0: n_head."""
    zero_start: bool = False
    """Start the matrices that write into the stream at zero: the MLP's last, and that of attention, if it has one."""
    dropout: float = 0.0
    """Dropout on embeddings, attention updates and MLP updates."""
    share_layers: bool = False
    """Whether all layers share one set of weights and scalars (ALBERT-like)."""
    causal: bool = True
    """Whether a token sees only itself and earlier tokens; False: every token sees all."""
    transport: Transport = "none"
    """What moves on from the token before it, by a learned share, ahead of every layer: positions, momenta, both or
    none. It has a direction, that of the text: causal stacks only."""

    heads: Heads = "averaged"
    """sympformer: one kernel from the scores averaged over heads (the paper), one kernel a head, or one kernel a head
    and a matrix that mixes their forces, as in GPT."""
    d_key: int = 0
    """sympformer: width m of queries and keys (the paper's Q, K in R^{m x d}), all heads together; 0: d_model."""
    form: Form = "own"
    """Softmax force: gradient of a token's own Hamiltonian, or the paper's row form with the others' momenta."""
    value: Value = "free"
    """What the force points along: a learned value matrix, or the paper's A x with A from queries and keys."""
    mobility: Mobility = "free"
    """Softmax mobility B: a learned matrix, symmetric positive definite by construction, Sym(V A^-1), or none (I)."""
    with_z: bool = True
    """Whether the softmax flow has its z: velocity B y / z and a force that grows with z; False: z = 1."""
    with_rho: bool = True
    """Whether the softmax force has its kinetic part, rho = <y, B y> / z^2; False: rho = 0."""
    kernel: Kernel = "free"
    """Linear kernel A: W_K' W_Q as learned, or with V symmetric and A positive definite by construction."""

    damping: Schedule = "log-linear"
    """alpha(t) = c_log/t + c_lin, c_log/t, or c_lin. plain_euler uses `factor` instead."""
    learn_damping: bool = True
    """Whether the damping coefficients are learned, a pair for each layer."""
    c_log: float = 3.0
    """Start of the coefficient of 1/t."""
    c_lin: float = 1e-4
    """Start of the constant part of the damping."""
    t0: float = 1.0
    """Time of the first layer; the clock then advances by h_x a layer."""
    factor: float = 0.9
    """Start of plain_euler's momentum factor a, in (0, 1)."""
    h_x: float = 0.1
    """Start of the position step. gpt: the step of the attention update."""
    h_y: float = 0.1
    """Start of the momentum step."""
    learn_steps: bool = True
    """Whether step sizes are learned, a pair for each layer."""
    look_ahead: bool = False
    """Evaluate attention at x + mu y instead of x."""
    mu: float = 0.001
    """Start of the look-ahead in front of attention, in (0, 1). yuriiformer: of all its look-aheads."""
    attention_step: AttentionStep = "ahead"
    """yuriiformer: its attention step. Attention at x + mu y (ahead, YuriiFormer's own) or at x (h0); at x with the
    curvature term of the proposed step (r2) or of the momentum (h1), for softmax attention."""

    mlp_velocity: MlpVelocity = "momentum"
    """Which velocity the MLP step extends: the momentum (Algorithm 1), (x+ - x)/h (the authors' scripts; such a step
    has no beta and no bound), or a stream of its own."""
    mlp_look_ahead: float = 0.9
    """Start of the MLP step's look-ahead m, in (0, 1)."""
    beta: float = 0.9
    """Start of the MLP step's momentum factor, in (0, 1). yuriiformer: of both its factors."""
    gamma: float = 1.0
    """Start of the MLP step's gain. yuriiformer: of both its gains."""
    momentum_bound: MomentumBound = "norm"
    """What keeps the momentum finite: the norm, a cap on the root mean square of each row, or none. drift: the cap, and
    the norm on what the momentum adds to the position."""
    momentum_gain: float = 1.0
    """Start of the gains of the norms on momenta, and on updates (update_norm)."""
    update_norm: bool = False
    """gpt, streams: a norm on what attention and MLP add, x + N(f(N(x))), as others have one on the momentum."""
    momentum_cap: float = 1.0
    """Largest root mean square of a row under bounds "cap" and "drift"."""

    def __post_init__(self) -> None:
        check_types(self)
        for option, kind in CHOICES.items():
            check_choice(kind, getattr(self, option), option)
        self._check_sizes()
        self._check_ranges()
        self._check_integrator()
        refuse_unused(self, [f.name for f in dataclasses.fields(self) if getattr(self, f.name) != f.default])
        self._check_positions()
        self._check_transport()
        self._check_attention_step()
        ATTENTIONS[self.attention].check(self)

    def _check_sizes(self) -> None:
        for name in ("n_layer", "n_head", "d_model", "mlp_ratio"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} must be at least 1, got {getattr(self, name)}")
        if self.d_model % self.n_head:
            raise InputError(f"n_head must divide d_model, got n_head = {self.n_head} and d_model = {self.d_model}")
        if not 0 <= self.d_key <= self.d_model or self.d_key % self.n_head:
            raise InputError(
                f"d_key must be a multiple of n_head = {self.n_head} up to d_model = {self.d_model}, or 0 for d_model;"
                f" got {self.d_key}"
            )
        if self.n_kv_head < 0 or self.n_head % (self.n_kv_head or self.n_head):
            raise InputError(f"n_kv_head must divide n_head = {self.n_head}, or be 0 for n_head; got {self.n_kv_head}")

    def _check_ranges(self) -> None:
        for name in ("factor", "mu", "mlp_look_ahead", "beta"):
            if not 0 < getattr(self, name) < 1:
                raise InputError(f"{name} must lie strictly between 0 and 1, got {getattr(self, name)}")
        for name in ("h_x", "h_y", "c_log", "c_lin", "t0", "gamma", "momentum_gain", "momentum_cap"):
            if not SMALLEST <= getattr(self, name) < math.inf:
                raise InputError(
                    f"{name} must be positive and finite, {SMALLEST:g} at least, got {getattr(self, name)}"
                )
        if not 0 <= self.dropout < 1:
            raise InputError(f"dropout must lie in [0, 1), got {self.dropout}")

    def _check_integrator(self) -> None:
        """A layer has one field to offer, at the positions it starts from."""
        scheme = INTEGRATORS[self.integrator]
        if not issubclass(scheme, FrozenIntegrator):
            fit = [name for name, kind in INTEGRATORS.items() if issubclass(kind, FrozenIntegrator)]
            raise InputError(
                f"integrator = {self.integrator!r} does not fit a layer, which has one field to offer, at its own"
                f" positions; choose one of {', '.join(fit)}"
            )
        if scheme.momenta > 1 and ATTENTIONS[self.attention].one_momentum:
            raise InputError(
                f"{self.integrator} needs a second scan with {self.attention} attention, whose state mixes x and y;"
                " choose presymp_euler or exp_euler"
            )

    def _check_positions(self) -> None:
        """Turns need queries and keys, whose columns go in pairs."""
        if not POSITIONS[self.positions].turns:
            return
        if "positions" not in DYNAMICS[self.architecture].options(self):
            raise InputError(
                f"positions = {self.positions!r} turns queries and keys, which {self.architecture} layers with"
                f" {self.attention} attention do not have; choose learned or none"
            )
        if self.d_query % 2:
            raise InputError(
                f"positions = {self.positions!r} turns the columns of a head in pairs: queries and keys must be of even"
                f" width, got {self.d_query} a head ({self.width_key} columns, n_head = {self.n_head})"
            )

    def _check_transport(self) -> None:
        """Momenta that are not there cannot be moved."""
        if self.transport in ("momenta", "both") and not DYNAMICS[self.architecture].has_momentum:
            raise InputError(
                f"transport = {self.transport!r} moves momenta, which {self.architecture} layers do not have;"
                " choose positions or none"
            )

    def _check_attention_step(self) -> None:
        """The curvature term is worked out from the derivative of softmax scores that are bilinear in the tokens."""
        if self.attention_step not in CURVED:
            return
        if ATTENTIONS[self.attention].curved is None:
            raise InputError(
                f"attention_step = {self.attention_step!r} is the curvature of softmax kernels, which {self.attention}"
                " attention does not have; choose ahead or h0"
            )
        if self.qk_norm:
            raise InputError(
                f"qk_norm does not go with attention_step = {self.attention_step!r}: normalised queries and keys are"
                " not linear in the tokens, as its derivative of the scores has them; leave one of them out"
            )
        if self.momentum_bound == "none":
            raise InputError(
                f"momentum_bound = 'none' does not go with attention_step = {self.attention_step!r}, whose term grows"
                " as the third power of the momentum; choose norm, cap or drift"
            )

    @property
    def d_head(self) -> int:
        """Width of a head."""
        return self.d_model // self.n_head

    @property
    def width_key(self) -> int:
        """Width of queries and keys, all heads together."""
        return self.d_key or self.d_model

    @property
    def d_query(self) -> int:
        """Width of queries and keys of one head."""
        return self.width_key // self.n_head

    @property
    def n_key_head(self) -> int:
        """Number of heads that keys and values have."""
        return self.n_kv_head or self.n_head

    def used(self) -> frozenset[str]:
        """The options that have an effect, given the others."""
        mlp = frozenset() if self.mlp == NO_MLP else frozenset({"mlp_ratio", "zero_start"})
        order = frozenset({"transport"} if self.causal else ())
        return ALWAYS | mlp | order | DYNAMICS[self.architecture].options(self)

    def replace(self, **changes: Any) -> Self:
        """A copy with some fields changed; unknown names are errors that suggest the nearest.

        What the change puts out of use goes back to its default.
        """
        check_names(type(self), changes, "model", "model option")
        return self.made_of(self.to_dict(), changes)

    def to_dict(self) -> dict[str, Any]:
        """The fields that have an effect, as plain values."""
        used = self.used()
        return {name: value for name, value in dataclasses.asdict(self).items() if name in used}

    @classmethod
    def made_of(cls, starts: Mapping[str, Any], given: Mapping[str, Any]) -> Self:
        """The config of `given` on top of `starts`. What is given must be of use; starts that are not are left out."""
        everything = {**starts, **given}
        chosen = {name: everything[name] for name in {*CHOICES, *SWITCHES} & everything.keys()}
        try:
            used = _draft(cls, chosen).used()
        except InputError:  # the same complaint as the config's own, which names the cause better
            used = frozenset(everything)
        kept = {name: value for name, value in starts.items() if name in used}
        config = cls(**{**kept, **given})
        refuse_unused(config, given)
        return config


def _draft(cls: type[StackConfig], chosen: Mapping[str, Any]) -> StackConfig:
    """A config of the choices alone, validated no further: enough to ask which options are used."""
    draft = object.__new__(cls)
    for field in dataclasses.fields(cls):
        object.__setattr__(draft, field.name, chosen.get(field.name, field.default))
    check_types(draft)  # a list is no name, and no table can be asked for it
    for option, kind in CHOICES.items():
        check_choice(kind, getattr(draft, option), option)
    return draft


def refuse_unused(config: StackConfig, given: Iterable[str]) -> None:
    """Refuse options that have no effect with the chosen parts."""
    used = config.used()
    for name in given:
        if name not in used:
            raise InputError(f"{name} = {getattr(config, name)!r} {_whose(config, name)}; leave it out")


def _whose(config: StackConfig, name: str) -> str:
    """Why an option has no effect: because of another option's value, or because of the kind of layer."""

    def helps(option: str, value: object) -> bool:
        return name in _draft(type(config), vars(config) | {option: value}).used()

    for option, values in SWITCHES.items():
        if any(helps(option, value) for value in values):
            return f"has no effect with {option} = {getattr(config, option)!r}"
    for option, table, what in (("attention", ATTENTIONS, "attention"), ("architecture", DYNAMICS, "layers")):
        if others := [row for row in table if helps(option, row)]:
            return f"belongs to {' and '.join(others)} {what}, not to {getattr(config, option)}"
    return f"has no effect on {config.architecture} layers with {config.attention} attention"
