"""The house stands: imports point downwards only, and the light parts stay light."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import sympformer

ROOT = Path(sympformer.__file__).parent

# storey -> storeys it may import from (its own always); files at the root other than these are named like storeys
LEAVES = {"atomic", "config_checks", "errors", "lazy", "locks", "progress", "reading"}
ALLOWED: dict[str, set[str]] = {
    "errors": set(),
    "config_checks": {"errors"},
    "lazy": set(),
    "progress": set(),
    "locks": {"errors"},
    "reading": {"errors"},
    "atomic": {"errors", "locks"},
    "flows": LEAVES,
    "ops": LEAVES,
    "models": LEAVES | {"flows", "ops"},
    "data": LEAVES,
    "training": LEAVES | {"flows", "ops", "models", "data"},
    "experiments": LEAVES | {"flows", "ops", "models", "data", "training", "hf"},
    "testing": {"experiments"},
    "hf": LEAVES | {"flows", "ops", "models"},
    "exchange": LEAVES | {"flows", "ops", "models", "data", "training", "experiments", "hf"},
    "cli": LEAVES,
    "__init__": {"lazy"},
    "__main__": {"cli"},
}
# what a storey may use from outside the standard library
OUTSIDE = {"flows": {"torch"}, "ops": {"torch"}, "errors": set(), "__init__": set()}


def storey(path: Path) -> str:
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def imported(path: Path) -> set[str]:
    """Every module that a file imports, at any depth of its code."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path.name}: write imports in full"
            assert node.module is not None
            if node.module == "sympformer":
                names |= {f"sympformer.{alias.name}" for alias in node.names}
            else:
                names.add(node.module)
    return names


def own_storey(module: str) -> str:
    first = module.split(".")[1]
    return first if (ROOT / first).is_dir() or (ROOT / f"{first}.py").exists() else "__init__"


FILES = sorted(ROOT.rglob("*.py"))


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_arrows_point_down(path: Path) -> None:
    here = storey(path)
    assert here in ALLOWED, f"say in this test what {here} may import"
    for module in imported(path):
        if module == "sympformer.__version__":
            continue  # a constant, not a storey
        if module.split(".")[0] == "sympformer":
            assert own_storey(module) in ALLOWED[here] | {here}, f"{here} must not import {module}"
        elif here in OUTSIDE:
            top = module.split(".")[0]
            assert top in OUTSIDE[here] | sys.stdlib_module_names, f"{here} must not import {module}"


def test_import_stays_light() -> None:
    code = "import sys, sympformer; print([m for m in ('torch', 'numpy', 'matplotlib', 'rich') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_lazy_names() -> None:
    assert sympformer.flows.__name__ == "sympformer.flows"
    assert "flows" in dir(sympformer)
    with pytest.raises(AttributeError, match="no attribute 'flow'"):
        sympformer.flow  # noqa: B018
