"""The fourteen models of the paper's comparison, as rows of a table, and the two presets of their starts."""

from dataclasses import dataclass
from typing import Any

from sympformer.errors import unknown_name
from sympformer.models.config import Architecture, Attention, ModelConfig

PRESETS = ("tuned", "paper")


@dataclass(frozen=True)
class Variant:
    """A row: what the model is. The presets say how it starts."""

    architecture: Architecture
    attention: Attention
    integrator: str | None = None


_MODELS: dict[str, tuple[Architecture, str | None]] = {
    "baseline": ("gpt", None),
    "yuriiformer": ("yuriiformer", None),
    "plain-euler": ("sympformer", "plain_euler"),
    "presymp-euler": ("sympformer", "presymp_euler"),
    "exp-euler": ("sympformer", "exp_euler"),
    "ab2": ("sympformer", "ab2"),
    "etd-ab2": ("sympformer", "etd_ab2"),
}
_ATTENTIONS: tuple[Attention, ...] = ("softmax", "linear")

VARIANTS: dict[str, Variant] = {
    f"{attention}-{name}": Variant(architecture, attention, integrator)
    for attention in _ATTENTIONS
    for name, (architecture, integrator) in _MODELS.items()
}

# (preset, architecture, attention) -> starts. Fields not named keep the defaults of ModelConfig.
_PAPER_MOMENTUM: dict[str, Any] = {"factor": 0.9, "beta": 0.9, "mlp_look_ahead": 0.9, "momentum_gain": 1.0}
_TUNED_MOMENTUM: dict[str, Any] = {"factor": 0.3, "beta": 0.3, "mlp_look_ahead": 0.1, "momentum_gain": 0.03}
_TUNED_STEPS: dict[str, Any] = {"h_x": 0.05, "h_y": 1.0, "look_ahead": True, "mu": 0.001}

STARTS: dict[tuple[str, Architecture, Attention], dict[str, Any]] = {
    # A classical block has no step size to learn; the paper's linear one starts at 0.25 (0.3 in its larger table).
    ("paper", "gpt", "softmax"): {"h_x": 1.0, "learn_steps": False},
    ("paper", "gpt", "linear"): {"h_x": 0.25, "learn_steps": True},
    ("tuned", "gpt", "softmax"): {"h_x": 1.0, "learn_steps": False},
    ("tuned", "gpt", "linear"): {"h_x": 1.0, "learn_steps": False},
    ("paper", "yuriiformer", "softmax"): {"mu": 0.9, "beta": 0.9, "momentum_gain": 1.0},
    ("paper", "yuriiformer", "linear"): {"mu": 0.9, "beta": 0.9, "momentum_gain": 1.0},
    ("tuned", "yuriiformer", "softmax"): {"mu": 0.1, "beta": 0.3, "momentum_gain": 0.03},
    ("tuned", "yuriiformer", "linear"): {"mu": 0.1, "beta": 0.3, "momentum_gain": 0.03},
    ("paper", "sympformer", "softmax"): {**_PAPER_MOMENTUM, "h_x": 0.1, "h_y": 0.1, "form": "paper"},
    ("paper", "sympformer", "linear"): {**_PAPER_MOMENTUM, "h_x": 0.01, "h_y": 0.01, "value": "tied"},
    ("tuned", "sympformer", "softmax"): {**_TUNED_MOMENTUM, **_TUNED_STEPS, "form": "own"},
    ("tuned", "sympformer", "linear"): {**_TUNED_MOMENTUM, **_TUNED_STEPS},
}


def variant(name: str, preset: str = "tuned", **overrides: Any) -> ModelConfig:
    """The config of a named variant, for example `variant("softmax-exp-euler", n_layer=8)`.

    preset "tuned" starts the momentum small; preset "paper" keeps the paper's starting values.
    """
    if name not in VARIANTS:
        raise unknown_name("variant", name, VARIANTS)
    if preset not in PRESETS:
        raise unknown_name("preset", preset, PRESETS)
    row = VARIANTS[name]
    fields: dict[str, Any] = {"architecture": row.architecture, "attention": row.attention}
    if row.integrator is not None:
        fields["integrator"] = row.integrator
    fields |= STARTS[preset, row.architecture, row.attention]
    return ModelConfig.from_dict(fields | overrides)
