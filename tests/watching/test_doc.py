"""What docs/watch.md shows works, and its numbers are those of the code."""

import re
from pathlib import Path
from typing import Any

from sympformer.watching import record, scene

PAGE = (Path(__file__).parents[2] / "docs" / "watch.md").read_text()


def test_the_snippet_runs_and_its_shapes_are_as_said() -> None:
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    names: dict[str, Any] = {}
    exec(compile(code, "docs/watch.md", "exec"), names)
    said = [tuple(map(int, found.split(", "))) for found in re.findall(r"# \((\d+(?:, \d+)+)\)", code)]
    seen = names["seen"]
    assert [tuple(seen.x.shape), tuple(seen.attention.shape)] == said
    assert seen.y.shape == seen.x.shape
    assert "; ".join(stage.name for stage in seen.stages[:3]) in code


def test_the_numbers_of_the_page_are_those_of_the_code() -> None:
    assert f"the last {scene.MOST_TOKENS} tokens" in PAGE
    assert f"{scene.DIRECTIONS} principal directions" in PAGE
    assert f"{scene.MOST_LINES} largest shares from {100 * scene.FAINTEST:g} % on" in PAGE
    assert f"a cosine of at least {record.ALIKE}" in PAGE
    assert record.LARGEST // 2**20 == 16
    assert scene.GUESSES == 5
