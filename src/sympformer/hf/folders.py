"""A model of ours in a folder that 'sympformer export' or `save_pretrained` wrote, read without running code of it."""

from pathlib import Path
from typing import Any

import torch
from huggingface_hub.errors import StrictDataclassError
from safetensors import SafetensorError

from sympformer.errors import InputError
from sympformer.hf.modeling_sympformer import SympFormerForCausalLM
from sympformer.models import LanguageModel
from sympformer.safe_files import check_files, check_regular, check_weights, read_json, read_sealed

CONFIG, WEIGHTS, INDEX = "config.json", "model.safetensors", "model.safetensors.index.json"
RECORD = "sympformer_run.json"
PICKLES = ("pytorch_model.bin", "pytorch_model.bin.index.json", "model.pt", "model.pth")


def calm() -> None:
    """No bars and log lines of transformers between our own."""
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()


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
        raise InputError(f"{folder} holds a model of type {kind!r}: only what 'sympformer export' wrote is read here")
    if not (folder / WEIGHTS).is_file() and not (folder / INDEX).is_file():
        pickled = next((name for name in PICKLES if (folder / name).exists()), None)
        why = f"; {pickled} is pickled, which can run any program, and is not read" if pickled else ""
        raise InputError(f"{folder} has no {WEIGHTS}: it is not whole{why}")


def check_record(folder: Path) -> None:
    """Refuse files that are not those of the export, where there is a record of it."""
    if (folder / RECORD).exists():
        files = read_sealed(folder / RECORD).get("files")
        if not isinstance(files, dict):
            raise InputError(f"{folder / RECORD} is damaged: take a fresh copy of the folder")
        check_files(folder, files, RECORD)


def read_model(folder: Path) -> LanguageModel:
    """The model in a Hugging Face folder. Every weight must be there and fit. No code of the folder runs."""
    if (folder / WEIGHTS).is_file():
        check_weights(folder / WEIGHTS, _json(folder / CONFIG))
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


def _json(file: Path) -> dict[str, Any]:
    try:
        return read_json(file)
    except InputError as error:
        raise InputError(f"{error}; take a fresh copy of the folder") from error


def _line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0].rstrip(".:") if lines else type(error).__name__
