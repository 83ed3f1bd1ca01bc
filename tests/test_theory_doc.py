"""docs/theory.md stays true: tests and code names on it exist, every formula of the paper has a row."""

import ast
import re
from collections.abc import Iterator
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
PAPER = sorted((ROOT.parent / "shared" / "paper").glob("*.txt"))  # its LaTeX source, where someone put it
ELSEWHERE = ("the same", "limit of the above", "the systems")  # a cell that points at code named in another row
SHORT = {
    "proposition": "Prop",
    "cor": "Cor",
    "example": "Ex",
    "remark": "Rem",
    "itemize": "Cond",
    "algorithm": "Alg",
    "figure": "Fig",
    "table": "Tab",
}
ITEM = re.compile(
    r"\\(?P<part>section|appendix)\b"
    r"|\\begin\{(?P<display>equation|align|gather|multline|eqnarray)(?P<star>\*?)\}.*?\\end\{(?P=display)(?P=star)\}"
    r"|\$\$.*?\$\$|(?<!\\)\\\[.*?\\\]"
    r"|\\begin\{(?P<kind>definition|theorem|lemma|enumerate|" + "|".join(SHORT) + r")\}",
    re.DOTALL,
)


def items(source: str) -> Iterator[str]:
    """The keys of a LaTeX source in reading order: 2.10 is the tenth display of section 2, Prop 4.1 a proposition."""
    section, letters, counts = 0, False, dict[str, int]()
    for found in ITEM.finditer(re.sub(r"(?<!\\)%.*", "", source)):
        if found["part"] is not None:
            letters = letters or found["part"] == "appendix"
            section, counts = (0 if found["part"] == "appendix" else section + 1), {}
            continue
        kind = found["kind"] or "display"
        counts[kind] = counts.get(kind, 0) + 1
        name = "" if kind == "display" else f"{SHORT.get(kind, kind)} "
        yield f"{name}{chr(64 + section) if letters else section}.{counts[kind]}"


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
    assert {key for key in keys() if keys().count(key) > 1} == {"2.3"}, "a scheme and its equation; others once"
    for row in rows():
        assert len(row) == 4, f"four cells: {row}"
        code = row[2].strip()
        assert re.search(r"`(flows|models|nn|ops)\.", code) or code.startswith(ELSEWHERE) or "no code" in code, row[0]
        assert "::test_" in row[3], f"{row[0]} names no test"


def test_the_list_is_the_papers() -> None:
    if not PAPER:
        pytest.skip("the paper's LaTeX source is not beside the project (../shared/paper/*.txt)")
    source = PAPER[0].read_text(encoding="utf-8").split(r"\begin{document}")[1]
    found = list(items(source))
    assert len(found) == len(set(found)) == ITEMS
    assert set(keys()) == set(found)
    # nothing that carries a label escapes: every label sits in a section heading or in an item
    labels = [label for label in re.findall(r"\\label\{(.*?)\}", source) if not re.match(r"(sub)?sec", label)]
    inside = "".join(part.group() for part in ITEM.finditer(source))
    captions = [label for label in labels if label.startswith(("tab:", "fig:", "algo:", "lemma:", "prop:"))]
    assert [label for label in labels if f"{{{label}}}" not in inside and label not in captions] == []
    assert len(captions) == sum(key.startswith(("Tab", "Fig", "Alg", "Prop")) for key in found)


def test_items_are_counted() -> None:
    """The counting itself, on a small source."""
    source = r"""
    \section{One} \begin{equation*} a \begin{aligned} b \end{aligned} \end{equation*} % $$ no $$
    $$c$$ \begin{proposition} \begin{align} d \label{eq:d} \end{align} \end{proposition}
    \section{Two} \[ e \] \begin{theorem} f \end{theorem} \\[2mm]
    \appendix \section{Proofs} $$g$$ \begin{table} \end{table}
    """
    assert list(items(source)) == ["1.1", "1.2", "Prop 1.1", "1.3", "2.1", "theorem 2.1", "A.1", "Tab A.1"]
