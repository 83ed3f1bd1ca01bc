"""A run folder: what it holds, and how to use the model in it. Nothing else is needed.

config.yaml  model.json  environment.json  tokenizer/  metrics.jsonl  metrics.csv  log.txt  samples.jsonl  checkpoints/
"""

import dataclasses
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sympformer import provenance
from sympformer.atomic import Taken, is_new, staged_folder, write_file
from sympformer.data import Tokenizer, load_tokenizer, open_tokens
from sympformer.data import Tokens as Prepared
from sympformer.data.tokenizers import TABLE
from sympformer.errors import InputError
from sympformer.locks import Busy, Lock
from sympformer.models import LanguageModel, ModelConfig, build_model
from sympformer.provenance import CONTINUED, Code, codes_in, this_code
from sympformer.safe_files import read_bytes, read_json, read_sealed, sealed, sha256
from sympformer.training import origin
from sympformer.training.checkpoint import (
    Checkpoint,
    CheckpointFolder,
    Progress,
    Say,
    load_model_tensors,
    model_tensors,
)
from sympformer.training.config import DEFAULT_VARIANT, UNKNOWN, DataConfig, TrainConfig, load_config
from sympformer.training.metrics import JSONL, records_sha256
from sympformer.training.sampling import sample_text

if TYPE_CHECKING:
    from sympformer.training.weights import Weights

CONFIG, MODEL, ENVIRONMENT, LOG, SAMPLES = "config.yaml", "model.json", "environment.json", "log.txt", "samples.jsonl"
TOKENIZER, CHECKPOINTS = "tokenizer", "checkpoints"
EXTENDED = "extended"  # in the environment: the budgets that a run was given later
MOST_LAYERS = 10_000  # of a model whose layers share their weights
TOKENIZER_FILES = (f"{TOKENIZER}/{TABLE}",)


def is_run(folder: Path) -> bool:
    """Whether a folder holds a run."""
    return (folder / CONFIG).is_file()


def check_new(config: TrainConfig) -> None:
    """Refuse an `out` that holds something."""
    if config.out is not None and not is_new(folder := Path(config.out)):
        what = "holds a run: continue it with --resume" if is_run(folder) else "exists and is not empty: leave it"
        raise InputError(f"{folder} {what}, or choose another --out")


def create(config: TrainConfig, cfg: ModelConfig, prepared: Prepared, weights: "Weights | None" = None) -> Lock:
    """Make the folder of a new run, whole or not at all: `out`, or a free name under runs/. It is locked from the
    beginning; the lock is on its config. Weights to begin with are its checkpoint of step 0, so that the run does not
    need the folder they came from any more.
    """
    begun = {} if weights is None else {"init_from": weights.about}
    for folder in [Path(config.out)] if config.out is not None else _free_names(config):
        try:
            with staged_folder(folder, last=CONFIG) as work:
                (work / TOKENIZER).mkdir()
                prepared.tokenizer.save(work / TOKENIZER)
                write_file(work / MODEL, cfg.to_json())
                write_file(work / CONFIG, config.to_yaml())
                if weights is not None:
                    CheckpointFolder(work / CHECKPOINTS).save(Progress(), model_tensors(weights.model), {})
                write_environment(
                    work, provenance.environment() | _circumstances(prepared) | begun | _mark(work / CONFIG)
                )
                lock = Lock(work / CONFIG)
        except Taken:  # by a run that began at the same time
            if config.out is not None:
                raise
        else:
            lock.path = folder / CONFIG
            return lock
    raise InputError("there are too many folders under runs/: choose a name with --out")


def _free_names(config: TrainConfig) -> Iterator[Path]:
    corpus = Path(config.data.folder or config.data.corpus).name
    model = config.model.get("variant") or config.model.get("stepper") or DEFAULT_VARIANT
    base = Path("runs") / (re.sub(r"[^a-zA-Z0-9]+", "-", f"{model}-{corpus}").strip("-").lower()[:100] or "run")
    names = (base if n == 1 else base.with_name(f"{base.name}-{n}") for n in range(1, 10**6))
    return (folder for folder in names if not os.path.lexists(folder))


def lock_run(folder: Path) -> Lock:
    """The lock of a run that is there: while one process trains in a folder, no other does."""
    try:
        return Lock(folder / CONFIG)
    except Busy:
        raise Busy(f"another process is training in {folder}: wait until it ends, or stop it") from None


def write_environment(folder: Path, values: dict[str, Any]) -> None:
    """Write where a run comes from, with the checksums of what must not change any more."""
    files = {name: sha256((folder / name).read_bytes()) for name in (CONFIG, MODEL, *TOKENIZER_FILES)}
    write_file(folder / ENVIRONMENT, sealed(values | {"files": files}, indent=2))


def check_seal(folder: Path, checkpoint: Checkpoint | None = None) -> None:
    """Refuse a run whose config, model, tokenizer or metrics are not those it was made with.

    A run from before there were checksums is taken as it is.
    """
    files = read_environment(folder).get("files", {})
    changed = [name for name in (CONFIG, MODEL, *TOKENIZER_FILES) if _changed(folder / name, files.get(name))]
    if checkpoint is not None and (kept := checkpoint.progress.metrics) is not None:
        changed += [JSONL] if records_sha256(folder / JSONL, checkpoint.progress.step) != kept else []
    if changed:
        raise InputError(f"{folder / changed[0]} is not as the run wrote it: put it back as it was")


