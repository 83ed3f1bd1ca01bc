"""The training run: set it up or take it up again, step, evaluate, save, end with a sample.

Batches, learning rate and dropout are pure functions of seed and step, so that a resumed run is the same run.
"""

import errno
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from math import gcd
from pathlib import Path

from sympformer.data import BlockSampler, load_tokenizer, open_tokens, validation_blocks
from sympformer.data import Tokens as Prepared
from sympformer.errors import InputError
from sympformer.models import LanguageModel, ModelConfig, build_model
from sympformer.training import run as runs
from sympformer.training.checkpoint import CheckpointFolder, load_model_tensors
from sympformer.training.choices import choose_model
from sympformer.training.config import DEFAULT_TOKENS, FREE_TO_CHANGE, TrainConfig, load_config
from sympformer.training.engine import Engine, pick_device
from sympformer.training.origin import check_data
from sympformer.training.reporter import Reporter
from sympformer.training.run_files import require_tensorboard
from sympformer.training.trainer import Trainer
from sympformer.training.weights import Weights, check_tokens, fitted, open_weights

FULL = (errno.ENOSPC, errno.EDQUOT)
BUDGET = ("steps", "tokens")


@dataclass(frozen=True)
class TrainResult:
    """What a run came to. stopped_by: the signal that ended it early."""

    folder: Path
    steps: int
    total_steps: int
    validation_loss: float | None
    best_loss: float | None
    sample: str | None
    stopped_by: int | None = None
    rank: int = 0  # of the process among several; the first one speaks for all


def run_training(
    config: TrainConfig,
    resume: bool = False,
    bar: bool | None = None,
    echo: float = 0.0,
    trust_data: bool = False,
) -> TrainResult:
    """Train. resume: continue the run in `config.out` from its newest good checkpoint, with its own config.

    bar: show a progress line; None where stderr is a terminal.
    echo: seconds after a signal in which another one is the same wish.
    trust_data: open what a run from elsewhere names as its data, also where `config` does not name it too.
    """
    weights: Weights | None = None
    if resume:
        asked, config = config, stored_config(config)
        runs.check_resumable(Path(str(config.out)))
        check_data(Path(str(config.out)), trust=trust_data or asked.data == config.data)
    else:
        runs.check_new(config)
        config, weights = _begun(config)
    pick_device(config)
    if config.tensorboard:
        require_tensorboard()
    # a run's own record of its model: an earlier version may have taken options that are refused now
    stored = ModelConfig.load(Path(str(config.out)) / runs.MODEL) if resume else None
    if stored is None:
        choose_model(config.model)  # what it refuses is refused before the text is read
    # before the processes meet: they wait at a file lock, not in a collective that times out
    prepared = runs.open_own_data(Path(str(config.out)), config) if resume else open_tokens(config.data)
    engine = Engine(config)
    if weights is not None:
        check_tokens(weights, prepared.tokenizer, prepared.folder)
    cfg = stored or choose_model(config.model, prepared.tokenizer)
    check_sizes(config, cfg, prepared, engine.world)
    with _claim(engine, config, cfg, prepared, resume, weights) as folder:
        result = _train(engine, config, build_model(cfg, seed=config.seed), prepared, folder, bar, echo)
        engine.leave()
    return result


def _begun(config: TrainConfig) -> tuple[TrainConfig, Weights | None]:
    """The config of a new run in full, and the weights it begins with if it names some."""
    if config.steps is None and config.tokens is None:
        config = config.replace(tokens=DEFAULT_TOKENS)
    if config.init_from is None:
        return config, None
    weights = open_weights(config.init_from, say=lambda text: print(text, file=sys.stderr))
    return fitted(config, weights.model.cfg, weights.tokenizer, weights.tokenizer_folder), weights


@contextmanager
def _claim(
    engine: Engine,
    config: TrainConfig,
    cfg: ModelConfig,
    prepared: Prepared,
    resume: bool,
    weights: Weights | None = None,
) -> Iterator[Path]:
    """The run's folder, which no other run has meanwhile: a new one, or the one to resume."""
    lock = None
    if engine.first:  # it speaks for all processes
        lock = runs.lock_run(Path(str(config.out))) if resume else runs.create(config, cfg, prepared, weights)
    try:
        folder = Path(engine.told("" if lock is None else str(lock.path.parent)))
        if resume:
            runs.check_same_data(folder, prepared)
        yield folder
    finally:
        if lock is not None:
            lock.release()


def stored_config(asked: TrainConfig) -> TrainConfig:
    """The config of the run to resume. Options given again must be the same, except those that change no result, and
    the budget, which may be larger.
    """
    if asked.out is None:
        raise InputError("say which run to continue: --resume --out RUN")
    folder = Path(asked.out)
    if not runs.is_run(folder):
        exported = (
            f", or begin with the model there: --init_from {folder}" if (folder / "config.json").is_file() else ""
        )
        raise InputError(f"{folder} holds no run to continue; start one without --resume{exported}")
    stored, default = load_config(folder / runs.CONFIG), TrainConfig()
    asked = _as_begun(asked, stored, folder)
    for name in asked.differences(stored):
        if name in asked.differences(default) and name not in BUDGET:
            raise InputError(
                f"the run in {folder} has {name} = {getattr(stored, name)!r}, not {getattr(asked, name)!r}: "
                "leave the option out to continue the run, or start a new one with another --out"
            )
    given = (name for name in FREE_TO_CHANGE if getattr(asked, name) != getattr(default, name))
    return _with_budget(stored, asked, folder).replace(**{name: getattr(asked, name) for name in given})


