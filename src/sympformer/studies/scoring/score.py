"""What a trained run scores on data that chose nothing: test losses, probes, the audit of its weights, samples."""

import json
from pathlib import Path
from typing import Any

from sympformer.atomic import write_file
from sympformer.audit import audit_model
from sympformer.data import Prepared, validation_blocks
from sympformer.errors import InputError
from sympformer.loading import logits_of
from sympformer.provenance import this_code
from sympformer.studies.scoring.probes import score_probes
from sympformer.training import TrainConfig, load_run
from sympformer.training.choices import open_data
from sympformer.training.evaluate import evaluate_model

FILE = "score.json"
SAMPLES, SAMPLE_TOKENS = 2, 100


def score_run(folder: Path, split: str = "test") -> dict[str, Any]:
    """Score a run folder and keep the figures in it; a run scored before is not scored again."""
    if (kept := kept_score(folder, split)) is not None:
        return kept
    last, best = load_run(folder, "last"), load_run(folder, "best")
    prepared = open_data(last.config.data)
    if prepared.tokenizer.fingerprint != last.tokenizer.fingerprint:
        raise InputError(f"the data of {folder} was made by another tokenizer since: prepare it again as it was")
    model = last.model
    of_last = _test(last, prepared, split)
    the_same = best.checkpoint.progress.step == last.checkpoint.progress.step
    score = {
        "split": split,
        "last": of_last,
        "best": of_last if the_same else _test(best, prepared, split),
        "audit": audit_model(model, vocab_size=model.cfg.vocab_size).to_dict(),
        "probes": {
            name: {"accuracy": probe.accuracy, "chance": probe.chance, "items": probe.items}
            for name, probe in score_probes(logits_of(model), last.tokenizer, model.cfg.block_size).items()
        },
        "samples": _samples(last, last.config),
        "code": this_code().to_dict(),
    }
    write_file(folder / FILE, json.dumps(score, indent=1) + "\n")
    return score


def kept_score(folder: Path, split: str = "test") -> dict[str, Any] | None:
    """The score of an earlier time, if there is one on this split."""
    file = folder / FILE
    kept = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else None
    return kept if kept is not None and kept["split"] == split else None


def _test(run: Any, prepared: Prepared, split: str) -> dict[str, Any]:
    blocks = validation_blocks(prepared.tokens(split), run.model.cfg.block_size)
    return evaluate_model(run.model, blocks, run.tokenizer.byte_lengths()).to_dict()


def _samples(run: Any, config: TrainConfig) -> list[dict[str, str]]:
    """The same prompt and the same draws for every model."""
    prompt = config.sample_prompt
    return [{"prompt": prompt, "text": run.sample(prompt, SAMPLE_TOKENS, seed=seed)} for seed in range(SAMPLES)]
