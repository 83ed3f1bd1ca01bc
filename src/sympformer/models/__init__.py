"""Language models from one table: classical, Euclidean Nesterov, and damped Hamiltonian layers."""

import os
from importlib import import_module

from sympformer.errors import InputError
from sympformer.models.cache import Cache, FixedCache
from sympformer.models.config import ModelConfig
from sympformer.models.decoder import Decoder
from sympformer.models.model import NOTHING, Given, LanguageModel, ModelOutput, build_model
from sympformer.models.variants import VARIANTS, Variant, variant
from sympformer.nn import PRESETS, perturb_

__all__ = [
    "NOTHING",
    "PRESETS",
    "VARIANTS",
    "Cache",
    "Decoder",
    "FixedCache",
    "Given",
    "LanguageModel",
    "ModelConfig",
    "ModelOutput",
    "Variant",
    "build_model",
    "perturb_",
    "variant",
]

# Modules that register parts of their own, for the command line and for worker processes: SYMPFORMER_PARTS=mine,yours
for _module in filter(None, os.environ.get("SYMPFORMER_PARTS", "").split(",")):
    try:
        import_module(_module)
    except ModuleNotFoundError as error:
        raise InputError(f"SYMPFORMER_PARTS names {_module!r}, which cannot be imported: {error}") from error
