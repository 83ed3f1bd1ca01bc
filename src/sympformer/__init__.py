"""Accelerated transformers: attention layers as steps of a damped Hamiltonian flow of token particles.

Names are loaded when first used, so that `import sympformer` and the command line's help stay light.
"""

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

# public name -> module that defines it; a module named like its key is the public name itself
_LAZY: dict[str, str] = {
    "flows": "sympformer.flows",
    "ModelConfig": "sympformer.models",
    "VARIANTS": "sympformer.models",
    "build_model": "sympformer.models",
    "variant": "sympformer.models",
}

__all__ = ["__version__", *sorted(_LAZY)]


def __getattr__(name: str) -> Any:
    try:
        module = import_module(_LAZY[name])
    except KeyError:
        raise AttributeError(f"module 'sympformer' has no attribute {name!r}") from None
    value = module if module.__name__ == f"sympformer.{name}" else getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY})
