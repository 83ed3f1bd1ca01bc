"""What a trained run scores on data that chose nothing: test losses, probes, the audit of its weights, samples."""

import json
import math
from pathlib import Path
from typing import Any

from sympformer.audit import audit_model
from sympformer.data import validation_blocks
from sympformer.errors import DivergenceError, InputError
from sympformer.files import read_json, write
from sympformer.opening import Opened, open_model
from sympformer.provenance import this_code
from sympformer.studies.scoring.probes import score_probes
from sympformer.training.checkpoint import Checkpoints, best_step
from sympformer.training.evaluate import evaluate_model
from sympformer.training.folder import RunFolder

FILE = "score.json"
SAMPLES = 2
DRAWING: dict[str, Any] = {"max_new_tokens": 120, "temperature": 0.6}  # cooler than `sample`: small models get lost


def score_run(folder: Path, split: str = "test") -> dict[str, Any]:
    """Score a run folder and keep the figures in it; a run scored before is not scored again."""
    if (kept := kept_score(folder, split)) is not None:
        return kept
    passed_over: list[str] = []
    last, best = (open_model(folder, which, say=passed_over.append) for which in ("last", "best"))
    run, (model, tokenizer) = RunFolder.open(folder), last.ours()
    of_last = _test(last, run, split)
    if not math.isfinite(of_last["loss"]):
        raise DivergenceError(f"the loss of {folder} on {split} data is not finite")
    probes = score_probes(last.logits, tokenizer.encode, model.cfg.block_size)
    prompt = run.config.sample_prompt  # the same and the same draws for every model
    score = {
        "split": split,
        "of": _newest(folder),
        "passed_over": list(dict.fromkeys(passed_over)),
        "last": of_last,
        "best": of_last if best.step == last.step else _test(best, run, split),
        "audit": audit_model(model, vocab_size=model.cfg.vocab_size).to_dict(),
        "probes": {kind: {n: getattr(p, n) for n in ("accuracy", "chance", "items")} for kind, p in probes.items()},
        "samples": [{"prompt": prompt, "text": last.sample(prompt, **DRAWING, seed=seed)} for seed in range(SAMPLES)],
        "code": this_code().to_dict(),
    }
    write(folder / FILE, json.dumps(score))
    return score


def kept_score(folder: Path, split: str = "test") -> dict[str, Any] | None:
    """The score of an earlier time, if there is one on this split, whole, and of the checkpoints that are there."""
    try:
        kept = read_json(folder / FILE)
    except InputError:
        return None  # not there, or damaged: it can be made again
    return kept if kept.get("split") == split and kept.get("of") == _newest(folder) else None


def _newest(folder: Path) -> list[int]:
    """The newest steps of both kinds of weights, damaged or not."""
    best = best_step(folder)
    return Checkpoints(folder).steps()[-1:] + ([] if best is None else [best])


def _test(opened: Opened, run: RunFolder, split: str) -> dict[str, Any]:
    model, tokenizer = opened.ours()
    blocks = validation_blocks(run.tokens().tokens(split), model.cfg.block_size)
    return evaluate_model(model, blocks, tokenizer.byte_lengths()).to_dict()
