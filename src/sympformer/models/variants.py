"""The models of the paper's comparison, as rows of a table that grows with its parts, and the presets of their starts.

Every kind of attention comes as baseline, as YuriiFormer and with each integrator: fourteen models, and more with
every attention kind or integrator that is registered.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from sympformer.config_checks import check_names
from sympformer.errors import unknown_name
from sympformer.flows import INTEGRATORS, FrozenIntegrator
from sympformer.models.config import ModelConfig
from sympformer.nn import ATTENTIONS

# preset -> the rows of starts that make it up, later ones on top of earlier ones
_LAYERS = {
    "tuned": ("tuned",),
    "paper": ("paper",),
    "paper-spd": ("paper", "paper-spd"),
    "modern": ("tuned", "modern"),
}
PRESETS = tuple(_LAYERS)


@dataclass(frozen=True)
class Variant:
    """A row: what the model is. The presets say how it starts."""

    architecture: str
    attention: str
    integrator: str | None = None


class Variants(Mapping[str, Variant]):
    """Name -> row, made from the tables of attention kinds and integrators."""

    NO_ROW = ("symplectic_euler",)  # a scheme for `integrator = ...`, not of the paper's comparison

    def _rows(self) -> dict[str, Variant]:
        rows = {}
        for attention in ATTENTIONS:
            rows[f"{attention}-baseline"] = Variant("gpt", attention)
            rows[f"{attention}-yuriiformer"] = Variant("yuriiformer", attention)
            for name, scheme in INTEGRATORS.items():
                if issubclass(scheme, FrozenIntegrator) and name not in self.NO_ROW:
                    rows[f"{attention}-{name.replace('_', '-')}"] = Variant("sympformer", attention, name)
        return rows

    def __getitem__(self, name: str) -> Variant:
        return self._rows()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._rows())

    def __len__(self) -> int:
        return len(self._rows())


VARIANTS: Mapping[str, Variant] = Variants()

# what a language model is made of today, whatever its dynamics; a kind of attention adds true heads
MODERN = {
    "norm": "rmsnorm",
    "mlp": "relu2",
    "positions": "rotary",
    "qk_norm": True,
    "zero_start": True,
    "tie_head": False,
}

# (preset, architecture) -> starts; a kind of attention adds its own. Fields not named keep the defaults.
STARTS: dict[tuple[str, str], dict[str, Any]] = {
    # a classical block has no step size to learn
    ("paper", "gpt"): {"h_x": 1.0, "learn_steps": False},
    ("tuned", "gpt"): {"h_x": 1.0, "learn_steps": False, "momentum_gain": 0.03},
    # as published, its velocity starts from token and position tables
    ("paper", "yuriiformer"): {"mu": 0.9, "beta": 0.9, "momentum_gain": 1.0, "start_momentum": "embedded"},
    ("tuned", "yuriiformer"): {"mu": 0.1, "beta": 0.3, "momentum_gain": 0.03},
    ("paper", "sympformer"): {"factor": 0.9, "beta": 0.9, "mlp_look_ahead": 0.9, "momentum_gain": 1.0},
    ("tuned", "sympformer"): {
        "factor": 0.3,
        "beta": 0.3,
        "mlp_look_ahead": 0.1,
        "momentum_gain": 0.03,
        "h_x": 0.05,
        "h_y": 1.0,
        "look_ahead": True,
        "mu": 0.001,
    },
    ("modern", "gpt"): MODERN,
    # a norm of momenta that are zero at the start would multiply the first gradient layer by layer; a cap does not
    ("modern", "yuriiformer"): MODERN | {"momentum_bound": "cap"},
    ("modern", "sympformer"): MODERN | {"momentum_bound": "cap"},
}


def variant(name: str, preset: str = "tuned", **overrides: Any) -> ModelConfig:
    """The config of a named variant, for example `variant("softmax-exp-euler", n_layer=8)`.

    preset "tuned" is ours: the momentum starts small, value and mobility are free matrices. "paper" is the paper's
    model to the letter: every layer learns Q, K and V, softmax has B = V A^-1, and YuriiFormer starts from tables.
    "paper-spd" is the same with the paper's assumptions built in: B (softmax) or A (linear) symmetric positive
    definite. It differs from "paper" for SympFormers only. "modern" is "tuned" made of newer parts, alike for all
    dynamics: rotary positions, RMSNorm, norms on queries and keys, ReLU^2, true heads, an untied head, and zero-started
    matrices where a layer writes.
    """
    if name not in VARIANTS:
        raise unknown_name("variant", name, VARIANTS)
    if preset not in PRESETS:
        raise unknown_name("preset", preset, PRESETS)
    row = VARIANTS[name]
    starts: dict[str, Any] = {"architecture": row.architecture, "attention": row.attention}
    if row.integrator is not None:
        starts["integrator"] = row.integrator
    of_kind = ATTENTIONS[row.attention].starts
    for layer in _LAYERS[preset]:
        key = layer, row.architecture
        starts |= {**STARTS.get(key, {}), **of_kind.get(key, {}), **of_kind.get((layer, row.integrator), {})}
    check_names(ModelConfig, overrides, "model", "model option")
    return ModelConfig.made_of(starts, overrides)
