"""The source files that a model needs, flattened into one folder, so that it loads where sympformer is not installed.

With `trust_remote_code=True` transformers copies a module and what it reaches through lines of the form
`from .name import ...`, and nothing else: no packages, no `from . import name`. So every module becomes one file
(`sympformer.nn.parts` -> `sympformer_nn_parts.py`), its imports become relative, and names that a package
only hands on are taken from the module that defines them: what nobody needs stays behind.
"""

import ast
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from sympformer import __version__

PACKAGE = "sympformer"
ROOT = Path(__file__).parents[1]
ENTRIES = ("sympformer.hf.configuration_sympformer", "sympformer.hf.modeling_sympformer")


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
            source, needed = rewrite(module)
            files[file] = source
            waiting += needed
    return dict(sorted(files.items()))


def flat_name(module: str) -> str:
    """The module's name in the folder. Modules that carry the package's name keep theirs: `modeling_sympformer`."""
    last = module.rpartition(".")[2]
    return last if last.endswith(f"_{PACKAGE}") else module.replace(".", "_")


def rewrite(module: str) -> tuple[str, list[str]]:
    """A module's source with relative imports, and the modules that these name. All else stays as it is."""
    found = Module(module)
    lines, needed = found.source.splitlines(keepends=True), list[str]()
    for node in reversed(found.imports()):  # from the end, so that earlier places stay valid
        targets = [_target(module, node, alias) for alias in node.names]
        start, end = node.lineno - 1, node.end_lineno or node.lineno
        head, tail = lines[start][: node.col_offset], lines[end - 1][node.end_col_offset :]
        if head.strip() or tail.split("#")[0].strip():
            raise ImportError(f"{module}, line {node.lineno}: an import must stand on lines of its own")
        lines[start:end] = [f"{head}{statement}\n" for statement in _statements(targets)]
        needed += [target.module for target in targets]
    place = found.path.relative_to(ROOT.parent).as_posix()
    about = f"# {place} of sympformer {__version__}. SPDX-License-Identifier: MIT\n"
    return about + "".join(lines), needed


@dataclass(frozen=True)
class Target:
    """What one imported name stands for: a name in a module, or (name None) the module itself."""

    module: str
    name: str | None
    bound: str  # the name in the importing file


def _statements(targets: list[Target]) -> list[str]:
    """The import statements of some targets, one for each module."""
    named: dict[str, list[str]] = {}
    statements = []
    for target in targets:
        flat = flat_name(target.module)
        if target.name is not None:
            named.setdefault(flat, []).append(_as(target.name, target.bound))
        else:  # the loader does not see the first line; the second makes it copy the file
            statements += [f"from . import {_as(flat, target.bound)}", f"from .{flat} import __name__ as _{flat}"]
    return statements + [f"from .{flat} import {', '.join(names)}" for flat, names in named.items()]


def _as(name: str, bound: str) -> str:
    return name if name == bound else f"{name} as {bound}"


def _target(module: str, node: ast.Import | ast.ImportFrom, alias: ast.alias) -> Target:
    if isinstance(node, ast.Import):
        if alias.name.split(".")[0] != PACKAGE:
            raise ImportError(f"{module}, line {node.lineno}: give {alias.name} a line of its own")
        if alias.asname is None:
            raise ImportError(f"{module}, line {node.lineno}: write 'from ... import' instead of 'import {alias.name}'")
        return Target(alias.name, None, alias.asname)
    if node.module is None or node.level or alias.name == "*":
        raise ImportError(f"{module}, line {node.lineno}: write the import in full")
    return Module(node.module).resolve(alias.name, alias.asname or alias.name)


@dataclass(frozen=True)
class Module:
    """A module of this package, by its full name."""

    name: str

    @cached_property
    def path(self) -> Path:
        base = ROOT.joinpath(*self.name.split(".")[1:])
        for path in (base / "__init__.py", base.with_suffix(".py")):
            if path.is_file():
                return path
        raise ImportError(f"no module {self.name}")

    @cached_property
    def source(self) -> str:
        return self.path.read_text(encoding="utf-8")

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.source)

    def imports(self) -> list[ast.Import | ast.ImportFrom]:
        """Every import of this package's modules, at any depth of the code, in order of place."""
        nodes = [node for node in ast.walk(self.tree) if isinstance(node, (ast.Import, ast.ImportFrom))]
        return sorted((node for node in nodes if _is_own(node)), key=lambda node: node.lineno)

    def resolve(self, name: str, bound: str) -> Target:
        """The place where a name that is imported from here is defined."""
        if self.path.name != "__init__.py":
            return Target(self.name, name, bound)
        for node in self.tree.body:  # handed on?
            if isinstance(node, ast.ImportFrom) and _is_own(node):
                for alias in node.names:
                    if (alias.asname or alias.name) == name and node.module is not None:
                        return Module(node.module).resolve(alias.name, bound)
        if self._has(name):
            return Target(f"{self.name}.{name}", None, bound)
        if self.name == PACKAGE:  # its names are loaded by their full modules' names, which a flat folder does not have
            raise ImportError(f"import {name} from the module that defines it, not from {PACKAGE}")
        return Target(self.name, name, bound)

    def _has(self, name: str) -> bool:
        """Whether this package has a module of that name."""
        return (self.path.parent / f"{name}.py").is_file() or (self.path.parent / name / "__init__.py").is_file()


def _is_own(node: ast.Import | ast.ImportFrom) -> bool:
    names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""]
    return any(name.split(".")[0] == PACKAGE for name in names) or (isinstance(node, ast.ImportFrom) and node.level > 0)
