"""The bundle: nothing missing, nothing twice, nothing that only an installed sympformer could give."""

import ast
import importlib
import subprocess
import sys
from pathlib import Path

import pytest
from transformers.dynamic_module_utils import get_relative_import_files

from sympformer.exchange.bundle import ENTRIES, ROOT, Module, bundle, flat_name, rewrite


@pytest.fixture(scope="module")
def files() -> dict[str, str]:
    return bundle()


def own_imports(source: str) -> list[str]:
    names = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            names.append(node.module or "")
    return names


def test_no_file_imports_the_package(files: dict[str, str]) -> None:
    for name, source in files.items():
        assert not [module for module in own_imports(source) if module.split(".")[0] == "sympformer"], name


def test_every_relative_import_is_a_file_of_the_bundle(files: dict[str, str]) -> None:
    for name, source in files.items():
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.ImportFrom) and node.level:
                wanted = [node.module] if node.module else [alias.name for alias in node.names]
                assert all(f"{module}.py" in files for module in wanted), (name, wanted)


def test_the_loader_of_transformers_finds_every_file(files: dict[str, str], tmp_path: Path) -> None:
    for name, source in files.items():
        (tmp_path / name).write_text(source)
    reached = {Path(file).name for file in get_relative_import_files(tmp_path / "modeling_sympformer.py")}
    assert reached | {"modeling_sympformer.py"} == set(files)


def test_only_the_imports_differ(files: dict[str, str]) -> None:
    def body(source: str) -> list[str]:
        return [ast.dump(node) for node in ast.parse(source).body if not isinstance(node, ast.Import | ast.ImportFrom)]

    for entry in (*ENTRIES, "sympformer.models.config", "sympformer.ops", "sympformer.flows.integrators"):
        assert body(files[f"{flat_name(entry)}.py"]) == body(Module(entry).source)


def test_what_the_model_does_not_need_stays_behind(files: dict[str, str]) -> None:
    assert "sympformer_nn_steppers.py" in files
    for stranger in ("sympformer_progress", "sympformer_flows_simulate", "sympformer_training_run", "sympformer"):
        assert f"{stranger}.py" not in files
    packages = {module.split(".")[0] for source in files.values() for module in own_imports(source)}
    assert packages - sys.stdlib_module_names <= {"torch", "numpy", "transformers", "huggingface_hub", "yaml"}


def test_the_files_say_where_they_come_from(files: dict[str, str]) -> None:
    for name, source in files.items():
        assert source.startswith("# sympformer/"), name
        assert "SPDX-License-Identifier: MIT" in source.splitlines()[0]


@pytest.mark.slow
def test_every_file_imports_alone_where_sympformer_is_not(files: dict[str, str], tmp_path: Path) -> None:
    folder = tmp_path / "flat"
    folder.mkdir()
    for name, source in files.items():
        (folder / name).write_text(source)
    (folder / "__init__.py").touch()
    program = (
        "import sys, importlib; sys.modules['sympformer'] = None; sys.path.insert(0, sys.argv[1])\n"
        "for name in sys.argv[2:]: importlib.import_module(f'flat.{name}')\n"
        "print(*[m for m in sys.modules if m.startswith('flat.')])"
    )
    stems = [name.removesuffix(".py") for name in files]
    command = [sys.executable, "-c", program, str(tmp_path), *stems]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert {f"flat.{stem}" for stem in stems} <= set(done.stdout.split())


# --- the step itself, on a package of our own


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("sympformer.exchange.bundle.ROOT", tmp_path / "sympformer")
    root = tmp_path / "sympformer"
    for name, source in {
        "__init__.py": "from sympformer.a import unused\n",
        "a/__init__.py": "from sympformer.a.deep import thing as handed_on\nHERE = 1\n",
        "a/deep.py": "thing = 3\n",
        "a/other.py": "value = 5\n",
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
    ],
)
def test_imports_that_cannot_be_flattened(line: str, message: str, package: Path) -> None:
    (package / "start.py").write_text(f"{line}\n")
    with pytest.raises(ImportError, match=message):
        bundle(["sympformer.start"])


def test_two_modules_must_not_become_one_file(package: Path) -> None:
    (package / "a_deep.py").write_text("")
    (package / "start.py").write_text("from sympformer.a_deep import x\nfrom sympformer.a.deep import thing\n")
    with pytest.raises(ImportError, match=r"would both become sympformer_a_deep\.py"):
        bundle(["sympformer.start"])


def test_entries_exist() -> None:
    assert Path(importlib.import_module("sympformer").__file__ or "").parent == ROOT
    assert all(Module(entry).path.is_file() for entry in ENTRIES)
