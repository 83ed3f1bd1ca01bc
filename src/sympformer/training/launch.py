"""The training run: set it up or take it up again, step, evaluate, save, end with a sample.

Batches, learning rate and dropout are pure functions of seed and step, so that a resumed run is the same run.
"""

import errno
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from math import gcd
from pathlib import Path
from typing import TYPE_CHECKING

from sympformer.data import BlockSampler, Prepared, validation_blocks
from sympformer.errors import InputError
from sympformer.models import LanguageModel, ModelConfig, build_model
from sympformer.training import run as runs
from sympformer.training.checkpoint import CheckpointFolder, load_model_tensors
from sympformer.training.choices import choose_model, open_data
from sympformer.training.config import FREE_TO_CHANGE, TrainConfig, load_config
from sympformer.training.engine import leave_together, make_fabric, pick_device
from sympformer.training.reporter import Reporter
from sympformer.training.run_files import require_tensorboard
from sympformer.training.trainer import Trainer

if TYPE_CHECKING:
    from lightning_fabric import Fabric

FULL = (errno.ENOSPC, errno.EDQUOT)


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


def run_training(config: TrainConfig, resume: bool = False, bar: bool | None = None, echo: float = 0.0) -> TrainResult:
    """Train. resume: continue the run in `config.out` from its newest good checkpoint, with its own config.

    bar: show a progress line; None where stderr is a terminal.
    echo: seconds after a signal in which another one is the same wish.
    """
    if resume:
        config = stored_config(config)
    else:
        runs.check_new(config)
    pick_device(config)
    if config.tensorboard:
        require_tensorboard()
    # a run's own record of its model: an earlier version may have taken options that are refused now
    stored = ModelConfig.load(Path(str(config.out)) / runs.MODEL) if resume else None
    fabric = make_fabric(config, stored or choose_model(config.model))
    with fabric.rank_zero_first():
        prepared = open_data(config.data)
    cfg = stored or choose_model(config.model, prepared.tokenizer)
    check_sizes(config, cfg, prepared, fabric.world_size)
    with _claim(fabric, config, cfg, prepared, resume) as folder:
        result = _train(fabric, config, build_model(cfg, seed=config.seed), prepared, folder, bar, echo)
        leave_together(fabric)
    return result


@contextmanager
def _claim(fabric: "Fabric", config: TrainConfig, cfg: ModelConfig, prepared: Prepared, resume: bool) -> Iterator[Path]:
    """The run's folder, which no other run has meanwhile: a new one, or the one to resume."""
    lock = None
    if fabric.is_global_zero:  # it speaks for all processes
        lock = runs.lock_run(Path(str(config.out))) if resume else runs.create(config, cfg, prepared)
    try:
        folder = Path(fabric.broadcast("" if lock is None else str(lock.path.parent)))
        if resume:
            runs.check_same_data(folder, prepared)
        yield folder
    finally:
        if lock is not None:
            lock.release()


def stored_config(asked: TrainConfig) -> TrainConfig:
    """The config of the run to resume. Options given again must be the same, except those that change no result."""
    if asked.out is None:
        raise InputError("say which run to continue: --resume true --out RUN")
    folder = Path(asked.out)
    if not runs.is_run(folder):
        raise InputError(f"{folder} holds no run to continue; start one without --resume")
    stored, default = load_config(folder / runs.CONFIG), TrainConfig()
    for name in asked.differences(stored):
        if name in asked.differences(default):
            raise InputError(
                f"the run in {folder} has {name} = {getattr(stored, name)!r}, not {getattr(asked, name)!r}: "
                "leave the option out to continue the run, or start a new one with another --out"
            )
    given = (name for name in FREE_TO_CHANGE if getattr(asked, name) != getattr(default, name))
    return stored.replace(**{name: getattr(asked, name) for name in given})


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
    fabric: "Fabric",
    config: TrainConfig,
    model: LanguageModel,
    prepared: Prepared,
    folder: Path,
    bar: bool | None,
    echo: float = 0.0,
) -> TrainResult:
    reporter = Reporter(config.total_steps(model.cfg.block_size), not fabric.is_global_zero, bar)
    checkpoints = CheckpointFolder(folder / runs.CHECKPOINTS, config.keep_last)
    trainer: Trainer | None = None
    try:
        reporter.open_log(folder / runs.LOG)
        if fabric.is_global_zero:
            checkpoints.clean()
        checkpoint = checkpoints.newest(reporter.say)
        runs.check_seal(folder, checkpoint)
        if checkpoint is not None:
            load_model_tensors(model, checkpoint.model, checkpoint.folder)
        fabric.barrier()  # what all have looked at changes now
        trainer = Trainer(fabric, config, model, prepared, checkpoints, reporter, checkpoint)
        if fabric.is_global_zero and trainer.progress.step < trainer.total and (other := runs.note_code(folder)):
            reporter.say(other)
        stopped_by = trainer.run(echo)
        return TrainResult(
            folder,
            trainer.progress.step,
            trainer.total,
            trainer.validation_loss,
            trainer.progress.best_loss,
            trainer.last_sample,
            stopped_by,
            fabric.global_rank,
        )
    except (OSError, InputError) as error:
        if not _is_full(error):
            raise
        usable = checkpoints.steps("step")
        last = f"the checkpoint of step {usable[-1]} is usable" if usable else "there is no checkpoint yet"
        raise InputError(
            f"the disk of {folder} is full; {last}: free some space and continue "
            f"(train --resume true --out {folder}, or the same compare again)"
        ) from error
    finally:
        with suppress(OSError):
            reporter.close()
        if trainer is not None:
            with suppress(OSError):
                trainer.close()


def _is_full(error: BaseException | None) -> bool:
    """Whether an error, or the one behind it, says that the disk is full."""
    if isinstance(error, OSError) and error.errno in FULL:
        return True
    return isinstance(error, InputError) and _is_full(error.__cause__)
