"""Language models from one table: gradient, Euclidean Nesterov, and damped Hamiltonian steps."""

import os
from importlib import import_module

from sympformer.errors import InputError
from sympformer.models.cache import Cache
from sympformer.models.config import VARIANTS, ModelConfig, Variant, variant
from sympformer.models.model import LanguageModel, ModelOutput, build_model
from sympformer.nn import PRESETS, perturb_

# fmt: off
__all__ = [
    "PRESETS", "VARIANTS", "Cache", "LanguageModel", "ModelConfig", "ModelOutput", "Variant", "build_model",
    "perturb_", "variant",
]
# fmt: on

# Modules that register parts of their own, for the command line and for worker processes: SYMPFORMER_PARTS=mine,yours
for _module in filter(None, os.environ.get("SYMPFORMER_PARTS", "").split(",")):
    try:
        import_module(_module)
    except ModuleNotFoundError as error:
        raise InputError(f"SYMPFORMER_PARTS names {_module!r}, which cannot be imported: {error}") from error
