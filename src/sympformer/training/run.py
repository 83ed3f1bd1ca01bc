"""A run folder: what it holds, and how to use the model in it. Nothing else is needed.

config.yaml  model.json  environment.json  tokenizer/  metrics.jsonl  metrics.csv  log.txt  samples.jsonl  checkpoints/
"""

import json
import os
import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from sympformer import provenance
from sympformer.atomic import staged_folder, write_file
from sympformer.data import Prepared, Tokenizer, load_tokenizer
from sympformer.errors import InputError
from sympformer.models import LanguageModel, ModelConfig, build_model
from sympformer.provenance import CONTINUED, Code, codes_in, this_code
from sympformer.training.checkpoint import Checkpoint, CheckpointFolder, Say, load_model_tensors
from sympformer.training.config import TrainConfig, load_config

CONFIG, MODEL, ENVIRONMENT, LOG, SAMPLES = "config.yaml", "model.json", "environment.json", "log.txt", "samples.jsonl"
TOKENIZER, CHECKPOINTS = "tokenizer", "checkpoints"


def is_run(folder: Path) -> bool:
    """Whether a folder holds a run."""
    return (folder / CONFIG).is_file()


def new_folder(config: TrainConfig) -> Path:
    """The folder a new run will have: `out`, or the next free name under runs/. It is not made yet."""
    if config.out is not None:
        folder = Path(config.out)
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            what = "holds a run: continue it with --resume" if is_run(folder) else "exists and is not empty: leave it"
            raise InputError(f"{folder} {what}, or choose another --out")
        return folder
    corpus = Path(config.data.folder or config.data.corpus).name
    model = config.model.get("variant", config.model.get("architecture", "model"))
    base = re.sub(r"[^a-zA-Z0-9]+", "-", f"{model}-{corpus}").strip("-").lower()
    names = (base if n == 1 else f"{base}-{n}" for n in range(1, 10**6))
    return next(folder for name in names if not (folder := Path("runs") / name).exists())


def create(folder: Path, config: TrainConfig, cfg: ModelConfig, prepared: Prepared) -> None:
    """Make the folder of a new run, whole or not at all."""
    with staged_folder(folder) as work:
        (work / TOKENIZER).mkdir()
        prepared.tokenizer.save(work / TOKENIZER)
        write_file(work / MODEL, cfg.to_json())
        _write_environment(work, provenance.environment() | _circumstances(prepared))
        write_file(work / CONFIG, config.to_yaml())


def _circumstances(prepared: Prepared) -> dict[str, Any]:
    return {
        "processes": int(os.environ.get("WORLD_SIZE", "1")),
        "data": {
            "folder": str(prepared.folder),
            "corpus": prepared.sheet.corpus["name"],
            "tokenizer": prepared.sheet.tokenizer,
            "sha256": {name: split.sha256 for name, split in prepared.sheet.splits.items()},
        },
    }


def read_environment(folder: Path) -> dict[str, Any]:
    """Where, by what code and on what data a run was made."""
    try:
        found = json.loads((folder / ENVIRONMENT).read_text(encoding="utf-8"))
        return {**found, "data": dict(found["data"])}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{folder / ENVIRONMENT} does not read: the run folder is damaged") from error


def _write_environment(folder: Path, environment: dict[str, Any]) -> None:
    write_file(folder / ENVIRONMENT, json.dumps(environment, indent=2) + "\n")


def run_codes(folder: Path) -> list[Code]:
    """The codes that trained a run, in order."""
    return codes_in(read_environment(folder))


def note_code(folder: Path) -> str | None:
    """Write down that this code takes a run on; a sentence where it is another one than before."""
    before, now = run_codes(folder)[-1], this_code()
    if before.source == now.source:
        return None
    environment = read_environment(folder)
    earlier = environment.get(CONTINUED, [])
    _write_environment(folder, environment | {CONTINUED: [*earlier, now.to_dict()]})
    return f"this code, {now.label}, is not the one that the run had so far, {before.label}: {ENVIRONMENT} keeps both"


def check_same_data(folder: Path, prepared: Prepared) -> None:
    """A run is continued on the very tokens it began with."""
    recorded = read_environment(folder)["data"].get("sha256")
    if recorded is None:
        raise InputError(
            f"the run in {folder} was imported without its optimizer state and tokens, so it cannot be continued; "
            "sample, eval, audit and export work on it"
        )
    if recorded != {name: split.sha256 for name, split in prepared.sheet.splits.items()}:
        raise InputError(f"the tokens in {prepared.folder} are not those that the run in {folder} began with")


@dataclass(frozen=True)
class TrainedRun:
    """The model of a run folder with its tokenizer."""

    folder: Path
    config: TrainConfig
    model: LanguageModel
    checkpoint: Checkpoint

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer the model was trained with."""
        return load_tokenizer(self.folder / TOKENIZER)

    def sample(self, prompt: str, max_new_tokens: int = 100, **options: Any) -> str:
        """Continue a text; see `sample_text`."""
        return sample_text(self.model, self.tokenizer, prompt, max_new_tokens, **options)


def load_run(folder: str | Path, which: str = "best", say: Say = lambda text: None) -> TrainedRun:
    """Open a run folder. which: the "best" weights by validation loss, or the "last"."""
    folder = Path(folder)
    if not is_run(folder):
        what = "holds no run" if folder.is_dir() else "does not exist"
        raise InputError(f"{folder} {what}: make one with 'sympformer train --out {folder}'")
    config, cfg = load_config(folder / CONFIG), ModelConfig.load(folder / MODEL)
    kinds = ("best", "step") if which == "best" else ("step", "best")
    checkpoint = CheckpointFolder(folder / CHECKPOINTS).newest(say, kinds)
    if checkpoint is None:
        raise InputError(f"{folder} has no usable checkpoint: continue the run with 'sympformer train --resume true'")
    model = build_model(cfg, seed=0)
    load_model_tensors(model, checkpoint.model, checkpoint.folder)
    return TrainedRun(folder, config, model.eval(), checkpoint)


def sample_text(
    model: LanguageModel,
    tokenizer: Tokenizer,
    prompt: str,
    max_new_tokens: int = 100,
    temperature: float = 0.8,
    top_k: int | None = None,
    top_p: float | None = None,
    seed: int | None = 0,
) -> str:
    """Continue a prompt until the end of the text, or for so many tokens, or as long as the model can see."""
    ids = tokenizer.encode(prompt) or [tokenizer.end_of_text]
    room = model.cfg.block_size - len(ids) + 1
    if room < 1 and model.cfg.overflow == "error":
        raise InputError(f"the prompt has {len(ids)} tokens and the model sees {model.cfg.block_size}; shorten it")
    new = max_new_tokens if model.cfg.overflow == "slide" else min(max_new_tokens, room)
    out = model.generate([ids], new, temperature, top_k, top_p, seed, stop_tokens=(tokenizer.end_of_text,))
    drawn = [i for i in out[0].tolist() if i < tokenizer.end_of_text]  # the end and padding ids have no text
    return tokenizer.decode(drawn)
