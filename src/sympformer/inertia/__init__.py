"""Inertia for models that exist: a momentum through the residual blocks of a model that somebody else trained.

import sympformer as sf
fast = sf.accelerate(model)                          # the same outputs, and scalars that can learn
fast.save_pretrained("folder"); fast = sf.load_accelerated("folder")
"""

from sympformer.inertia.attach import accelerate, decelerate, inertia_scalars
from sympformer.inertia.config import DAMPINGS, KEY, InertiaConfig
from sympformer.inertia.places import FAMILIES
from sympformer.inertia.saved import is_accelerated, load_accelerated
from sympformer.inertia.step import Inertia

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
