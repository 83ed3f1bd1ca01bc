"""How layers start: the presets, each a few options by architecture; kinds of attention add their own."""

from typing import Any

from sympformer.errors import unknown_name
from sympformer.nn.rows import ATTENTIONS

# preset -> the rows of starts that make it up, later ones on top of earlier ones
_LAYERS = {
    "tuned": ("full", "tuned"),
    "full": ("full",),
    "paper": ("paper",),
    "paper-spd": ("paper", "paper-spd"),
    "modern": ("full", "modern"),
}
PRESETS = tuple(_LAYERS)

# what helped every dynamics most (docs/log.md, the ladder), and so is given to all: no peer is denied what helps us
AHEAD = {"second_table": "every_layer", "transport": "positions"}

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
    ("full", "gpt"): {"h_x": 1.0, "learn_steps": False, "momentum_gain": 0.03} | AHEAD,
    # as published, its velocity starts from token and position tables
    ("paper", "yuriiformer"): {"mu": 0.9, "beta": 0.9, "momentum_gain": 1.0, "start_momentum": "embedded"},
    ("full", "yuriiformer"): {"mu": 0.1, "beta": 0.3, "momentum_gain": 0.03} | AHEAD,
    ("paper", "sympformer"): {"factor": 0.9, "beta": 0.9, "mlp_look_ahead": 0.9, "momentum_gain": 1.0},
    ("full", "sympformer"): {
        "factor": 0.3,
        "beta": 0.3,
        "mlp_look_ahead": 0.1,
        "momentum_gain": 0.03,
        "h_x": 0.05,
        "h_y": 1.0,
        "look_ahead": True,
        "mu": 0.001,
    }
    | AHEAD,
    ("full", "streams"): {"momentum_gain": 0.03} | AHEAD,
    ("modern", "gpt"): MODERN,
    ("modern", "streams"): MODERN,
    # a norm of momenta that are zero at the start would multiply the first gradient layer by layer; a cap does not
    ("modern", "yuriiformer"): MODERN | {"momentum_bound": "cap"},
    ("modern", "sympformer"): MODERN | {"momentum_bound": "cap"},
}


def starts_of(preset: str, architecture: str, attention: str, integrator: str | None) -> dict[str, Any]:
    """What a preset gives to layers of this kind."""
    if preset not in PRESETS:
        raise unknown_name("preset", preset, PRESETS)
    starts: dict[str, Any] = {}
    of_kind = ATTENTIONS[attention].starts
    for layer in _LAYERS[preset]:
        key = layer, architecture
        starts |= {**STARTS.get(key, {}), **of_kind.get(key, {}), **of_kind.get((layer, integrator), {})}
    return starts
