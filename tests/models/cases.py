"""The table every model test draws from: all variants in all presets, small, on perturbed weights."""

from typing import Any

import pytest
import torch
from torch import Tensor

import sympformer as sf
from sympformer.models import PRESETS, VARIANTS, LanguageModel, perturb_
from sympformer.nn import ATTENTIONS

SIZE: dict[str, Any] = {"n_layer": 3, "n_head": 2, "d_model": 16, "block_size": 24, "vocab_size": 50}

# nothing ahead of the layers, for tests of what a layer is
BARE: dict[str, Any] = {"second_table": "none", "transport": "none"}

# newer parts are the same ones in every scheme: one of them stands for all; "full" is "tuned" but for these, and
# "paper-spd" is "paper"
FEW = {
    "modern": [f"{attention}-{kind}" for attention in ATTENTIONS for kind in ("baseline", "yuriiformer", "exp-euler")],
    "paper-spd": [name for name, row in VARIANTS.items() if row.stepper == "hamiltonian"],
    "full": [name for name, row in VARIANTS.items() if (row.stepper, row.attention) == ("hamiltonian", "softmax")],
}
NAMES = {preset: FEW.get(preset, list(VARIANTS)) for preset in PRESETS}
MODELS = [(name, preset) for preset in PRESETS for name in NAMES[preset]]
every_model = pytest.mark.parametrize(("name", "preset"), MODELS)

# parts of newer models, each where it matters; they join the choices below, and the equations by hand
PARTS: dict[str, tuple[str, dict[str, Any]]] = {
    "norm-rms": ("softmax-exp-euler", {"norm": "rmsnorm"}),
    "mlp-relu2": ("softmax-plain-euler", {"mlp": "relu2"}),
    "mlp-swiglu": ("softmax-yuriiformer", {"mlp": "swiglu", "norm": "rmsnorm"}),
    "positions-none": ("softmax-exp-euler", {"positions": "none"}),
    "rotary-averaged": ("softmax-exp-euler", {"positions": "rotary", "form": "paper"}),
    "rotary-embedded": ("softmax-yuriiformer", {"positions": "rotary", "start_momentum": "embedded"}),
    "rotary-linear": ("linear-exp-euler", {"positions": "rotary"}),
    "rotary-linear-tied": ("linear-ab2", {"positions": "rotary", "value": "tied", "heads": "multi", "d_key": 8}),
    "qk-norm-averaged": ("softmax-exp-euler", {"qk_norm": True}),
    "qk-norm-linear": ("linear-exp-euler", {"qk_norm": True, "heads": "multi", "positions": "rotary"}),
    "heads-projected": ("softmax-exp-euler", {"heads": "projected"}),
    "grouped": ("softmax-yuriiformer", {"n_head": 4, "n_kv_head": 2}),
    "grouped-linear": ("linear-exp-euler", {"n_head": 4, "n_kv_head": 2, "heads": "multi", "positions": "rotary"}),
    "grouped-tied": ("linear-exp-euler", {"n_kv_head": 1, "heads": "multi", "value": "tied"}),
    "grouped-paper": (
        "softmax-etd-ab2",
        {"n_head": 4, "n_kv_head": 2, "heads": "projected", "form": "paper", "qk_norm": True, "positions": "rotary"},
    ),
    "zero-start": ("softmax-exp-euler", {"zero_start": True, "bound": "cap"}),
    "update-norm": ("softmax-baseline", {"bound": "update", "norm": "rmsnorm"}),
    "update-norm-linear": ("linear-baseline", {"bound": "update", "h_x": 0.5}),
    "transport": ("softmax-baseline", {"transport": "positions"}),
    "transport-momenta": ("softmax-yuriiformer", {"transport": "momenta", "positions": "rotary"}),
    "transport-both": ("softmax-etd-ab2", {"transport": "both", "form": "paper"}),
    "transport-linear": ("linear-exp-euler", {"transport": "both"}),
    "second-table": ("softmax-baseline", {"second_table": "every_layer", "tie_head": False}),
    "second-table-both": (
        "softmax-exp-euler",
        {"second_table": "every_layer", "start_momentum": "embedded", "transport": "positions"},
    ),
    "second-table-linear": ("linear-yuriiformer", {"second_table": "every_layer", "transport": "momenta"}),
    "drift": ("softmax-exp-euler", {"bound": "drift"}),
    "drift-etd-ab2": ("softmax-etd-ab2", {"bound": "drift"}),
    "drift-yurii": ("softmax-yuriiformer", {"bound": "drift"}),
    "newton": ("softmax-plain-euler", {"form": "newton"}),
    "newton-multi": ("softmax-exp-euler", {"form": "newton", "heads": "multi"}),
    "update-flow": ("softmax-exp-euler", {"bound": "update"}),
    "update-yurii": ("linear-yuriiformer", {"bound": "update"}),
    "parallel": ("softmax-exp-euler", {"splitting": "parallel"}),
    "parallel-drift": ("linear-etd-ab2", {"splitting": "parallel", "bound": "drift", "mu": 0.3}),
    "parallel-yurii": ("softmax-yuriiformer", {"splitting": "parallel", "heads": "averaged"}),
    "parallel-gpt": ("linear-baseline", {"splitting": "parallel", "bound": "update", "h_x": 0.5}),
    "twin": ("softmax-exp-euler", {"stepper": "gradient", "heads": "averaged", "mobility": "free"}),
    "twin-tied": ("linear-baseline", {"heads": "averaged", "value": "tied", "bound": "update"}),
    "yurii-averaged": ("softmax-yuriiformer", {"heads": "averaged", "value": "tied", "mobility": "spd"}),
    "mobility-identity": ("softmax-exp-euler", {"mobility": "identity"}),
    "llama": (
        "softmax-baseline",
        {"n_head": 4, "n_kv_head": 2, "norm": "rmsnorm", "mlp": "swiglu", "positions": "rotary", "tie_head": False},
    ),
}

