"""The page of layers runs, block after block."""

import re
from pathlib import Path
from typing import Any

PAGE = (Path(__file__).parents[2] / "docs" / "layers.md").read_text()


def test_every_block_runs() -> None:
    names: dict[str, Any] = {}
    blocks = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert len(blocks) >= 4
    for block in blocks:
        exec(compile(block, "layers.md", "exec"), names)
    assert not names["out"][names["padding"]].any()
    assert names["state"].k == 2
