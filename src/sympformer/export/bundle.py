"""The source files that a model needs, flattened into one folder, so that it loads where sympformer is not installed.

With `trust_remote_code=True` transformers copies a module and what it reaches through lines of the form
`from .name import ...`, and nothing else: no packages, no `from . import name`. So every module becomes one file
(`sympformer.nn.parts` -> `sympformer_nn_parts.py`), its imports become relative, and names that a package
only hands on are taken from the module that defines them: what nobody needs stays behind.
"""

import ast
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from sympformer import __version__

PACKAGE = "sympformer"
ROOT = Path(__file__).parents[1]
ENTRIES = ("sympformer.hf.configuration_sympformer", "sympformer.hf.modeling_sympformer")


class Target(NamedTuple):
    """What one imported name stands for: a name in a module, or (name None) the module itself."""

    module: str
    name: str | None
    bound: str  # the name in the importing file


def bundle(entries: Iterable[str] = ENTRIES) -> dict[str, str]:
    """File name -> source of the modules `entries` and of all that they import from this package."""
    waiting, files = list(entries), dict[str, str]()
    modules: dict[str, str] = {}  # file name -> module
    while waiting:
        module = waiting.pop()
        file = f"{flat_name(module)}.py"
        if modules.setdefault(file, module) != module:
            raise ImportError(f"{module} and {modules[file]} would both become {file}: rename one of them")
        if file not in files:
            files[file], needed = rewrite(module)
            waiting += needed
    return dict(sorted(files.items()))


def flat_name(module: str) -> str:
    """The module's name in the folder. Modules that carry the package's name keep theirs: `modeling_sympformer`."""
    last = module.rpartition(".")[2]
    return last if last.endswith(f"_{PACKAGE}") else module.replace(".", "_")


def rewrite(module: str) -> tuple[str, list[str]]:
    """A module's source with relative imports, and the modules that these name. All else stays as it is."""
    source = source_of(module)
    lines, needed = source.splitlines(keepends=True), list[str]()
    nodes = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Import | ast.ImportFrom)]
    nodes = sorted(filter(_is_own, nodes), key=lambda node: -node.lineno)  # from the end: earlier places stay valid
    for node in nodes:
        targets = [_target(module, node, alias) for alias in node.names]
        start, end = node.lineno - 1, node.end_lineno or node.lineno
        head, tail = lines[start][: node.col_offset], lines[end - 1][node.end_col_offset :]
        if head.strip() or tail.split("#")[0].strip():
            raise ImportError(f"{module}, line {node.lineno}: an import must stand on lines of its own")
        lines[start:end] = [f"{head}{statement}\n" for statement in _statements(targets)]
        needed += [target.module for target in targets]
    place = path_of(module).relative_to(ROOT.parent).as_posix()
    about = f"# {place} of sympformer {__version__}. SPDX-License-Identifier: MIT\n"
    return about + "".join(lines), needed


def path_of(module: str) -> Path:
    """The file of a module of this package."""
    base = ROOT.joinpath(*module.split(".")[1:])
    for path in (base / "__init__.py", base.with_suffix(".py")):
        if path.is_file():
            return path
    raise ImportError(f"no module {module}")


def source_of(module: str) -> str:
    return path_of(module).read_text(encoding="utf-8")


def _statements(targets: list[Target]) -> list[str]:
    """The import statements of some targets, one for each module."""
    named: dict[str, list[str]] = {}
    statements = []
    for target in targets:
        flat, name = flat_name(target.module), target.name or flat_name(target.module)
        renamed = name if name == target.bound else f"{name} as {target.bound}"
        if target.name is not None:
            named.setdefault(flat, []).append(renamed)
        else:  # the loader does not see the first line; the second makes it copy the file
            statements += [f"from . import {renamed}", f"from .{flat} import __name__ as _{flat}"]
    return statements + [f"from .{flat} import {', '.join(names)}" for flat, names in named.items()]


def _target(module: str, node: ast.Import | ast.ImportFrom, alias: ast.alias) -> Target:
    where = f"{module}, line {node.lineno}"
    if isinstance(node, ast.Import):
        if alias.name.split(".")[0] != PACKAGE:
            raise ImportError(f"{where}: give {alias.name} a line of its own")
        if alias.asname is None:
            raise ImportError(f"{where}: write 'from ... import' instead of 'import {alias.name}'")
        return Target(alias.name, None, alias.asname)
    if node.module is None or node.level or alias.name == "*":
        raise ImportError(f"{where}: write the import in full")
    return _resolved(node.module, alias.name, alias.asname or alias.name)


def _resolved(module: str, name: str, bound: str) -> Target:
    """The place where a name that is imported from a module is defined."""
    path = path_of(module)
    if path.name != "__init__.py":
        return Target(module, name, bound)
    for node in ast.parse(source_of(module)).body:  # handed on?
        if isinstance(node, ast.ImportFrom) and node.module is not None and _is_own(node):
            for alias in node.names:
                if (alias.asname or alias.name) == name:
                    return _resolved(node.module, alias.name, bound)
    if (path.parent / f"{name}.py").is_file() or (path.parent / name / "__init__.py").is_file():
        return Target(f"{module}.{name}", None, bound)
    if module == PACKAGE:  # its names are loaded by their full modules' names, which a flat folder does not have
        raise ImportError(f"import {name} from the module that defines it, not from {PACKAGE}")
    return Target(module, name, bound)


def _is_own(node: ast.Import | ast.ImportFrom) -> bool:
    names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""]
    return any(name.split(".")[0] == PACKAGE for name in names) or (isinstance(node, ast.ImportFrom) and node.level > 0)
