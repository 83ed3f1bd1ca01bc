"""The house stands: imports point downwards only, and the light parts stay light."""

import ast
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import sympformer

ROOT = Path(sympformer.__file__).parent

# storey -> storeys it may import from (its own always); files at the root other than these are named like storeys
LEAVES = {"config_checks", "configs", "errors", "files", "machine", "options", "progress", "provenance", "tables"}
ALLOWED: dict[str, set[str]] = {
    "errors": set(),
    "config_checks": {"errors"},
    "files": {"config_checks", "errors"},
    "options": {"config_checks", "errors"},
    "configs": {"errors"},
    "progress": set(),
    "provenance": {"machine"},
    "tables": set(),
    "machine": set(),
    "pages": {"errors", "files"},
    "flows": LEAVES,
    "ops": LEAVES,
    "nn": LEAVES | {"flows", "ops"},
    "models": LEAVES | {"flows", "ops", "nn"},
    "inertia": LEAVES | {"flows", "nn"},
    "data": LEAVES,
    "training": LEAVES | {"flows", "ops", "nn", "models", "data"},
    "opening": LEAVES | {"models", "data", "training", "inertia"},
    "audit": LEAVES | {"models", "opening"},
    "watching": LEAVES | {"flows", "ops", "nn", "models", "opening", "pages"},
    "studies": LEAVES | {"pages", "flows", "ops", "nn", "models", "data", "training", "opening", "audit", "watching"},
    "hf": LEAVES | {"flows", "ops", "nn", "models"},
    "export": LEAVES | {"nn", "models", "data", "training", "opening", "audit"},
    "cli": LEAVES,
    # for type checkers only: see test_import_stays_light
    "__init__": {"flows", "inertia", "models", "nn", "opening", "ops", "training", "watching"},
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


Module = tuple[str, ...]
FILES = sorted(ROOT.rglob("*.py"))
MOST_INSIDE = 25  # imports of ours inside functions: where they keep a command's help light, or a package optional


def imports(path: Path, typing: bool = True) -> list[tuple[str, bool]]:
    """Every module, or name in one, that a file imports, and whether inside a function; typing: for types only, too."""
    found: list[tuple[str, bool]] = []

    def walk(node: ast.AST, inside: bool) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test) and not typing:
                continue
            if isinstance(child, ast.Import):
                found.extend((alias.name, inside) for alias in child.names)
            elif isinstance(child, ast.ImportFrom):
                assert child.level == 0, f"{path.name}: write imports in full"
                found.extend((f"{child.module}.{alias.name}", inside) for alias in child.names)
            walk(child, inside or isinstance(child, ast.FunctionDef))

    walk(ast.parse(path.read_text()), False)
    return found


def is_ours(module: str) -> bool:
    return module.split(".")[0] == "sympformer" and module != "sympformer.__version__"  # a constant, not a storey


def module_of(path: Path) -> Module:
    """A file as the parts of its name, ("nn", "parts"); a package's own file as "__init__"."""
    return path.relative_to(ROOT).with_suffix("").parts


def place_of(module: str) -> Module:
    """Where an imported module of ours lies, in the same form; names inside a module are left off."""
    parts = tuple(module.split(".")[1:])
    while parts and not (ROOT.joinpath(*parts).is_dir() or ROOT.joinpath(*parts).with_suffix(".py").is_file()):
        parts = parts[:-1]
    return (*parts, "__init__") if ROOT.joinpath(*parts).is_dir() else parts


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_arrows_point_down(path: Path) -> None:
    here = module_of(path)[0]
    assert here in ALLOWED, f"say in this test what {here} may import"
    for module, _ in imports(path):
        if is_ours(module):
            assert place_of(module)[0] in ALLOWED[here] | {here}, f"{here} must not import {module}"
        elif here in OUTSIDE and not module.startswith("sympformer."):
            top = module.split(".")[0]
            assert top in OUTSIDE[here] | sys.stdlib_module_names, f"{here} must not import {module}"


# --- no cycles: between modules, and between the rooms of a house and of a storey

Graph = dict[Module, set[Module]]


def between_modules() -> Graph:
    """Module -> those that it imports when it runs."""
    return {
        here: {place_of(module) for module, _ in imports(path, typing=False) if is_ours(module)} - {here}
        for path in FILES
        for here in [module_of(path)]
    }


