"""What the README shows works: its Python runs, its files exist, its commands are there."""

import re
from pathlib import Path

import pytest

from sympformer.cli import COMMANDS

README = (Path(__file__).parent.parent / "README.md").read_text()


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


def test_linked_files_exist() -> None:
    targets = re.findall(r"\]\((?!http)([^)#]+)\)", README)
    assert targets
    for target in targets:
        assert (Path(__file__).parent.parent / target).exists(), target


def test_commands_exist() -> None:
    shown = set(re.findall(r"^sympformer (\w+)", README, re.MULTILINE))
    assert shown
    assert shown <= set(COMMANDS)
