"""From a Hugging Face folder back to a run folder, on which eval, sample and export work."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sympformer.atomic import staged_folder
from sympformer.data import load_tokenizer
from sympformer.errors import InputError
from sympformer.exchange.exporting import check_new
from sympformer.exchange.record import Record, read_record
from sympformer.models import LanguageModel
from sympformer.provenance import this_code
from sympformer.training import run as runs
from sympformer.training.checkpoint import CheckpointFolder, Progress, model_tensors
from sympformer.training.config import UNKNOWN, DataConfig, TrainConfig
from sympformer.training.metrics import JSONL, records_sha256

if TYPE_CHECKING:
    from sympformer.data import Tokenizer


def import_run(folder: str | Path, out: str | Path, say: Callable[[str], None] = lambda text: None) -> Path:
    """Write a run folder `out` with the model of a Hugging Face folder, whole or not at all.

    The folder is one of `sympformer export`, or one that `save_pretrained` wrote with such a model and its tokenizer.
    """
    from sympformer.hf.folders import check_folder, read_model

    folder, out = Path(folder), Path(out)
    check_new(out)
    check_folder(folder)
    record = read_record(folder)
    model = read_model(folder)
    tokenizer = load_tokenizer(folder)
    if record is not None and record.tokenizer.get("sha256") != tokenizer.fingerprint:
        raise InputError(
            f"{folder / 'tokenizer.json'} is not the tokenizer of the export: its sha256 differs; take a fresh copy"
        )
    if tokenizer.vocab_size > model.cfg.vocab_size:
        raise InputError(
            f"the tokenizer in {folder} has {tokenizer.vocab_size} ids and the model {model.cfg.vocab_size}: "
            "they do not belong together"
        )
    _write(out, model, tokenizer, record)
    say(f"not known: {_unknown(record)}")
    return out


def _write(out: Path, model: LanguageModel, tokenizer: "Tokenizer", record: Record | None) -> None:
    config = _unknown_recipe(model) if record is None else record.train_config()
    progress = Progress() if record is None else record.to_progress()
    with staged_folder(out, last=runs.CONFIG) as work:
        (work / runs.TOKENIZER).mkdir()
        tokenizer.save(work / runs.TOKENIZER)
        (work / runs.MODEL).write_text(model.cfg.to_json(), encoding="utf-8")
        (work / runs.CONFIG).write_text(config.to_yaml(), encoding="utf-8")
        runs.write_environment(work, _environment(record))
        if record is not None and record.evaluation is not None:
            (work / JSONL).write_text(json.dumps(record.evaluation) + "\n", encoding="utf-8")
        progress.metrics = records_sha256(work / JSONL, progress.step)
        CheckpointFolder(work / runs.CHECKPOINTS).save_best(progress, model_tensors(model))


def _environment(record: Record | None) -> dict[str, Any]:
    """Where the weights come from. The data's checksums stand apart: without them no run can be continued, and
    without the optimizer's state this one must not be.
    """
    known = {} if record is None else record.environment
    data = known.get("data", {})
    return {
        **known,
        "data": {name: value for name, value in data.items() if name != "sha256"},
        "imported": {**this_code().to_dict(), "data_sha256": data.get("sha256")},
    }


def _unknown_recipe(model: LanguageModel) -> TrainConfig:
    """The config of a run whose training nobody wrote down."""
    return TrainConfig(model=model.cfg.to_dict(), data=DataConfig(corpus=UNKNOWN, tokenizer=UNKNOWN))


def _unknown(record: Record | None) -> str:
    optimizer = "the optimizer's state (so training cannot be continued)"
    if record is None:
        return f"{optimizer}, the losses, and how the model was trained (give eval its --text or --data)"
    return f"{optimizer}, and the metrics of other steps than {record.progress['step']}"
