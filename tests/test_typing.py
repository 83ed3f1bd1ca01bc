"""A user's type checker sees what the public names are, although they are loaded when first used."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

import sympformer

ROOT = Path(sympformer.__file__).parent
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
