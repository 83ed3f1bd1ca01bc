"""docs/theory.md stays true: tests and code names on it exist, every formula of the paper has a row."""

import ast
import hashlib
import re
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "docs" / "theory.md").read_text(encoding="utf-8")
FILES = sorted(set(re.findall(r"\btests/[\w/]+\.py\b", TEXT)))
TESTS = sorted(set(re.findall(r"`(tests/[\w/]+\.py(?:::\w+)+)`", TEXT)))
NAMES = sorted(set(re.findall(r"`((?:flows|ops|models)(?:\.\w+)+)(?:\(.*?\))?`", TEXT)))


@cache
def functions(path: str) -> set[str]:
    """The test functions of a file, those of a class as Class::test."""
    found: set[str] = set()
    for node in ast.parse((ROOT / path).read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.ClassDef):
            found |= {f"{node.name}::{part.name}" for part in node.body if isinstance(part, ast.FunctionDef)}
    return found


def resolve(name: str) -> object:
    """The object called `name` inside the package: a module, an attribute, or a field that a class declares."""
    parts = name.split(".")
    value: object = import_module(f"sympformer.{parts[0]}")
    for i, part in enumerate(parts[1:], 2):
        if hasattr(value, part):
            value = getattr(value, part)
        elif isinstance(value, ModuleType):
            value = import_module(f"{value.__name__}.{part}")
        else:
            assert i == len(parts), f"{name}: nothing can be asked of {part}"
            value = value.__annotations__[part]
    return value


def test_the_page_was_read() -> None:
    assert len(TESTS) > 50
    assert len(NAMES) > 50
    assert TEXT.count("::") == sum(t.count("::") * TEXT.count(f"`{t}`") for t in TESTS), "write tests as `file::name`"


@pytest.mark.parametrize("path", FILES)
def test_files_exist(path: str) -> None:
    assert (ROOT / path).is_file()


@pytest.mark.parametrize("reference", TESTS)
def test_tests_exist(reference: str) -> None:
    path, _, name = reference.partition("::")
    assert name.split("::")[-1].startswith("test_")
    assert name in functions(path), f"{path} has no {name}"


@pytest.mark.parametrize("name", NAMES)
def test_code_names_resolve(name: str) -> None:
    resolve(name)


@pytest.mark.parametrize("name", ["flows.NoSuchThing", "flows.LogLinear.no_such_thing", "models.no_such_module"])
def test_wrong_names_are_noticed(name: str) -> None:
    with pytest.raises((AttributeError, KeyError, ModuleNotFoundError)):
        resolve(name)


# --- the paper's items

ITEMS = 99  # 81 displayed formulas and 18 propositions, corollaries, examples, remarks, conditions, figures, tables
# the 99 keys, sorted, as they were counted in the paper's LaTeX at commit f10bd74, whose test had the counting
LIST = "b0fe3507222ad58b00c58a5408195254f35391c357c15dfb3f9d0a41c01d3520"
ELSEWHERE = ("the same", "limit of the above", "the systems")  # a cell that points at code named in another row


def rows() -> list[list[str]]:
    """The cells of every row of section 2's tables."""
    section = TEXT.split("## 2. ")[1].split("\n## 3. ")[0]
    cells = [re.split(r"(?<!\\)\|", line)[1:-1] for line in section.splitlines() if line.startswith("|")]
    return [row for row in cells if row[0].strip() not in ("paper", "---")]


def keys() -> list[str]:
    """The paper's items that the first cells name."""
    return [key for row in rows() for key in re.findall(r"`((?:[A-Z][a-z]+ )?[1-9AB]\.\d+)`", row[0])]


def test_every_item_of_the_paper_has_a_row() -> None:
    assert len(set(keys())) == ITEMS
    assert hashlib.sha256(" ".join(sorted(set(keys()))).encode()).hexdigest() == LIST
    assert {key for key in keys() if keys().count(key) > 1} == {"2.3"}, "a scheme and its equation; others once"
    for row in rows():
        assert len(row) == 4, f"four cells: {row}"
        code = row[2].strip()
        assert re.search(r"`(flows|models|nn|ops)\.", code) or code.startswith(ELSEWHERE) or "no code" in code, row[0]
        assert "::test_" in row[3], f"{row[0]} names no test"
