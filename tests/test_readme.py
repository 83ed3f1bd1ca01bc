"""What the README and the docs show works: the Python runs, linked files exist, commands are there."""

import re
import runpy
from pathlib import Path

import pytest

from sympformer.cli import COMMANDS

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text()
TABLES = sorted((ROOT / "docs" / "results").glob("*/table.md"))  # written by a comparison
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]


def test_python_block_runs_and_prints_what_it_says(capsys: pytest.CaptureFixture[str]) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    assert 8 <= len([line for line in code.splitlines() if line.strip()]) <= 12
    exec(compile(code, "README.md", "exec"), {})
    said = re.findall(r"energy from ([\d.]+) to ([\d.]+), and to ([\d.]+)", code)
    start, classical, accelerated = map(float, said[0])
    printed = [
        [float(number) for number in re.findall(r"\d+\.\d+", line)] for line in capsys.readouterr().out.splitlines()
    ]
    assert printed == [pytest.approx([start, classical], abs=0.01), pytest.approx([start, accelerated], abs=0.01)]


def test_lines_fit_a_hundred_columns() -> None:
    assert [line for line in README.splitlines() if len(line) > 100 and not line.startswith("|")] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_linked_files_exist(page: Path) -> None:
    for target in re.findall(r"\]\((?!http|#)([^)#]+)(?:#[^)]*)?\)", page.read_text()):
        assert (page.parent / target).exists(), target


def test_every_page_can_be_reached() -> None:
    """From the README, or from the front page of the site."""
    starts = [ROOT / "README.md", ROOT / "docs" / "index.md"]
    linked = {
        (start.parent / target).resolve()
        for start in starts
        for target in re.findall(r"\]\(([^)#]+\.md)\)", start.read_text())
    }
    assert {page for page in PAGES if page.is_relative_to(ROOT / "docs")} - linked - set(starts) == set(TABLES)


@pytest.mark.parametrize("script", sorted((ROOT / "docs").rglob("*.py")), ids=lambda script: script.name)
def test_scripts_of_the_docs_find_what_they_import(script: Path) -> None:
    runpy.run_path(str(script), run_name="imported")


def test_commands_exist() -> None:
    shown = set(re.findall(r"^sympformer (\w+)", README, re.MULTILINE))
    assert shown
    assert shown <= set(COMMANDS)
