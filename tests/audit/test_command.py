"""`sympformer audit`: tables, exit codes, the report, and the page about it."""

import json
import re
from pathlib import Path

import pytest
import torch

from sympformer import cli
from sympformer.audit.auditor import CHECKS, FUTURE
from sympformer.opening import open_model

ROOT = Path(__file__).parents[2]
LEAKING = "docs/examples/leaking_model.py"
PAGE = (ROOT / "docs" / "audit.md").read_text()


@pytest.fixture(autouse=True)
def place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    monkeypatch.chdir(ROOT)


def table_rows(text: str) -> dict[tuple[str, str], list[str]]:
    """(check, weights) -> the other cells."""
    lines = [[cell.strip() for cell in line.split("│")[1:-1]] for line in text.splitlines() if line.startswith("│")]
    return {(line[0], line[1]): line[2:] for line in lines}


@pytest.mark.parametrize("target", [LEAKING, "docs.examples.leaking_model:build"])
def test_the_leaking_example_is_caught(target: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["audit", target, "--length", "10"]) == 1
    text = capsys.readouterr().out
    rows = table_rows(text)
    for weights in ("fresh", "perturbed"):
        assert {check for check, w in rows if w == weights and rows[check, w][-1] == "FAILS"} == set(FUTURE)
        assert rows["causality", weights][2] == "0"
        assert float(rows["causality", weights][0]) > 0.01
        assert rows["cache", weights] == ["", rows["batch", weights][1], "", "not tried"]
    assert re.search(r"FAILS causality \(fresh weights\): logits change .* first at position 0\n", text)
    assert "cache: not tried: the model has no cache" in text
    assert "passes" not in text


def test_the_leaking_example_can_be_trained() -> None:
    """It is a model that one could have written: it has gradients, and learns."""
    model = open_model(LEAKING).model.train()
    idx = torch.arange(12).unsqueeze(0)
    torch.nn.functional.cross_entropy(model(idx)[0, :-1], idx[0, 1:]).backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())


def test_a_variant_passes(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["audit", "linear-ab2", "--length", "8"]) == 0
    text = capsys.readouterr().out
    rows = table_rows(text)
    assert {weights for _, weights in rows} == {"fresh", "perturbed"}
    assert {cells[-1] for cells in rows.values()} == {"holds"}
    assert "linear-ab2 passes" in text
    assert "8 tokens of 256, float64" in text


def test_a_run_is_audited_trained_fresh_and_perturbed(
    tiny_run: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "report.json"
    assert cli.main(["audit", tiny_run, "--json", str(file), "--seed", "3"]) == 0
    assert {weights for _, weights in table_rows(capsys.readouterr().out)} == {"trained", "fresh", "perturbed"}
    written = json.loads(file.read_text())
    assert (written["kind"], written["target"]) == ("run", tiny_run)
    assert written["passed"] is True
    assert (written["length"], written["seed"], len(written["rows"])) == (16, 3, 18)


def test_the_page_runs_as_it_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    blocks = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert len(blocks) == 2
    names: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, "docs/audit.md", "exec"), names)
    names["test_my_model_is_causal"]()  # type: ignore[operator]
    assert capsys.readouterr().out.startswith("True ")
    assert set(re.findall(r"^\| (\w+) \|", PAGE, re.MULTILINE)) - {"check"} == set(CHECKS)
    assert "(examples/leaking_model.py)" in PAGE