def between_rooms() -> Graph:
    """For every import the two neighbours that it joins, one of them a folder: side by side in one package."""
    graph: Graph = {}
    for path in FILES:
        here = module_of(path)
        for there in (place_of(module) for module, _ in imports(path) if is_ours(module)):
            depth = next((i for i, (a, b) in enumerate(zip(here, there, strict=False)) if a != b), None)
            if depth is not None:
                mine, other = here[: depth + 1], there[: depth + 1]
                if any(ROOT.joinpath(*room).is_dir() for room in (mine, other)):
                    graph.setdefault(mine, set()).add(other)
    return graph


def cycle_in(graph: Graph) -> list[Module] | None:
    """A way along the arrows that comes back to its start; None where there is none."""
    done: set[Module] = set()

    def walk(node: Module, way: list[Module]) -> list[Module] | None:
        if node in way:
            return [*way[way.index(node) :], node]
        if node in done:
            return None
        found = next(filter(None, (walk(after, [*way, node]) for after in sorted(graph.get(node, ())))), None)
        done.add(node)
        return found

    return next(filter(None, (walk(node, []) for node in sorted(graph))), None)


@pytest.mark.parametrize("graph", [between_modules, between_rooms])
def test_no_cycles(graph: Callable[[], Graph]) -> None:
    found = cycle_in(graph())
    assert found is None, " -> ".join("/".join(room) for room in found)


def test_a_cycle_would_be_found() -> None:
    graph = between_rooms()
    back = ("studies", "results"), ("studies", "compare")  # compare imports results
    graph.setdefault(back[0], set()).add(back[1])
    found = cycle_in(graph)
    assert found is not None
    assert set(found) == set(back)
    assert cycle_in({("a",): {("b",)}, ("b",): {("c",)}, ("d",): {("c",)}}) is None


def test_few_imports_hide_in_functions() -> None:
    hidden = [(path, name) for path in FILES for name, inside in imports(path) if inside and is_ours(name)]
    lines = {f"{path.relative_to(ROOT)}: from {name.rpartition('.')[0]}" for path, name in hidden}
    assert len(lines) <= MOST_INSIDE, sorted(lines)


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


# --- a user's type checker sees what the public names are, although they are loaded when first used


FRONTS = sorted(path for path in ROOT.rglob("__init__.py") if "\n_LAZY: " in path.read_text())

SCRIPT = """
import sympformer as sf
from sympformer import data

cfg = sf.variant("softmax-exp-euler", n_layer=2, d_model=16, block_size=8, vocab_size=50)
reveal_type(cfg)
reveal_type(sf.ModelConfig(stepper="gradient"))
reveal_type(sf.build_model(cfg))
reveal_type(sf.flows.LogLinear(r=3.0))
reveal_type(data.Tokens.open("folder"))
reveal_type(sf.open_model("folder"))
sf.build_modle(cfg)
"""
REVEALED = ["ModelConfig", "ModelConfig", "LanguageModel", "LogLinear", "Tokens", "Opened"]
# What lies below is not looked into: it takes most of a minute and tells nothing about our names.
CONFIG = "[mypy]\nfollow_imports = silent\n[mypy-torch.*,numpy.*]\nfollow_imports = skip\n"


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """What mypy says, strictly, to a user's script."""
    folder = tmp_path_factory.mktemp("user")
    (folder / "script.py").write_text(SCRIPT)
    (folder / "mypy.ini").write_text(CONFIG)
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file", "mypy.ini", "script.py"]
    environment = os.environ | {"MYPYPATH": str(ROOT.parent)}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True).stdout.splitlines()


def test_public_names_have_types(said: list[str]) -> None:
    found = [line.split('"')[1] for line in said if "Revealed type" in line]
    assert all(name.startswith("sympformer.") for name in found)
    assert [name.rpartition(".")[2] for name in found] == REVEALED


def test_a_wrong_name_is_an_error_and_nothing_else_is(said: list[str]) -> None:
    (error,) = [line for line in said if ": error:" in line]
    assert 'has no attribute "build_modle"' in error


@pytest.mark.parametrize("path", FRONTS, ids=lambda path: path.parent.name)
def test_lazy_names_and_typed_names_are_the_same(path: Path) -> None:
    tree = ast.parse(path.read_text())
    (table,) = [n.value for n in tree.body if isinstance(n, ast.AnnAssign) and ast.unparse(n.target) == "_LAZY"]
    assert table is not None
    package = ".".join(path.parent.relative_to(ROOT.parent).parts)
    typed = {}
    for block in (node for node in tree.body if isinstance(node, ast.If)):
        for node in block.body:
            assert isinstance(node, ast.ImportFrom)
            for alias in node.names:
                assert alias.asname == alias.name, "say it twice: only then a strict checker hands the name on"
                typed[alias.name] = f"{package}.{alias.name}" if node.module == package else node.module
    assert typed == ast.literal_eval(table)
