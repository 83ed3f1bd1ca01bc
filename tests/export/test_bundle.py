"""The bundle: nothing missing, nothing twice, nothing that only an installed sympformer could give."""

import ast
import sys
from pathlib import Path

import pytest
from transformers.dynamic_module_utils import get_relative_import_files

from sympformer.export.bundle import ENTRIES, bundle, flat_name, rewrite, source_of


@pytest.fixture(scope="module")
def files() -> dict[str, str]:
    return bundle()


def imports(source: str) -> list[ast.Import | ast.ImportFrom]:
    return [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Import | ast.ImportFrom)]


def outside(source: str) -> set[str]:
    """The packages that a file imports by their full names."""
    nodes = imports(source)
    names = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    names += [node.module or "" for node in nodes if isinstance(node, ast.ImportFrom) and node.level == 0]
    return {name.split(".")[0] for name in names}


def test_it_is_whole_and_no_more(files: dict[str, str], tmp_path: Path) -> None:
    for name, source in files.items():
        (tmp_path / name).write_text(source)
        assert source.startswith("# sympformer/")
        assert "SPDX-License-Identifier: MIT" in source.splitlines()[0]
        for node in imports(source):
            if isinstance(node, ast.ImportFrom) and node.level:
                wanted = [node.module] if node.module else [alias.name for alias in node.names]
                assert all(f"{module}.py" in files for module in wanted), (name, wanted)
    reached = {Path(file).name for file in get_relative_import_files(tmp_path / "modeling_sympformer.py")}
    assert reached | {"modeling_sympformer.py"} == set(files)  # what transformers would copy
    packages = set[str]().union(*map(outside, files.values()))
    named = {"torch", "transformers", "huggingface_hub", "yaml", "numpy", "filelock"}  # all come with transformers
    assert packages - sys.stdlib_module_names <= named
    assert "sympformer_nn_steppers.py" in files
    for stranger in ("sympformer_progress", "sympformer_flows_simulate", "sympformer_training_run", "sympformer"):
        assert f"{stranger}.py" not in files


def test_only_the_imports_differ(files: dict[str, str]) -> None:
    def body(source: str) -> list[str]:
        return [ast.dump(node) for node in ast.parse(source).body if not isinstance(node, ast.Import | ast.ImportFrom)]

    for module in (*ENTRIES, "sympformer.models.config", "sympformer.ops", "sympformer.flows.integrators"):
        assert body(files[f"{flat_name(module)}.py"]) == body(source_of(module))


# --- the step itself, on a package of our own


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("sympformer.export.bundle.ROOT", root := tmp_path / "sympformer")
    for name, source in {
        "__init__.py": "from sympformer.a import unused\n",
        "a/__init__.py": "from sympformer.a.deep import thing as handed_on\nHERE = 1\n",
        "a/deep.py": "thing = 3\n",
        "a/other.py": "value = 5\n",
        "a_deep.py": "",
    }.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(source)
    return root


@pytest.mark.parametrize(
    ("line", "rewritten"),
    [
        ("from sympformer.a.deep import thing", "from .sympformer_a_deep import thing"),
        ("from sympformer.a import handed_on", "from .sympformer_a_deep import thing as handed_on"),
        ("from sympformer.a import handed_on as x, HERE", "from .sympformer_a_deep import thing as x"),
        ("from sympformer.a import HERE", "from .sympformer_a import HERE"),
        ("from sympformer.a import (\n    other,\n)", "from . import sympformer_a_other as other"),
        ("import sympformer.a.other as o", "from . import sympformer_a_other as o"),
        ("def f():\n    from sympformer.a.deep import thing", "    from .sympformer_a_deep import thing"),
        ("from os import path", "from os import path"),
    ],
)
def test_how_an_import_is_rewritten(line: str, rewritten: str, package: Path) -> None:
    (package / "start.py").write_text(f'"""Doc."""\n{line}\nAFTER = 1\n')
    source, _ = rewrite("sympformer.start")
    assert rewritten in source.splitlines()
    assert source.endswith("AFTER = 1\n")
    ast.parse(source)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("import sympformer.a", "write 'from ... import' instead"),
        ("from .a import HERE", "write the import in full"),
        ("from sympformer.a import *", "write the import in full"),
        ("from sympformer import version", "import version from the module that defines it"),
        ("from sympformer.none import x", "no module sympformer.none"),
        ("x = 1; from sympformer.a import HERE", "must stand on lines of its own"),
        (
            "from sympformer.a_deep import x\nfrom sympformer.a.deep import thing",
            r"would both become sympformer_a_deep\.py",
        ),
    ],
)
def test_imports_that_cannot_be_flattened(line: str, message: str, package: Path) -> None:
    (package / "start.py").write_text(f"{line}\n")
    with pytest.raises(ImportError, match=message):
        bundle(["sympformer.start"])