# config choices beyond the presets, each on a variant that has it; they join every property test
CHOICES: dict[str, tuple[str, dict[str, Any]]] = {
    "form-paper": ("softmax-exp-euler", {"form": "paper"}),
    "heads-multi-softmax": ("softmax-exp-euler", {"heads": "multi"}),
    "heads-multi-paper": ("softmax-exp-euler", {"heads": "multi", "form": "paper"}),
    "heads-multi-linear": ("linear-exp-euler", {"heads": "multi"}),
    "value-tied-softmax": ("softmax-exp-euler", {"value": "tied"}),
    "value-tied-paper": ("softmax-exp-euler", {"value": "tied", "form": "paper"}),
    "value-tied-linear": ("linear-exp-euler", {"value": "tied", "heads": "multi"}),
    "mobility-spd": ("softmax-plain-euler", {"mobility": "spd"}),
    "mobility-derived": ("softmax-plain-euler", {"mobility": "derived", "value": "tied"}),
    "key-narrow-derived": ("softmax-exp-euler", {"d_key": 4, "value": "tied", "mobility": "derived", "form": "paper"}),
    "key-narrow-spd": ("softmax-exp-euler", {"d_key": 8, "value": "tied", "mobility": "spd"}),
    "key-narrow-linear": ("linear-exp-euler", {"d_key": 8, "value": "tied"}),
    "key-narrow-multi": ("linear-exp-euler", {"d_key": 8, "heads": "multi"}),
    "kernel-spd": ("linear-exp-euler", {"value": "spd", "d_key": 8}),
    "symplectic-euler": ("softmax-exp-euler", {"integrator": "symplectic_euler"}),
    "damping-nesterov": ("softmax-exp-euler", {"damping": (3.0, 0.0)}),
    "damping-constant": ("softmax-exp-euler", {"damping": (0.0, 0.5)}),
    "look-ahead-off": ("softmax-exp-euler", {"mu": 0.0}),
    "look-ahead-on": ("linear-presymp-euler", {"mu": 0.3}),
    "step-learned": ("softmax-baseline", {"h_x": 0.5}),
    "mlp-velocity-attention": ("softmax-exp-euler", {"mlp_velocity": "attention"}),
    "mlp-velocity-own": ("softmax-exp-euler", {"mlp_velocity": "own"}),
    "bound-cap": ("softmax-exp-euler", {"bound": "cap"}),
    "bound-none": ("softmax-exp-euler", {"bound": "none"}),
    "yurii-bound-cap": ("softmax-yuriiformer", {"bound": "cap"}),
    "start-embedded": ("softmax-exp-euler", {"start_momentum": "embedded"}),
    "yurii-start-embedded": ("softmax-yuriiformer", {"start_momentum": "embedded"}),
    "no-mlp": ("softmax-exp-euler", {"mlp": "none"}),
    "gpt-no-mlp": ("softmax-baseline", {"mlp": "none"}),
    "yurii-no-mlp": ("linear-yuriiformer", {"mlp": "none"}),
    "shared": ("softmax-etd-ab2", {"share_layers": True}),
    "shared-transport": ("softmax-exp-euler", {"share_layers": True, "transport": "positions"}),
    "untied-head": ("softmax-exp-euler", {"tie_head": False}),
    "dropout": ("softmax-exp-euler", {"dropout": 0.1}),
    "gpt-dropout": ("softmax-baseline", {"dropout": 0.1}),
    **PARTS,
}
every_choice = pytest.mark.parametrize("choice", CHOICES)


def make(name: str, preset: str = "full", dtype: torch.dtype = torch.float64, **overrides: Any) -> LanguageModel:
    """A small model of the variant with perturbed weights, in eval mode; no transport where it has no direction."""
    if not overrides.get("causal", True):
        overrides.pop("transport", None)
    model = sf.build_model(sf.variant(name, preset=preset, **(SIZE | overrides)), seed=1)
    return perturb_(model).to(dtype).eval()  # type: ignore[return-value]


def make_choice(choice: str, dtype: torch.dtype = torch.float64, **overrides: Any) -> LanguageModel:
    name, fields = CHOICES[choice]
    return make(name, dtype=dtype, **(fields | overrides))


def tokens(batch: int = 2, T: int = SIZE["block_size"], seed: int = 3, vocab: int = SIZE["vocab_size"]) -> Tensor:
    return torch.randint(vocab, (batch, T), generator=torch.Generator().manual_seed(seed))
