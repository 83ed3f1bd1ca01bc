"""Fourteen language models from one table: classical, Euclidean Nesterov, and damped Hamiltonian layers."""

from sympformer.models.cache import Cache
from sympformer.models.config import ModelConfig
from sympformer.models.layers import perturb_
from sympformer.models.model import LanguageModel, ModelOutput, build_model
from sympformer.models.variants import PRESETS, VARIANTS, Variant, variant

__all__ = [
    "PRESETS",
    "VARIANTS",
    "Cache",
    "LanguageModel",
    "ModelConfig",
    "ModelOutput",
    "Variant",
    "build_model",
    "perturb_",
    "variant",
]
