"""The house stands: imports point downwards only, and the light parts stay light."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import sympformer

ROOT = Path(sympformer.__file__).parent

# storey -> storeys it may import from (its own always); files at the root other than these are named like storeys
LEAVES = {
    "atomic",
    "config_checks",
    "configs",
    "errors",
    "files",
    "lazy",
    "locks",
    "machine",
    "options",
    "progress",
    "provenance",
    "safe_files",
    "shipped",
    "tables",
}
ALLOWED: dict[str, set[str]] = {
    "errors": set(),
    "config_checks": {"errors"},
    "files": {"config_checks", "errors"},
    "options": {"config_checks", "errors"},
    "configs": {"errors"},
    "lazy": set(),
    "progress": set(),
    "provenance": {"machine"},
    "tables": set(),
    "locks": {"errors"},
    "safe_files": {"errors"},
    "shipped": {"errors"},
    "atomic": {"errors", "locks"},
    "machine": set(),
    "pages": {"atomic", "errors", "files"},
    "flows": LEAVES,
    "ops": LEAVES,
    "nn": LEAVES | {"flows", "ops"},
    "models": LEAVES | {"flows", "ops", "nn"},
    "inertia": LEAVES | {"flows", "nn"},
    "data": LEAVES,
    "training": LEAVES | {"flows", "ops", "nn", "models", "data", "hf"},  # a run may begin with an exported model
    "loading": LEAVES | {"nn", "models", "training", "hf", "inertia"},
    "audit": LEAVES | {"models", "loading"},
    "watching": LEAVES | {"flows", "ops", "nn", "models", "loading", "pages"},
    "studies": LEAVES | {"pages", "flows", "ops", "nn", "models", "data", "training", "loading", "audit", "watching"},
    "testing": {"audit"},
    "hf": LEAVES | {"flows", "ops", "nn", "models"},
    "exchange": LEAVES | {"flows", "ops", "nn", "models", "data", "training", "audit", "hf"},
    "cli": LEAVES,
    # all but the first for type checkers only: see test_import_stays_light
    "__init__": {"lazy", "flows", "inertia", "models", "nn", "ops", "watching"},
    "__main__": {"cli"},
}
# what a storey may use from outside the standard library
OUTSIDE = {
    "flows": {"torch", "numpy", "scipy"},
    "ops": {"torch"},
    "nn": {"torch"},
    "errors": set(),
    "machine": {"torch"},
    "__init__": set(),
}


def storey(path: Path) -> str:
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def imported(path: Path) -> set[str]:
    """Every module, or name in one, that a file imports, at any depth of its code."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path.name}: write imports in full"
            assert node.module is not None
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
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


def module_of(path: Path) -> tuple[str, ...]:
    """A file as the parts of its name, ("data", "corpora", "files"); a package's own file as "__init__"."""
    return path.relative_to(ROOT).with_suffix("").parts


def place_of(module: str) -> tuple[str, ...]:
    """Where an imported module of ours lies, in the same form; names inside a module are left off."""
    parts = tuple(module.split(".")[1:])
    while parts and not (ROOT.joinpath(*parts).is_dir() or ROOT.joinpath(*parts).with_suffix(".py").is_file()):
        parts = parts[:-1]
    return (*parts, "__init__") if ROOT.joinpath(*parts).is_dir() else parts


def arrows() -> dict[tuple[str, ...], set[tuple[str, ...]]]:
    """For every import the two neighbours that it joins: rooms side by side in one package, importer -> imported.

    Two files of one package are one room and may know each other.
    """
    graph: dict[tuple[str, ...], set[tuple[str, ...]]] = {}
    for path in FILES:
        here = module_of(path)
        for module in imported(path):
            if module.split(".")[0] == "sympformer" and module != "sympformer.__version__":
                there = place_of(module)
                depth = next((i for i, (a, b) in enumerate(zip(here, there, strict=False)) if a != b), None)
                if depth is None:
                    continue
                pair = here[: depth + 1], there[: depth + 1]
                if any(ROOT.joinpath(*room).is_dir() for room in pair):
                    graph.setdefault(pair[0], set()).add(pair[1])
    return graph


def cycle_in(graph: dict[tuple[str, ...], set[tuple[str, ...]]]) -> list[tuple[str, ...]] | None:
    """A way along the arrows that comes back to its start; None where there is none."""
    done: set[tuple[str, ...]] = set()

    def walk(node: tuple[str, ...], way: list[tuple[str, ...]]) -> list[tuple[str, ...]] | None:
        if node in way:
            return [*way[way.index(node) :], node]
        if node in done:
            return None
        found = next(filter(None, (walk(after, [*way, node]) for after in sorted(graph.get(node, ())))), None)
        done.add(node)
        return found

    return next(filter(None, (walk(node, []) for node in sorted(graph))), None)


def test_no_cycles_at_any_depth() -> None:
    """Between sub-packages, and between them and the files beside them, in every package of the tree."""
    found = cycle_in(arrows())
    assert found is None, " -> ".join("/".join(room) for room in found)


def test_a_cycle_would_be_found() -> None:
    graph = arrows()
    graph.setdefault(("studies", "results"), set()).add(("studies", "compare"))  # compare imports results
    found = cycle_in(graph)
    assert found is not None
    assert set(found) == {("studies", "results"), ("studies", "compare")}
    assert cycle_in({("a",): {("b",)}, ("b",): {("c",)}, ("d",): {("c",)}}) is None


def test_import_stays_light() -> None:
    names = "('torch', 'numpy', 'matplotlib', 'rich')"
    code = f"import sys, sympformer.machine; print([m for m in {names} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_lazy_names() -> None:
    assert sympformer.flows.__name__ == "sympformer.flows"
    assert "flows" in dir(sympformer)
    with pytest.raises(AttributeError, match="no attribute 'flow'"):
        sympformer.flow  # type: ignore[attr-defined]  # noqa: B018
