"""`sympformer_run.json`: what an exported folder says about the run it came from."""

import dataclasses
import json
from dataclasses import dataclass
from typing import Any

from sympformer import __version__
from sympformer.opening import Opened
from sympformer.provenance import this_code
from sympformer.training.folder import RunFolder

RECORD = "sympformer_run.json"
# of a run's environment: what the result depends on, not whose machine it was
KEPT = ("codes", "budgets", "init_from", "python", "torch", "processes")
EVALUATION = (
    "step", "tokens", "epoch", "validation_loss", "perplexity", "bits_per_byte", "best_validation_loss", "seconds",
)  # fmt: skip


@dataclass(frozen=True)
class Record:
    """The story of the weights."""

    which: str  # best or last
    config: dict[str, Any]  # of the training
    environment: dict[str, Any]
    progress: dict[str, Any]
    tokenizer: dict[str, Any]
    audit: dict[str, Any]
    evaluation: dict[str, Any] | None = None  # at the step of these weights, if there was one
    sympformer: str = __version__

    def to_json(self) -> str:
        return json.dumps(dataclasses.asdict(self), indent=2) + "\n"


def record_of(run: RunFolder, opened: Opened, which: str, audit: dict[str, Any]) -> Record:
    """What a run folder says about its weights."""
    return Record(
        which=which,
        config=run.config.to_dict(),
        environment=_environment(run),
        progress={"step": opened.step},
        tokenizer=run.tokenizer.describe(),
        audit=audit,
        evaluation=_evaluation(run, opened.step),
    )


def _environment(run: RunFolder) -> dict[str, Any]:
    whole = run.record
    kept = {name: whole[name] for name in KEPT if name in whole}
    data = {name: whole["data"][name] for name in ("corpus", "sha256") if name in whole["data"]}
    return kept | {"data": data, "exported_by": this_code().to_dict()}


def _evaluation(run: RunFolder, step: int | None) -> dict[str, Any] | None:
    rows = [row for row in run.metrics() if row["step"] == step and "validation_loss" in row]
    return {name: rows[-1][name] for name in EVALUATION if name in rows[-1]} if rows else None
