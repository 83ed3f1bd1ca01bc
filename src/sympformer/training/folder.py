"""A run's folder: a model that transformers loads, with the run's records beside it. Nothing else is needed.

config.json  model.safetensors  tokenizer.json  tokenizer_config.json  generation_config.json
train.yaml  run.json  metrics.jsonl  samples.jsonl  log.txt  [tensorboard/]
checkpoints/step-00000100/  model.safetensors  optimizer.safetensors  state.json  manifest.json
"""

import dataclasses
import json
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from sympformer import provenance
from sympformer.data import Tokenizer, Tokens, open_tokens
from sympformer.data.tokenizers import END_OF_TEXT, TABLE
from sympformer.errors import InputError
from sympformer.files import Busy, checked, locked, manifest, new_folder, read_json, write
from sympformer.models import LanguageModel, ModelConfig
from sympformer.models.folder import CONFIG, WEIGHTS, build_from, config_files, is_own, read_config
from sympformer.models.foreign import logits_of
from sympformer.provenance import Code, code_in, this_code
from sympformer.training.checkpoint import Checkpoints, Progress, Say, digest, model_tensors, read_best
from sympformer.training.config import DEFAULT_VARIANT, DataConfig, TrainConfig, load_config
from sympformer.training.sampling import sample_text

TRAIN, RECORD, METRICS, SAMPLES, LOG = "train.yaml", "run.json", "metrics.jsonl", "samples.jsonl", "log.txt"
Kind = Literal["variant", "run", "hf", "factory"]
SEALED = (CONFIG, TRAIN, TABLE)  # what must not change any more
TIMED = ("seconds", "tokens_per_second", "memory_mb")  # of the metrics: differ from run to run of the same config


def is_run(folder: Path) -> bool:
    """Whether a folder holds a run."""
    return (folder / RECORD).is_file()


@dataclass(frozen=True)
class RunFolder:
    """A run by its folder."""

    path: Path

    @classmethod
    def open(cls, place: str | Path) -> "RunFolder":
        """The run in a folder; what must not change has not changed."""
        run = cls(Path(place))
        if not is_run(run.path):
            raise _nothing(run.path, "run")
        try:
            checked(run.path, run.record["files"])
        except InputError as error:
            raise InputError(f"{error}: put it back as the run wrote it") from error
        except (KeyError, TypeError, AttributeError) as error:
            raise InputError(f"{run.path / RECORD} is damaged: it lacks the checksums of the run's files") from error
        return run

    @classmethod
    def create(cls, config: TrainConfig, cfg: ModelConfig, prepared: Tokens, begun: "Opened | None") -> "RunFolder":
        """Make the folder of a new run, whole or not at all: `out`, or a free name under runs/. Weights to begin with
        are its checkpoint of step 0, so that the run does not need the folder they came from any more.
        """
        for folder in _free_names(config) if config.out is None else [Path(config.out)]:
            try:
                with new_folder(folder) as work:
                    _fill(work, config, cfg, prepared, begun)
                return cls(folder)
            except Busy:  # a run that began at the same time has the name
                if config.out is not None:
                    raise
        raise InputError("there are too many folders under runs/: choose a name with --out")

    @contextmanager
    def locked(self) -> Iterator[None]:
        """While one process trains in a folder, no other does."""
        try:
            with locked(self.path / RECORD):
                yield
        except Busy:
            raise Busy(f"another process is training in {self.path}: wait until it ends, or stop it") from None

    @property
    def record(self) -> dict[str, Any]:
        """Where, by what code and on what data the run was made."""
        return read_json(self.path / RECORD)

    @property
    def config(self) -> TrainConfig:
        """Its recipe, with the latest budget."""
        config, given = load_config(self.path / TRAIN), self.record["budgets"]
        return config.replace(steps=given[-1]["steps"], tokens=None) if given else config

    @cached_property
    def cfg(self) -> ModelConfig:
        """Its model's config."""
        return read_config(self.path)

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer that the model was trained with."""
        return Tokenizer.load(self.path)

    @property
    def codes(self) -> list[Code]:
        """The codes that trained it, in order."""
        return [code_in(code) for code in self.record["codes"]]

    @property
    def checkpoints(self) -> Checkpoints:
        """What it can be continued from."""
        return Checkpoints(self.path)

    def metrics(self) -> list[dict[str, Any]]:
        """All whole lines of metrics."""
        return read_records(self.path / METRICS)

    def data(self) -> DataConfig:
        """Its text. A tokenizer that was not made for it is in the run itself; where it came from may be gone."""
        data = self.config.data
        named = data.tokenizer == "byte" or data.tokenizer.partition(":")[0] in ("bpe", "gpt2")
        return data if named or data.folder is not None else dataclasses.replace(data, tokenizer=str(self.path))

    def tokens(self) -> Tokens:
        """Its tokens: those that it began with. A path, which may be a stranger's, is told before it is read."""
        data = self.data()
        if (place := data.folder or data.corpus).partition(":")[0] != "storybook":
            print(f"{self.path} names {place} as its text", file=sys.stderr)
        prepared = open_tokens(data)
        if self.record["data"]["sha256"] != _checksums(prepared):
            raise InputError(f"the tokens in {prepared.folder} are not those that the run in {self.path} began with")
        return prepared

    def note(self, name: str, value: dict[str, Any]) -> None:
        """Add to a list in the record."""
        record = self.record
        write(self.path / RECORD, json.dumps(record | {name: [*record[name], value]}, indent=2))


