"""lm_eval on an exported folder with the local task of docs/examples/lm_eval, against our own log-likelihoods."""

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

from sympformer.exchange.exporting import export_run
from sympformer.opening import Opened, open_model
from tests.exchange.conftest import RunMaker

EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "lm_eval"
ROWS = [json.loads(line) for line in (EXAMPLE / "stories.jsonl").read_text(encoding="utf-8").splitlines()]


def log_likelihood(run: Opened, beginning: str, ending: str) -> float:
    seen, ids = len(run.tokenizer.encode(beginning)), run.tokenizer.encode(f"{beginning} {ending}")
    with torch.no_grad():
        logs = run.model(torch.tensor([ids])).logits[0].log_softmax(-1)
    return sum(logs[i - 1, ids[i]].item() for i in range(seen, len(ids)))


def test_the_example_is_well_formed() -> None:
    assert len(ROWS) >= 4
    assert all(row.keys() == {"beginning", "right", "wrong"} for row in ROWS)
    assert "HF_HUB_OFFLINE=1" in (EXAMPLE / "run.sh").read_text()
    assert os.access(EXAMPLE / "run.sh", os.X_OK)


@pytest.mark.slow
@pytest.mark.usefixtures("quick_audit")
@pytest.mark.skipif(find_spec("lm_eval") is None, reason="lm_eval is not installed: pip install 'lm-eval[hf]==0.4.13'")
def test_lm_eval_scores_as_we_do(make_run: RunMaker, tmp_path: Path) -> None:
    made = make_run("bpe", variant="softmax-exp-euler", block_size=128)
    export_run(made, tmp_path / "model")
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    done = subprocess.run(
        [EXAMPLE / "run.sh", tmp_path / "model", "--output_path", tmp_path / "results", "--log_samples"],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"PATH": path, "HF_HOME": str(tmp_path / "home")},
    )
    assert done.returncode == 0, done.stderr
    (samples,) = (tmp_path / "results").rglob("samples_story_endings*.jsonl")
    scored = [json.loads(line) for line in samples.read_text().splitlines()]
    assert len(scored) == len(ROWS)
    run = open_model(made)
    for sample in scored:
        for ending, response in zip(("right", "wrong"), sample["resps"], strict=True):
            expected = log_likelihood(run, sample["doc"]["beginning"], sample["doc"][ending])
            assert float(response[0][0]) == pytest.approx(expected, abs=1e-3)
