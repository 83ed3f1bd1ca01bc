"""What the README shows works: its Python runs, its files exist, its commands are there."""

import re
from pathlib import Path

from sympformer.cli import COMMANDS

README = (Path(__file__).parent.parent / "README.md").read_text()


def test_python_block_runs(capsys: object) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    assert 8 <= len([line for line in code.splitlines() if line.strip()]) <= 12
    exec(compile(code, "README.md", "exec"), {})


def test_linked_files_exist() -> None:
    targets = re.findall(r"\]\((?!http)([^)#]+)\)", README)
    assert targets
    for target in targets:
        assert (Path(__file__).parent.parent / target).exists(), target


def test_commands_exist() -> None:
    shown = set(re.findall(r"^sympformer (\w+)", README, re.MULTILINE))
    assert shown
    assert shown <= set(COMMANDS)