def _fill(work: Path, config: TrainConfig, cfg: ModelConfig, prepared: Tokens, begun: "Opened | None") -> None:
    prepared.tokenizer.save(work)
    files = config_files(cfg, prepared.tokenizer.end_of_text) | tokenizer_config(cfg.block_size)
    for name, content in (files | {TRAIN: config.to_yaml()}).items():
        (work / name).write_text(content, encoding="utf-8")
    if begun is not None:
        Checkpoints(work).save(Progress(), model_tensors(begun.model), {})
    sheet = prepared.sheet
    data = {"corpus": sheet.corpus, "sources": sheet.sources, "folder": str(prepared.folder.absolute())}
    record = {
        "codes": [this_code().to_dict()],
        "budgets": [],
        **provenance.environment(),
        "processes": int(os.environ.get("WORLD_SIZE", "1")),
        "data": data | {"sha256": _checksums(prepared), "tokenizer": sheet.tokenizer},
        "init_from": None if begun is None else begun.about,
        "files": manifest(work, SEALED),
    }
    (work / RECORD).write_text(json.dumps(record, indent=2), encoding="utf-8")


def _free_names(config: TrainConfig) -> Iterator[Path]:
    corpus = Path(config.data.folder or config.data.corpus).name
    model = config.model.get("variant") or config.model.get("stepper") or DEFAULT_VARIANT
    name = re.sub(r"[^a-zA-Z0-9]+", "-", f"{model}-{corpus}").strip("-").lower()[:100] or "run"
    names = (Path("runs") / f"{name}{'' if n == 1 else f'-{n}'}" for n in range(1, 10**6))
    return (folder for folder in names if not os.path.lexists(folder))


def _checksums(prepared: Tokens) -> dict[str, str]:
    return {name: split.sha256 for name, split in prepared.sheet.splits.items()}


def tokenizer_config(block_size: int) -> dict[str, str]:
    """What transformers' AutoTokenizer wants beside the table: file name -> content.

    As in our own, the end-of-text token in a text is plain text. It also starts and pads texts: a model has seen it
    before every document, and padding is masked. Padding goes to the left, for generation.
    """
    special = dict.fromkeys(("bos_token", "eos_token", "pad_token"), END_OF_TEXT)
    options = {"split_special_tokens": True, "clean_up_tokenization_spaces": False, "padding_side": "left"}
    whole = {"tokenizer_class": "PreTrainedTokenizerFast", **special, **options, "model_max_length": block_size}
    return {"tokenizer_config.json": json.dumps(whole, indent=2) + "\n"}


