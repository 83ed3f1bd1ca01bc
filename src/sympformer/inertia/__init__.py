"""Inertia for models that exist: a momentum through the residual blocks of a model that somebody else trained.

import sympformer as sf
fast = sf.accelerate(model)                          # the same outputs, and scalars that can learn
fast.save_pretrained("folder"); fast = sf.load_accelerated("folder")
"""

from sympformer.inertia.attach import FAMILIES, accelerate, decelerate, inertia_scalars
from sympformer.inertia.saved import is_accelerated, load_accelerated
from sympformer.inertia.step import DAMPINGS, KEY, Inertia, InertiaConfig

__all__ = [
    "DAMPINGS",
    "FAMILIES",
    "KEY",
    "Inertia",
    "InertiaConfig",
    "accelerate",
    "decelerate",
    "inertia_scalars",
    "is_accelerated",
    "load_accelerated",
]
