"""What a trained run scores on data that chose nothing: test losses, probes, the audit of its weights, samples."""

import math
from pathlib import Path
from typing import Any

from sympformer.atomic import write_file
from sympformer.audit import audit_model
from sympformer.data import Tokens as Prepared
from sympformer.data import validation_blocks
from sympformer.errors import DivergenceError, InputError
from sympformer.models.foreign import logits_of
from sympformer.opening import Opened, open_model
from sympformer.provenance import this_code
from sympformer.safe_files import read_sealed, sealed
from sympformer.studies.scoring.probes import score_probes
from sympformer.training.checkpoint import Checkpoints, best_step
from sympformer.training.config import TrainConfig
from sympformer.training.evaluate import evaluate_model
from sympformer.training.folder import RunFolder

FILE = "score.json"
SAMPLES = 2
DRAWING: dict[str, Any] = {
    "max_new_tokens": 120,
    "temperature": 0.6,
}  # cooler than `sample`: small models lose the thread soon


def score_run(folder: Path, split: str = "test") -> dict[str, Any]:
    """Score a run folder and keep the figures in it; a run scored before is not scored again."""
    if (kept := kept_score(folder, split)) is not None:
        return kept
    passed_over: list[str] = []
    last = open_model(folder, "last", say=passed_over.append)
    best = open_model(folder, "best", say=passed_over.append)
    run, (model, tokenizer) = RunFolder.open(folder), last.ours()
    prepared = run.tokens()
    of_last = _test(last, prepared, split)
    if not math.isfinite(of_last["loss"]):
        raise DivergenceError(f"the loss of {folder} on {split} data is not finite")
    the_same = best.step == last.step
    score = {
        "split": split,
        "of": _newest(folder),
        "passed_over": list(dict.fromkeys(passed_over)),
        "last": of_last,
        "best": of_last if the_same else _test(best, prepared, split),
        "audit": audit_model(model, vocab_size=model.cfg.vocab_size).to_dict(),
        "probes": {
            name: {"accuracy": probe.accuracy, "chance": probe.chance, "items": probe.items}
            for name, probe in score_probes(logits_of(model), tokenizer, model.cfg.block_size).items()
        },
        "samples": _samples(last, run.config),
        "code": this_code().to_dict(),
    }
    write_file(folder / FILE, sealed(score))
    return score


def score_cell(folder: Path) -> dict[str, Any] | str:
    """The score of a run, or why there is none."""
    try:
        return score_run(folder)
    except DivergenceError as error:
        return str(error)


def kept_score(folder: Path, split: str = "test") -> dict[str, Any] | None:
    """The score of an earlier time, if there is one on this split, whole, and of the checkpoints that are there."""
    if not (folder / FILE).is_file():
        return None
    try:
        kept = read_sealed(folder / FILE)
    except InputError:
        return None  # damaged: it can be made again
    fits = kept.get("split") == split and kept.get("of", _newest(folder)) == _newest(folder)
    return kept if fits else None


def _newest(folder: Path) -> list[int]:
    """The newest steps of both kinds of weights, damaged or not."""
    best = best_step(folder)
    return Checkpoints(folder).steps()[-1:] + ([] if best is None else [best])


def _test(run: Opened, prepared: Prepared, split: str) -> dict[str, Any]:
    model, tokenizer = run.ours()
    blocks = validation_blocks(prepared.tokens(split), model.cfg.block_size)
    return evaluate_model(model, blocks, tokenizer.byte_lengths()).to_dict()


def _samples(run: Opened, config: TrainConfig) -> list[dict[str, str]]:
    """The same prompt and the same draws for every model."""
    prompt = config.sample_prompt
    return [{"prompt": prompt, "text": run.sample(prompt, **DRAWING, seed=seed)} for seed in range(SAMPLES)]