def read_records(file: Path) -> list[dict[str, Any]]:
    """All whole records of a .jsonl file; a line cut short by a crash is left out."""
    found = []
    for line in file.read_text(encoding="utf-8", errors="replace").split("\n") if file.exists() else ():
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(record, dict) and type(record.get("step")) is int:
            found.append(record)
    return found


# --- trained models of this package, wherever they lie


@dataclass(frozen=True)
class Opened:
    """A language model ready to be used, in eval mode."""

    name: str
    kind: Kind
    model: Any  # a torch module from ids to logits, our own `LanguageModel` or anyone's
    tokenizer: Any  # with encode(text), decode(ids) and end_of_text; None where there is none
    vocab_size: int
    block_size: int | None
    folder: Path | None = None
    step: int | None = None  # of a run
    about: dict[str, Any] = field(default_factory=dict)  # where the weights come from

    @torch.no_grad()
    def logits(self, idx: Tensor) -> Tensor:
        """(B, T) ids -> (B, T, V), whatever the model returns."""
        return logits_of(self.model)(idx)

    def sample(self, prompt: str, max_new_tokens: int = 100, **options: Any) -> str:
        """Continue a text, with a trained model of this package; see `sample_text`."""
        return sample_text(*self.ours(), prompt, max_new_tokens, **options)

    def ours(self) -> tuple[LanguageModel, Tokenizer]:
        """Model and tokenizer, where they are of this package."""
        if not isinstance(self.model, LanguageModel):
            raise InputError(f"{self.name} is a {type(self.model).__name__}: this needs a model of this package")
        if not isinstance(self.tokenizer, Tokenizer):
            raise InputError(f"{self.name} has no tokenizer: name a run folder, or one that 'sympformer export' wrote")
        return self.model, self.tokenizer


def stored_model(folder: Path, which: str = "best", say: Say = lambda text: print(text, file=sys.stderr)) -> Opened:
    """The model of a run (its "best" weights by validation loss so far, or its "last"), or of another folder of ours.

    A run that has no best weights yet, or damaged ones, gives its last, and the other way round.
    """
    if not is_model(folder):
        raise _nothing(folder, "model of this package")
    if not is_run(folder) and which != "best":
        raise InputError(f"{folder} is a Hugging Face folder with one set of weights: leave out --which")
    if is_run(folder):
        RunFolder.open(folder)
    cfg = read_config(folder)
    step, tensors = _read(folder, cfg, which, say) if is_run(folder) else (None, read_best(folder, cfg)[0])
    model = build_from(cfg, tensors, folder)
    tokenizer = Tokenizer.load(folder) if (folder / TABLE).is_file() else None
    about = {"folder": str(folder), "step": step, "sha256": digest(tensors)}
    kind: Kind = "run" if is_run(folder) else "hf"
    return Opened(str(folder), kind, model, tokenizer, cfg.vocab_size, cfg.block_size, folder, step, about)


def _read(folder: Path, cfg: ModelConfig, which: str, say: Say) -> tuple[int, dict[str, Any]]:
    """Step and weights of a run."""
    for kind in ("best", "last") if which == "best" else ("last", "best"):
        if kind == "last" and (checkpoint := Checkpoints(folder).newest(say)) is not None:
            return checkpoint.progress.step, checkpoint.model
        if kind == "best" and (folder / WEIGHTS).is_file():
            try:
                tensors, about = read_best(folder, cfg)
                return int(about["step"]), tensors
            except (InputError, KeyError, ValueError) as error:
                say(f"{error}; it is passed over")
    raise InputError(f"{folder} has no usable checkpoint: continue the run with 'sympformer train --resume'")


def is_model(folder: Path) -> bool:
    """Whether a folder holds a model of this package, a run's or another."""
    return is_run(folder) or is_own(folder)


def _nothing(folder: Path, what: str) -> InputError:
    found = f"holds no {what}" if folder.is_dir() else "does not exist"
    return InputError(f"{folder} {found}: make one with 'sympformer train --out {folder}'")
