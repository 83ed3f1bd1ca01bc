"""The code on docs/huggingface.md runs as it stands."""

import re
from pathlib import Path

import pytest

pytest.importorskip("transformers", reason="needs the extra hf")
pytest.importorskip("accelerate", reason="needs the extra hf")
pytest.importorskip("peft", reason="needs the extra hf")

PAGE = Path(__file__).parents[2] / "docs" / "huggingface.md"
SECTIONS = ("Loading and saving", "The forward pass", "Generation", "Trainer", "Adapters (PEFT)")


def test_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for title in SECTIONS:
        section = re.split(r"^## ", PAGE.read_text().split(f"## {title}\n", 1)[1], maxsplit=1, flags=re.MULTILINE)[0]
        blocks = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
        assert blocks, title
        for block in blocks:
            exec(block, names)
    assert (tmp_path / "my-model" / "model.safetensors").exists()
    assert names["rows"].shape == (2, 2, 5, 5)  # type: ignore[attr-defined]
    assert names["more"].shape == (2, 9)  # type: ignore[attr-defined]
    assert names["last"].shape == (1, 2, 300)  # type: ignore[attr-defined]
    assert names["says"].shape == (2, 3)  # type: ignore[attr-defined]
    assert names["b"].shape == (2, 13)  # type: ignore[attr-defined]
    assert any("lora_" in name for name, _ in names["adapted"].named_parameters())  # type: ignore[attr-defined]
