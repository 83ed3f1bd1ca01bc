"""From a Hugging Face folder back to a run folder, on which eval, sample and export work."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sympformer.atomic import staged_folder
from sympformer.errors import InputError
from sympformer.exchange.exporting import CONFIG, WEIGHTS, check_new
from sympformer.exchange.record import Record, read_record
from sympformer.exchange.tokenizers import read_tokenizer
from sympformer.models import LanguageModel
from sympformer.provenance import this_code
from sympformer.safe_files import check_regular, check_weights, read_json
from sympformer.training import run as runs
from sympformer.training.checkpoint import CheckpointFolder, Progress, model_tensors
from sympformer.training.config import DataConfig, TrainConfig
from sympformer.training.metrics import JSONL, records_sha256

if TYPE_CHECKING:
    from sympformer.data import Tokenizer

INDEX = "model.safetensors.index.json"
PICKLES = ("pytorch_model.bin", "pytorch_model.bin.index.json", "model.pt", "model.pth")


def import_run(folder: str | Path, out: str | Path, say: Callable[[str], None] = lambda text: None) -> Path:
    """Write a run folder `out` with the model of a Hugging Face folder, whole or not at all.

    The folder is one of `sympformer export`, or one that `save_pretrained` wrote with such a model and its tokenizer.
    """
    folder, out = Path(folder), Path(out)
    check_new(out)
    check_folder(folder)
    record = read_record(folder)
    if (folder / WEIGHTS).is_file():
        check_weights(folder / WEIGHTS, _json(folder / CONFIG))
    model = read_model(folder)
    tokenizer = read_tokenizer(folder, None if record is None else record.tokenizer)
    if tokenizer.vocab_size > model.cfg.vocab_size:
        raise InputError(
            f"the tokenizer in {folder} has {tokenizer.vocab_size} ids and the model {model.cfg.vocab_size}: "
            "they do not belong together"
        )
    _write(out, model, tokenizer, record)
    say(f"not known: {_unknown(record)}")
    return out


def check_folder(folder: Path) -> None:
    """Refuse what is not a saved sympformer model, and weights that only unpickling could read."""
    if not folder.is_dir():
        raise InputError(
            f"{folder} is not a folder: download a model of the hub first, 'hf download OWNER/NAME --local-dir FOLDER'"
        )
    if not (folder / CONFIG).is_file():
        raise InputError(
            f"{folder} holds no exported model (no {CONFIG}): make one with 'sympformer export RUN FOLDER'"
        )
    check_regular(folder)
    kind = _json(folder / CONFIG).get("model_type")
    if kind != "sympformer":
        raise InputError(f"{folder} holds a model of type {kind!r}: import takes what 'sympformer export' wrote")
    if not (folder / WEIGHTS).is_file() and not (folder / INDEX).is_file():
        pickled = next((name for name in PICKLES if (folder / name).exists()), None)
        why = f"; {pickled} is pickled, which can run any program, and is not read" if pickled else ""
        raise InputError(f"{folder} has no {WEIGHTS}: it is not whole{why}")


def read_model(folder: Path) -> LanguageModel:
    """The model in a Hugging Face folder. Every weight must be there and fit. No code of the folder runs."""
    import torch
    from huggingface_hub.errors import StrictDataclassError
    from safetensors import SafetensorError

    from sympformer.hf import SympFormerForCausalLM

    try:
        model, found = SympFormerForCausalLM.from_pretrained(
            folder, local_files_only=True, use_safetensors=True, dtype=torch.float32, output_loading_info=True
        )
    except InputError as error:
        raise InputError(f"{folder}: {error}") from error
    except (SafetensorError, StrictDataclassError, OSError, ValueError, RuntimeError, KeyError, TypeError) as error:
        raise InputError(f"the model in {folder} cannot be read ({_line(error)}): take a fresh copy") from error
    for what in ("missing", "unexpected", "mismatched"):
        if names := sorted(map(str, found[f"{what}_keys"])):
            raise InputError(f"the weights in {folder} do not fit its {CONFIG}: {what} {names[0]} (of {len(names)})")
    return model.to_language_model().eval()


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
    return TrainConfig(model=model.cfg.to_dict(), data=DataConfig(corpus="unknown", tokenizer="unknown"))


def _unknown(record: Record | None) -> str:
    optimizer = "the optimizer's state (so training cannot be continued)"
    if record is None:
        return f"{optimizer}, the losses, and how the model was trained (give eval its --data)"
    return f"{optimizer}, and the metrics of other steps than {record.progress['step']}"


def _json(file: Path) -> dict[str, Any]:
    try:
        return read_json(file)
    except InputError as error:
        raise InputError(f"{error}; take a fresh copy of the folder") from error


def _line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0].rstrip(".:") if lines else type(error).__name__
