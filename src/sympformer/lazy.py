"""Names of a package that are loaded when first used, so that importing the package stays light.

    __getattr__, __dir__ = lazy_names(__name__, {"public name": "module that defines it"})

A module named like its key is the public name itself.
"""

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def lazy_names(package: str, modules: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """The `__getattr__` and `__dir__` of a package with these names."""

    def load(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module = import_module(modules[name])
        return module if module.__name__ == f"{package}.{name}" else getattr(module, name)

    def known() -> list[str]:
        return sorted({*vars(sys.modules[package]), *modules})

    return load, known