def _changed(file: Path, checksum: str | None) -> bool:
    try:
        return checksum is not None and sha256(read_bytes(file)) != checksum
    except OSError as error:
        raise InputError(f"cannot read {file}: {error.strerror}") from error


def _mark(config: Path) -> dict[str, str]:
    """By which a run that was trained here is known, see `training.origin`."""
    made = origin.mark(config.read_bytes())
    return {} if made is None else {origin.MARK: made}


def _circumstances(prepared: Prepared) -> dict[str, Any]:
    return {
        "processes": int(os.environ.get("WORLD_SIZE", "1")),
        "data": {
            "folder": str(prepared.folder),
            "corpus": prepared.sheet.corpus,
            "tokenizer": prepared.sheet.tokenizer,
            "sha256": {name: split.sha256 for name, split in prepared.sheet.splits.items()},
        },
    }


def read_environment(folder: Path) -> dict[str, Any]:
    """Where, by what code and on what data a run was made."""
    try:
        found = read_sealed(folder / ENVIRONMENT)
        return {**found, "data": dict(found["data"])}
    except (KeyError, TypeError, ValueError) as error:
        why = f" ({error})" if isinstance(error, InputError) else ""
        raise InputError(f"{folder / ENVIRONMENT} does not read: the run folder is damaged{why}") from error


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
    write_file(folder / ENVIRONMENT, sealed(environment | {CONTINUED: [*earlier, now.to_dict()]}, indent=2))
    return f"this code, {now.label}, is not the one that the run had so far, {before.label}: {ENVIRONMENT} keeps both"


def budget(folder: Path) -> int | None:
    """The steps that a run was given after its beginning, if it was."""
    return max((int(given["steps"]) for given in read_environment(folder).get(EXTENDED, [])), default=None)


def note_budget(folder: Path, step: int, steps: int) -> None:
    """Write down that a run was given so many steps in all when it had done `step`."""
    environment = read_environment(folder)
    given = [*environment.get(EXTENDED, []), {"at": step, "steps": steps}]
    write_file(folder / ENVIRONMENT, sealed(environment | {EXTENDED: given}, indent=2))


def own_data(folder: Path, config: TrainConfig) -> DataConfig | None:
    """The text that a run was trained on, as far as that is known. A tokenizer that was not made for it is in the run
    itself; where it came from may be gone.
    """
    if config.data.corpus == UNKNOWN:
        return None
    own = config.data.folder is None and config.data.tokenizer.partition(":")[0] not in ("gpt2", "bpe", "byte")
    return dataclasses.replace(config.data, tokenizer=str(folder / TOKENIZER)) if own else config.data


def open_own_data(folder: Path, config: TrainConfig) -> Prepared:
    """The tokens of the text that a run was trained on."""
    data = own_data(folder, config)
    if data is None:
        raise InputError(
            f"{folder} was imported, and nobody wrote down on what text it was trained: score it with "
            f"'sympformer eval {folder} --text FILE'"
        )
    return open_tokens(data)


def check_resumable(folder: Path) -> None:
    """Refuse to continue what has no optimizer state."""
    if read_environment(folder)["data"].get("sha256") is None:
        raise InputError(
            f"the run in {folder} was imported, without its optimizer's state: it cannot be continued. Begin a new run "
            f"with its weights: sympformer train --init_from {folder} --data.corpus TEXT"
        )


def check_same_data(folder: Path, prepared: Prepared) -> None:
    """A run is continued on the very tokens it began with."""
    recorded = read_environment(folder)["data"].get("sha256")
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
    check_seal(folder)
    config, cfg = load_config(folder / CONFIG), ModelConfig.from_dict(read_json(folder / MODEL))
    kinds = ("best", "step") if which == "best" else ("step", "best")
    checkpoint = CheckpointFolder(folder / CHECKPOINTS).newest(say, kinds)
    if checkpoint is None:
        raise InputError(f"{folder} has no usable checkpoint: continue the run with 'sympformer train --resume'")
    check_seal(folder, checkpoint)
    check_fits(cfg, checkpoint)
    model = build_model(cfg, seed=0)
    load_model_tensors(model, checkpoint.model, checkpoint.folder)
    return TrainedRun(folder, config, model.eval(), checkpoint)


def check_fits(cfg: ModelConfig, checkpoint: Checkpoint) -> None:
    """Refuse a model that its weights cannot be of, before it is built: what a file says may be any size."""
    layers = len(checkpoint.model) if not cfg.share_layers else MOST_LAYERS
    numbers = sum(tensor.numel() for tensor in checkpoint.model.values())
    width = cfg.d_model * max(cfg.d_model, cfg.vocab_size, cfg.block_size)
    if cfg.n_layer > layers or width > numbers or (cfg.mlp_ratio or 0) * cfg.d_model**2 > numbers:
        raise InputError(f"the weights in {checkpoint.folder} belong to another model than the config beside them")
