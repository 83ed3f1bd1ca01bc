"""Accelerated transformers: attention layers as steps of a damped Hamiltonian flow of token particles.

Names are loaded when first used, so that `import sympformer` and the command line's help stay light.
"""

from importlib import import_module
from typing import TYPE_CHECKING

__version__ = "0.1.0"

# public name -> module that defines it
_LAZY: dict[str, str] = {
    "flows": "sympformer.flows",
    "nn": "sympformer.nn",
    "ops": "sympformer.ops",
    "LanguageModel": "sympformer.models",
    "ModelConfig": "sympformer.models",
    "TrainConfig": "sympformer.training.config",
    "VARIANTS": "sympformer.models",
    "accelerate": "sympformer.inertia",
    "build_model": "sympformer.models",
    "decelerate": "sympformer.inertia",
    "load_accelerated": "sympformer.inertia",
    "open_model": "sympformer.opening",
    "register": "sympformer.nn",
    "train": "sympformer.training.run",
    "variant": "sympformer.models",
    "watch": "sympformer.watching",
}

__all__ = ["__version__", *sorted(_LAZY)]
if TYPE_CHECKING:  # type checkers see what the names are
    from sympformer import flows as flows
    from sympformer import nn as nn
    from sympformer import ops as ops
    from sympformer.inertia import accelerate as accelerate
    from sympformer.inertia import decelerate as decelerate
    from sympformer.inertia import load_accelerated as load_accelerated
    from sympformer.models import VARIANTS as VARIANTS
    from sympformer.models import LanguageModel as LanguageModel
    from sympformer.models import ModelConfig as ModelConfig
    from sympformer.models import build_model as build_model
    from sympformer.models import variant as variant
    from sympformer.nn import register as register
    from sympformer.opening import open_model as open_model
    from sympformer.training.config import TrainConfig as TrainConfig
    from sympformer.training.run import train as train
    from sympformer.watching import watch as watch
else:

    def __getattr__(name: str) -> object:
        if name not in _LAZY:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        module = import_module(_LAZY[name])
        return module if module.__name__ == f"{__name__}.{name}" else getattr(module, name)

    def __dir__() -> list[str]:
        return sorted({*globals(), *_LAZY})
