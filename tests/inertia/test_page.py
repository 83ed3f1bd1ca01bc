"""The code on docs/accelerate.md runs as it stands, and its tables name what there is."""

import re
from pathlib import Path
from typing import Any

import pytest
import torch

from sympformer.flows import ACCELERATED
from sympformer.inertia import DAMPINGS

pytest.importorskip("transformers", reason="needs the extra hf")
pytest.importorskip("accelerate", reason="needs the extra hf")
pytest.importorskip("peft", reason="needs the extra hf")

PAGE = (Path(__file__).parents[2] / "docs" / "accelerate.md").read_text()


def test_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    names: dict[str, Any] = {}
    blocks = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert len(blocks) == 7
    for block in blocks:
        exec(compile(block, "docs/accelerate.md", "exec"), names)
    assert (tmp_path / "fast" / "model.safetensors").exists()
    assert names["text"].shape == (1, 13)
    assert any("inertia" in name and p.requires_grad for name, p in names["adapted"].named_parameters())
    assert names["net"](torch.randn(2, 3, 8)).shape == (2, 3, 8)


def test_the_tables_name_every_choice() -> None:
    schemes = PAGE.split("| integrator | drift |")[1].split("\n\n")[0]
    assert re.findall(r"^\| (\w+) \|", schemes, re.MULTILINE) == list(ACCELERATED)
    assert all(f"`{damping}`" in PAGE for damping in DAMPINGS)
