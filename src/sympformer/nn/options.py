"""What defines a stack of layers: a frozen, validated dataclass of flat names.

An option lives with the part that uses it: a stepper, a kind of attention, a bound names its options and what they are
by default. Given to a stack whose parts lack it, it is refused, and it is None there.
"""

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Self

from sympformer.config_checks import check_names, check_types
from sympformer.errors import InputError
from sympformer.flows import INTEGRATORS
from sympformer.nn.scalars import SMALLEST
from sympformer.nn.tables import ATTENTIONS, NO_MLP, POSITIONS, STEPPERS, TABLES, check_choice

Splitting = Literal["sequential", "parallel"]
BoundKind = Literal["none", "update", "momentum", "cap", "drift"]
Heads = Literal["averaged", "multi", "projected"]
Value = Literal["free", "tied", "spd"]
Mobility = Literal["identity", "free", "spd", "derived"]
Form = Literal["newton", "own", "paper"]
MlpVelocity = Literal["momentum", "attention", "own"]
Transport = Literal["none", "positions", "momenta", "both"]

CHOICES = ("stepper", "attention", "norm", "mlp", "positions", "integrator")  # fields whose values are rows of tables
GAINED = ("update", "momentum", "drift")  # bounds with a norm
CAPPED = ("cap", "drift")  # bounds with a cap on the momentum


