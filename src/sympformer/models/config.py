"""The one description of a model: a frozen, validated dataclass that round-trips through JSON and YAML."""

import dataclasses
import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from sympformer.config_checks import check_names, check_types
from sympformer.errors import InputError

Architecture = Literal["sympformer", "yuriiformer", "gpt"]
Attention = Literal["softmax", "linear"]
IntegratorName = Literal["plain_euler", "presymp_euler", "symplectic_euler", "exp_euler", "ab2", "etd_ab2"]
Form = Literal["own", "paper"]
Heads = Literal["averaged", "multi"]
Value = Literal["free", "tied"]
Mobility = Literal["free", "spd", "derived"]
Schedule = Literal["log-linear", "nesterov", "constant"]
MlpVelocity = Literal["momentum", "attention", "own"]
MomentumBound = Literal["norm", "cap", "none"]
StartMomentum = Literal["zero", "embedded"]
Overflow = Literal["error", "slide"]


@dataclass(frozen=True)
class ModelConfig:
    """Everything that defines a model. `variant()` fills it from a named row; any field can be overridden."""

    architecture: Architecture = "sympformer"
    """sympformer (damped Hamiltonian step), yuriiformer (Euclidean Nesterov step) or gpt (classical block)."""
    attention: Attention = "softmax"
    """softmax or linear attention."""
    integrator: IntegratorName = "exp_euler"
    """Time integrator of a sympformer layer, a name of flows.INTEGRATORS with one kernel evaluation a step."""

    n_layer: int = 4
    """Number of layers: time steps of the flow."""
    n_head: int = 4
    """Number of heads; it must divide d_model."""
    d_model: int = 64
    """Width of a token's position, and of its momentum."""
    block_size: int = 128
    """Longest context, in tokens."""
    vocab_size: int = 50304
    """Number of token ids (GPT-2's 50,257 padded to a multiple of 64)."""
    mlp: bool = True
    """Whether a layer has an MLP step after the attention step."""
    mlp_ratio: int = 4
    """Hidden width of the MLP as a multiple of d_model."""
    dropout: float = 0.0
    """Dropout on embeddings, attention updates and MLP updates."""
    tie_head: bool = True
    """Whether the output head is the token embedding."""
    share_layers: bool = False
    """Whether all layers share one set of weights and scalars (ALBERT-like)."""
    causal: bool = True
    """Whether a token sees only itself and earlier tokens; False: every token sees all."""
    overflow: Overflow = "error"
    """Generation beyond block_size: stop with an error, or slide (drop the older half of the context, recompute)."""

    heads: Heads = "averaged"
    """sympformer: one kernel from the scores averaged over heads (the paper), or one kernel a head."""
    form: Form = "own"
    """Softmax force: gradient of a token's own Hamiltonian, or the paper's row form with the others' momenta."""
    value: Value = "free"
    """What the force points along: a learned value matrix, or the paper's A x with A from queries and keys."""
    mobility: Mobility = "free"
    """Softmax mobility B: a learned matrix, symmetric positive definite by construction, or Sym(V A^-1)."""

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
    """Start of the look-ahead in front of attention, in (0, 1). yuriiformer: of both its look-aheads."""

    mlp_velocity: MlpVelocity = "momentum"
    """Which velocity the MLP step extends: the momentum (Algorithm 1), (x+ - x)/h, or a stream of its own."""
    mlp_look_ahead: float = 0.9
    """Start of the MLP step's look-ahead m, in (0, 1)."""
    beta: float = 0.9
    """Start of the MLP step's momentum factor, in (0, 1). yuriiformer: of both its factors."""
    gamma: float = 1.0
    """Start of the MLP step's gain. yuriiformer: of both its gains."""
    momentum_bound: MomentumBound = "norm"
    """What keeps the momentum finite: LayerNorm, a cap on the root mean square of each row, or nothing."""
    momentum_gain: float = 1.0
    """Start of the momentum LayerNorms' gains."""
    momentum_cap: float = 1.0
    """Largest root mean square of a row under bound "cap"."""
    start_momentum: StartMomentum = "zero"
    """Momentum before the first layer: zero, or embedded from token and position."""

    def __post_init__(self) -> None:
        check_types(self)
        self._check_sizes()
        self._check_ranges()
        self._check_combinations()

    def _check_sizes(self) -> None:
        for name in ("n_layer", "n_head", "d_model", "block_size", "vocab_size", "mlp_ratio"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} must be at least 1, got {getattr(self, name)}")
        if self.d_model % self.n_head:
            raise InputError(f"n_head must divide d_model, got n_head = {self.n_head} and d_model = {self.d_model}")

    def _check_ranges(self) -> None:
        for name in ("factor", "mu", "mlp_look_ahead", "beta"):
            if not 0 < getattr(self, name) < 1:
                raise InputError(f"{name} must lie strictly between 0 and 1, got {getattr(self, name)}")
        for name in ("h_x", "h_y", "c_log", "c_lin", "t0", "gamma", "momentum_gain", "momentum_cap"):
            if not 0 < getattr(self, name) < math.inf:
                raise InputError(f"{name} must be positive and finite, got {getattr(self, name)}")
        if not 0 <= self.dropout < 1:
            raise InputError(f"dropout must lie in [0, 1), got {self.dropout}")

    def _check_combinations(self) -> None:
        if self.heads == "multi" and self.value == "tied" and self.attention == "softmax":
            raise InputError("value = 'tied' needs heads = 'averaged': a head's A x is d_model wide, its slice is not")
        if self.mobility == "derived" and self.value != "tied":
            raise InputError("mobility = 'derived' is Sym(V A^-1) and needs value = 'tied', which makes A explicit")
        if self.attention == "linear":
            if self.integrator == "symplectic_euler":
                raise InputError(
                    "symplectic_euler needs a second scan with linear attention, whose state mixes x and y;"
                    " choose presymp_euler or exp_euler"
                )
            for name, default in (("form", "own"), ("mobility", "free")):
                if getattr(self, name) != default:
                    raise InputError(f"{name} = {getattr(self, name)!r} belongs to softmax attention, not to linear")

    @property
    def d_head(self) -> int:
        """Width of a head."""
        return self.d_model // self.n_head

    def replace(self, **changes: Any) -> "ModelConfig":
        """A copy with some fields changed; unknown names are errors that suggest the nearest."""
        check_names(ModelConfig, changes, "model", "model option")
        return dataclasses.replace(self, **changes)

    def to_dict(self) -> dict[str, Any]:
        """All fields as plain values."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "ModelConfig":
        """The config of these fields; missing ones take their defaults, unknown ones are errors."""
        check_names(cls, values, "model", "model option")
        return cls(**values)

    def to_json(self) -> str:
        """JSON text."""
        return json.dumps(self.to_dict(), indent=2) + "\n"

    def to_yaml(self) -> str:
        """YAML text."""
        import yaml

        return yaml.safe_dump(self.to_dict(), sort_keys=False)

    @classmethod
    def from_text(cls, text: str, where: str = "config") -> "ModelConfig":
        """The config written in JSON or YAML text."""
        import yaml

        try:
            values = yaml.safe_load(text)  # JSON is YAML
        except yaml.YAMLError as error:
            raise InputError(f"{where} is neither JSON nor YAML: {' '.join(str(error).split())}") from None
        if not isinstance(values, dict):
            raise InputError(f"{where} must hold named fields, got {type(values).__name__}")
        return cls.from_dict(values)

    def save(self, path: str | Path) -> None:
        """Write .json, or .yaml / .yml."""
        path = Path(path)
        path.write_text(self.to_yaml() if path.suffix in (".yaml", ".yml") else self.to_json())

    @classmethod
    def load(cls, path: str | Path) -> "ModelConfig":
        """Read what `save` wrote."""
        try:
            text = Path(path).read_text()
        except OSError as error:
            raise InputError(f"cannot read the model config {path}: {error.strerror}") from None
        return cls.from_text(text, str(path))
