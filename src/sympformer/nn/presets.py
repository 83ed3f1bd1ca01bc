"""How layers start: the presets, each a few options by stepper, attention and integrator."""

from typing import Any

from sympformer.errors import unknown_name
from sympformer.flows import INTEGRATORS
from sympformer.nn.tables import ATTENTIONS, STEPPERS, check_choice

# preset -> the rows of starts that make it up, later ones on top of earlier ones
_LAYERS = {
    "tuned": ("full", "tuned"),
    "full": ("full",),
    "paper": ("paper",),
    "paper-spd": ("paper", "paper-spd"),
    "modern": ("full", "modern"),
}
PRESETS = tuple(_LAYERS)

# what helped every stepper most (docs/log.md, the ladder), and so is given to all: no peer is denied what helps us
AHEAD = {"second_table": "every_layer", "transport": "positions"}
# what a language model is made of today, whatever its stepper
MODERN = {
    "norm": "rmsnorm",
    "mlp": "relu2",
    "positions": "rotary",
    "qk_norm": True,
    "zero_start": True,
    "tie_head": False,
}

# (preset, kind of layer) -> starts. A kind is a stepper, "stepper attention" or "attention integrator", read in this
# order; what is not named keeps its default, and what a layer has no use for is left out.
STARTS: dict[tuple[str, str], dict[str, Any]] = {
    ("paper", "gradient"): {"gain": 1.0},
    ("full", "gradient"): AHEAD,
    ("modern", "gradient"): MODERN,
    # as published, its velocity starts from token and position tables
    ("paper", "nesterov"): {"mu": 0.9, "beta": 0.9, "gain": 1.0, "start_momentum": "embedded"},
    ("full", "nesterov"): AHEAD,
    # a norm of momenta that are zero at the start would multiply the first gradient layer by layer; a cap does not
    ("modern", "nesterov"): MODERN | {"bound": "cap"},
    ("paper", "hamiltonian"): {"beta": 0.9, "mu_mlp": 0.9, "gain": 1.0, "h_x": 0.1, "h_y": 0.1, "value": "tied"},
    ("full", "hamiltonian"): AHEAD | {"mu": 0.001},
    ("modern", "hamiltonian"): MODERN | {"bound": "cap"},
    # the letter: Q, K, V learned, A from Q and K, the force along A x, B = V A^-1
    ("paper", "hamiltonian softmax"): {"form": "paper", "mobility": "derived"},
    ("full", "hamiltonian softmax"): {"form": "own", "mobility": "free"},
    # what cost seconds and gave nothing (docs/results): Newton's law with friction is left
    ("tuned", "hamiltonian softmax"): {"form": "newton", "mobility": "identity", "mu": 0.0},
    ("modern", "hamiltonian softmax"): {"heads": "projected"},
    # the paper assumes B (softmax) or A (linear) symmetric positive definite: here it is
    ("paper-spd", "hamiltonian softmax"): {"mobility": "spd"},
    ("paper-spd", "hamiltonian linear"): {"value": "spd"},
    # the steps of the paper's first linear table, 0.25 for first-order schemes
    ("paper", "hamiltonian linear"): {"h_x": 0.25, "h_y": 0.25},
    ("paper", "linear ab2"): {"h_x": 0.01, "h_y": 0.01},
    ("paper", "linear etd_ab2"): {"h_x": 0.01, "h_y": 0.01},
    ("modern", "hamiltonian linear"): {"heads": "multi"},
}


def starts_of(preset: str, stepper: str, attention: str, integrator: str | None = None) -> dict[str, Any]:
    """What a preset gives to layers of this kind."""
    if preset not in PRESETS:
        raise unknown_name("preset", preset, PRESETS)
    check_choice("stepper", stepper)
    check_choice("attention", attention)
    starts: dict[str, Any] = {"stepper": stepper, "attention": attention}
    if STEPPERS[stepper].inertial:
        starts["integrator"] = integrator = integrator or "exp_euler"
        if integrator in INTEGRATORS and not INTEGRATORS[integrator].damped:
            starts["damping"] = 0.9 if preset.startswith("paper") else 0.3
    elif "heads" in ATTENTIONS[attention].options:
        starts["heads"] = "projected"  # as in GPT, and as YuriiFormer is published
    for layer in _LAYERS[preset]:
        for kind in (stepper, f"{stepper} {attention}", f"{attention} {integrator}"):
            starts |= STARTS.get((layer, kind), {})
    return starts
