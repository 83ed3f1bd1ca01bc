"""Trained weights by their folder, a run's or one that 'sympformer export' wrote, and runs that begin with them."""

import dataclasses
import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sympformer.config_checks import check_names
from sympformer.data import Tokenizer, load_tokenizer
from sympformer.errors import InputError
from sympformer.models import LanguageModel, ModelConfig, variant
from sympformer.training import run as runs
from sympformer.training.checkpoint import MODEL, Say
from sympformer.training.config import DEFAULT_VARIANT, DataConfig, TrainConfig

FREE = ("dropout", "overflow")  # options of a model that its weights do not depend on
KIND = ("stepper", "attention", "integrator")  # what a variant's name says


@dataclass(frozen=True)
class Weights:
    """A trained model with its tokenizer. about: where they come from, for the record of what begins with them."""

    model: LanguageModel
    tokenizer: Tokenizer
    tokenizer_folder: Path
    about: dict[str, Any]


def open_weights(text: str, which: str = "best", say: Say = lambda text: None) -> Weights:
    """The weights of a run folder (the "best" by validation loss, or the "last"), or of an exported folder."""
    folder = Path(text)
    if runs.is_run(folder) or not (folder / "config.json").is_file():
        run = runs.load_run(folder, which, say)
        checkpoint = run.checkpoint
        about = {"folder": text, "step": checkpoint.progress.step, "sha256": [_sha256(checkpoint.folder / MODEL)]}
        return Weights(run.model, run.tokenizer, folder / runs.TOKENIZER, about)
    if which != "best":
        raise InputError(f"{text} is a Hugging Face folder with one set of weights: leave out --which")
    from sympformer.hf.folders import calm, check_folder, check_record, read_model

    calm()
    check_folder(folder)
    check_record(folder)
    about = {"folder": text, "sha256": [_sha256(file) for file in sorted(folder.glob("*.safetensors"))]}
    return Weights(read_model(folder), load_tokenizer(folder), folder, about)


def _sha256(file: Path) -> str:
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def fitted(config: TrainConfig, cfg: ModelConfig, tokenizer: Tokenizer, tokenizer_folder: Path) -> TrainConfig:
    """The config of a run that begins with weights of this model and tokenizer: they take the place of its own.

    Options that ask for another model or tokenizer are refused; dropout and overflow may be others.
    """
    where = f"the model in {config.init_from}"
    options = dict(config.model)
    name, preset = options.pop("variant", DEFAULT_VARIANT), options.pop("preset", "tuned")
    check_names(ModelConfig, options, "model", "model option")
    if preset != "tuned":
        raise InputError(f"{where} is taken as it is: leave out model.preset, which says how a new one starts")
    if name != DEFAULT_VARIANT:
        row = variant(name)
        options = {option: getattr(row, option) for option in KIND} | options
    for option, value in options.items():
        if option not in FREE and getattr(cfg, option, value) != value:
            raise InputError(f"{where} has {option} = {getattr(cfg, option)!r}, not {value!r}: leave the option out")
    asked = config.data.tokenizer
    if config.data.folder is None and asked not in (DataConfig.tokenizer, tokenizer.name, str(tokenizer_folder)):
        raise InputError(f"{where} has the tokenizer {tokenizer.name}, not {asked}: leave out data.tokenizer")
    free = {option: options[option] for option in FREE if option in options}
    data = config.data
    if data.folder is None:
        data = dataclasses.replace(data, tokenizer=str(tokenizer_folder))
    return config.replace(model=cfg.replace(**free).to_dict(), data=data)


def check_tokens(weights: Weights, made_by: Tokenizer, where: Path) -> None:
    """Refuse tokens whose ids mean something else to the model."""
    if weights.tokenizer.fingerprint != made_by.fingerprint:
        raise InputError(
            f"the tokens in {where} were made by {made_by.name}, another tokenizer than that of the model in "
            f"{weights.about['folder']}: give the text as data.corpus, and it is prepared with the model's own"
        )