def _as_begun(asked: TrainConfig, stored: TrainConfig, folder: Path) -> TrainConfig:
    """What was asked for again, where the weights that the run began with took the place of some of it."""
    if asked.init_from is None or asked.init_from != stored.init_from:
        return asked
    tokenizer = load_tokenizer(folder / runs.TOKENIZER)
    return fitted(asked, ModelConfig.load(folder / runs.MODEL), tokenizer, Path(stored.data.tokenizer))


def _with_budget(stored: TrainConfig, asked: TrainConfig, folder: Path) -> TrainConfig:
    """The stored config with the run's latest budget, or with a larger one that is asked for."""
    later = runs.budget(folder)
    stored = stored if later is None else stored.replace(steps=later)
    if asked.steps is None and asked.tokens is None:
        return stored
    block_size = ModelConfig.load(folder / runs.MODEL).block_size
    before = stored.total_steps(block_size)
    wanted = stored.replace(steps=asked.steps, tokens=asked.tokens).total_steps(block_size)
    if wanted < before:
        raise InputError(
            f"the run in {folder} has {before:,} steps to do, and {wanted:,} are asked for: that can only grow"
        )
    return stored if wanted == before else stored.replace(steps=wanted)


def check_sizes(config: TrainConfig, cfg: ModelConfig, prepared: Prepared, world: int) -> None:
    """Whether the batch can be shared and the text is long enough, before anything is written."""
    BlockSampler(prepared.tokens("train"), cfg.block_size, config.global_batch(), config.seed)
    validation_blocks(prepared.tokens("validation"), cfg.block_size, config.eval_tokens)
    if config.global_batch() % (world * config.accumulate // gcd(world, config.accumulate)):
        raise InputError(
            f"{world} processes cannot share a batch of {config.global_batch()} equally; "
            "make batch_size or accumulate a multiple of the number of processes"
        )


def _train(
    engine: Engine,
    config: TrainConfig,
    model: LanguageModel,
    prepared: Prepared,
    folder: Path,
    bar: bool | None,
    echo: float = 0.0,
) -> TrainResult:
    reporter = Reporter(config.total_steps(model.cfg.block_size), not engine.first, bar)
    checkpoints = CheckpointFolder(folder / runs.CHECKPOINTS, config.keep_last)
    trainer: Trainer | None = None
    try:
        reporter.open_log(folder / runs.LOG)
        if engine.first:
            checkpoints.clean()
        checkpoint = checkpoints.newest(reporter.say)
        runs.check_seal(folder, checkpoint)
        if checkpoint is not None:
            load_model_tensors(model, checkpoint.model, checkpoint.folder)
        engine.wait()  # what all have looked at changes now
        trainer = Trainer(engine, config, model, prepared, checkpoints, reporter, checkpoint)
        if engine.first and trainer.progress.step < trainer.total:
            _note(folder, trainer, reporter)
        stopped_by = trainer.run(echo)
        return TrainResult(
            folder,
            trainer.progress.step,
            trainer.total,
            trainer.validation_loss,
            trainer.progress.best_loss,
            trainer.last_sample,
            stopped_by,
            engine.rank,
        )
    except (OSError, InputError) as error:
        if not _is_full(error):
            raise
        usable = checkpoints.steps("step")
        last = f"the checkpoint of step {usable[-1]} is usable" if usable else "there is no checkpoint yet"
        raise InputError(
            f"the disk of {folder} is full; {last}: free some space and continue "
            f"(train --resume --out {folder}, or the same compare again)"
        ) from error
    finally:
        with suppress(OSError):
            reporter.close()
        if trainer is not None:
            with suppress(OSError):
                trainer.close()


def _note(folder: Path, trainer: Trainer, reporter: Reporter) -> None:
    """Write down by whom, and how far, a run is taken on, where either is new; and say so."""
    if other := runs.note_code(folder):
        reporter.say(other)
    step, total, block_size = trainer.progress.step, trainer.total, trainer.model.cfg.block_size
    before = runs.budget(folder) or load_config(folder / runs.CONFIG).total_steps(block_size)
    if total > before:
        runs.note_budget(folder, step, total)
        reporter.say(
            f"the budget grows from {before:,} to {total:,} steps, and the rate follows the cosine of {total:,} steps "
            f"from step {step:,} on: it is {trainer.learning_rate(step):.3g} now, and falls again"
        )


def _is_full(error: BaseException | None) -> bool:
    """Whether an error, or the one behind it, says that the disk is full."""
    if isinstance(error, OSError) and error.errno in FULL:
        return True
    return isinstance(error, InputError) and _is_full(error.__cause__)