@dataclass(frozen=True)
class StackConfig:
    """The layers of a model: forces, a splitting, a stepper, and a place for the norm."""

    stepper: str = "hamiltonian"
    """How a layer moves its tokens: gradient (x + h f), nesterov (Euclidean, as YuriiFormer), hamiltonian (the paper's
    damped flow)."""
    splitting: Splitting = "sequential"
    """sequential: a step under attention, then one under the MLP. parallel: one step under both."""
    attention: str = "softmax"
    """softmax or linear attention."""
    bound: BoundKind | None = None
    """Where a norm stands: on every update (update), on the momentum (momentum), on what it adds to the position, the
    momentum under a cap (drift); a cap alone (cap), or none. By default momentum; with stepper gradient none."""
    gain: float | None = None
    """Start of that norm's gain."""

    n_layer: int = 4
    """Number of layers: time steps of the flow."""
    n_head: int = 4
    """Number of heads; it must divide d_model."""
    d_model: int = 64
    """Width of a token's position, and of its momentum."""
    norm: str = "layernorm"
    """layernorm or rmsnorm: in front of attention and MLP, at the end, and where the bound has one."""
    mlp: str = "gelu"
    """The MLP of a layer's second half: gelu, relu2, swiglu, or none."""
    mlp_ratio: int | None = None
    """Hidden width of the MLP as a multiple of d_model; swiglu takes two thirds of it, for as many parameters."""
    positions: str = "none"
    """How places are told: learned (a table), rotary (queries and keys are turned, head by head), or none."""
    zero_start: bool = False
    """Start the matrices that write into the stream at zero: the MLP's last, and that of attention, if it has one."""
    dropout: float = 0.0
    """Dropout on embeddings, attention updates and MLP updates."""
    share_layers: bool = False
    """Whether all layers share one set of weights and scalars (ALBERT-like)."""
    causal: bool = True
    """Whether a token sees only itself and earlier tokens; False: every token sees all."""
    transport: Transport | None = None
    """What moves on from the token before it, by a learned share, ahead of every layer: positions, momenta, both or
    none. It has a direction, that of the text: causal stacks only."""

    heads: Heads | None = None
    """One kernel from the scores averaged over heads (the paper), one kernel a head, or one kernel a head and a matrix
    that mixes their forces (projected, as in GPT)."""
    value: Value | None = None
    """What the force points along: a learned value matrix (free), or the paper's A x with A from queries and keys
    (tied); linear attention: spd, as tied with A positive definite and V symmetric by construction."""
    mobility: Mobility | None = None
    """Softmax mobility B: none (identity), a learned matrix, symmetric positive definite by construction, or
    Sym(V A^-1) (derived)."""
    qk_norm: bool | None = None
    """Norms on queries and keys, head by head, before they are turned."""
    n_kv_head: int | None = None
    """Heads of keys and values, each for a group of query heads; it must divide n_head. 0: n_head."""
    d_key: int | None = None
    """Width m of queries and keys (the paper's Q, K in R^{m x d}), all heads together; 0: d_model."""
    form: Form | None = None
    """Softmax flow: Newton's law (z = 1, rho = 0), the gradient of a token's own Hamiltonian, or the paper's row form
    with the others' momenta."""

    integrator: str | None = None
    """Time integrator of stepper hamiltonian: a name of flows.INTEGRATORS with one kernel evaluation a step."""
    damping: float | tuple[float, float] | None = None
    """Start of the damping alpha(t) = c_log/t + c_lin, as [c_log, c_lin], either of which may be 0: it is not there
    then. plain_euler: of the momentum's factor, a number in (0, 1)."""
    h_x: float | None = None
    """Start of the position step. gradient: of the step of the attention update; 1 and not learned unless given."""
    h_y: float | None = None
    """Start of the momentum step."""
    mu: float | None = None
    """Start of the look-ahead x + mu y in front of attention, in (0, 1); 0: none, at x. nesterov: of both halves'."""
    beta: float | None = None
    """Start of the momentum factor of the MLP's step, in (0, 1). nesterov: of both halves'."""
    mu_mlp: float | None = None
    """Start of the look-ahead in front of the MLP of stepper hamiltonian, in (0, 1)."""
    mlp_velocity: MlpVelocity | None = None
    """Which velocity the MLP's step extends: the momentum (Algorithm 1), (x+ - x)/h (the authors' scripts; such a step
    has no factor and no bound), or a stream of its own."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "damping", _pair(self.damping))
        check_types(self)
        used = self.used()
        for name in parts_options(type(self)):
            value = getattr(self, name)
            if name not in used and value is not None:
                raise InputError(f"{name} = {value!r} {self._whose(name)}; leave it out")
            if value is None:
                object.__setattr__(self, name, used.get(name))
        self._check_sizes()
        self._check_ranges()
        STEPPERS[self.stepper].check(self)
        ATTENTIONS[self.attention].check(self)
        self._check_positions()

    def used(self) -> dict[str, Any]:
        """The options that the chosen parts have, and what they are unless given."""
        for name in CHOICES:
            if (value := getattr(self, name)) is not None:
                check_choice(name, value)
        stepper, attention = STEPPERS[self.stepper], ATTENTIONS[self.attention]
        found: dict[str, Any] = {**stepper.options, **attention.options}
        found |= attention.flow_options if stepper.inertial else {}
        if self.mlp != NO_MLP:
            found |= {"mlp_ratio": 4, **(stepper.mlp_options if self.splitting == "sequential" else {})}
            if self.mlp_velocity == "attention":
                found.pop("beta", None)
        if "integrator" in found:
            found["damping"] = (3.0, 1e-4) if INTEGRATORS[self.integrator or found["integrator"]].damped else 0.3
        if (self.bound or found["bound"]) in GAINED:
            found["gain"] = 0.03
        return found | ({"transport": "none"} if self.causal else {})

    def _whose(self, name: str) -> str:
        """Which parts have an option, in words: these have not."""
        for kind in ("stepper", "attention"):
            kinds = ("options", "mlp_options", "flow_options")
            owners = [row for row, part in TABLES[kind].items() if any(name in getattr(part, k, ()) for k in kinds)]
            if owners and getattr(self, kind) not in owners:
                return f"belongs to {kind} {' and '.join(owners)}, not to {getattr(self, kind)}"
        why = {"block_size": "positions", "gain": "bound", "transport": "causal", "beta": "mlp_velocity"}
        by = "mlp" if name in ("mlp_ratio", *STEPPERS[self.stepper].mlp_options) else why.get(name, "stepper")
        if by == "mlp" and self.mlp != NO_MLP:
            by = "splitting" if self.splitting == "parallel" else "mlp_velocity"
        return f"has no effect with {by} = {getattr(self, by)!r}"

    def _check_sizes(self) -> None:
        for name in ("n_layer", "n_head", "d_model", "mlp_ratio"):
            if (value := getattr(self, name)) is not None and value < 1:
                raise InputError(f"{name} must be at least 1, got {value}")
        if self.d_model % self.n_head:
            raise InputError(f"n_head must divide d_model, got n_head = {self.n_head} and d_model = {self.d_model}")
        if not 0 <= self.width_key <= self.d_model or self.width_key % self.n_head:
            raise InputError(f"d_key must be a multiple of n_head = {self.n_head} up to d_model = {self.d_model}, or 0"
                             f" for d_model; got {self.d_key}")  # fmt: skip
        if self.n_key_head < 0 or self.n_head % self.n_key_head:
            raise InputError(f"n_kv_head must divide n_head = {self.n_head}, or be 0 for n_head; got {self.n_kv_head}")

    def _check_ranges(self) -> None:
        for name in ("beta", "mu_mlp", "mu"):
            value = getattr(self, name)
            if value is not None and not (0 < value < 1 or (name == "mu" and value == 0)):
                raise InputError(f"{name} must lie strictly between 0 and 1, got {value}")
        damping = self.damping if isinstance(self.damping, tuple) else ()
        positive = [(name, getattr(self, name)) for name in ("h_x", "h_y", "gain")]
        for name, value in positive + [("damping", value) for value in damping if value]:
            if value is not None and not SMALLEST <= value < math.inf:
                raise InputError(f"{name} must be positive and finite, {SMALLEST:g} at least, got {value}")
        if not 0 <= self.dropout < 1:
            raise InputError(f"dropout must lie in [0, 1), got {self.dropout}")

    def _check_positions(self) -> None:
        """Turns need queries and keys, whose columns go in pairs."""
        if not POSITIONS[self.positions].turns:
            return
        if "qk_norm" not in ATTENTIONS[self.attention].options:
            raise InputError(f"positions = {self.positions!r} turns queries and keys, which {self.attention} attention"
                             " does not have; choose learned or none")  # fmt: skip
        if self.d_query % 2:
            raise InputError(f"positions = {self.positions!r} turns the columns of a head in pairs: queries and keys"
                             f" must be of even width, got {self.d_query} a head ({self.width_key} columns,"
                             f" n_head = {self.n_head})")  # fmt: skip

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

    @property
    def has_momentum(self) -> bool:
        """Whether tokens have momenta."""
        return bool(STEPPERS[self.stepper].has_momentum)

    def twin(self) -> Self:
        """The same without momentum: the stepper a gradient step, and the norm, where it stood on the momentum, on the
        update."""
        changes: dict[str, Any] = {"stepper": "gradient", "bound": "update" if self.bound in GAINED else "none"}
        changes |= {"gain": self.gain} if self.bound in GAINED else {}
        moved = {"momenta": "none", "both": "positions"}
        return self.replace(**changes, **({"transport": moved[self.transport]} if self.transport in moved else {}))

    def replace(self, **changes: Any) -> Self:
        """A copy with some fields changed; unknown names are errors that suggest the nearest.

        What the change puts out of use goes, and a part that is another starts from its own defaults.
        """
        check_names(type(self), changes, "model", "model option")
        return self.made_of(self.to_dict(), changes)

    def to_dict(self) -> dict[str, Any]:
        """The fields that have an effect, as plain values."""
        values = dataclasses.asdict(self)
        return {n: list(v) if isinstance(v, tuple) else v for n, v in values.items() if v is not None}

    @classmethod
    def made_of(cls, starts: Mapping[str, Any], given: Mapping[str, Any]) -> Self:
        """The config of `given` on top of `starts`. What is given must be of use; starts that are not are left out."""
        changed = [name for name in CHOICES if name in given and given[name] != starts.get(name, given[name])]
        gone = {"damping"} if "integrator" in changed else set()  # their values say nothing under another row
        if "stepper" in changed:
            part = STEPPERS[starts["stepper"]]
            gone |= {*part.options, *part.mlp_options, "gain", "damping", "form", "start_momentum"}
        starts = {name: value for name, value in starts.items() if name not in gone}
        everything = {**starts, **given}
        everything["damping"] = _pair(everything.get("damping"))
        draft = object.__new__(cls)
        for field in dataclasses.fields(cls):
            object.__setattr__(draft, field.name, everything.get(field.name, field.default))
        try:
            check_types(draft)
            used = draft.used()
        except InputError:
            return cls(**everything)  # the same complaint as the config's own
        spare = set(parts_options(cls)) - set(used)
        return cls(**{name: value for name, value in everything.items() if name in given or name not in spare})


def parts_options(kind: type[StackConfig]) -> list[str]:
    """The fields that belong to a part which may or may not be chosen."""
    return [field.name for field in dataclasses.fields(kind) if field.default is None]


def _pair(value: Any) -> Any:
    """A pair as JSON and YAML have it, as a tuple."""
    return tuple(value) if isinstance(value, list) else value
