"""A training run from top to bottom: set it up or take it up again, step, evaluate, save, end with a sample.

Batches, learning rate and dropout are pure functions of seed and step, so that a resumed run is the same run.
"""

import dataclasses
import errno
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from math import gcd
from pathlib import Path
from typing import Any

from sympformer.config_checks import check_names
from sympformer.data import Tokens, open_tokens
from sympformer.errors import InputError
from sympformer.files import check_new, tidy
from sympformer.models import ModelConfig, build_model, variant
from sympformer.models.folder import CONFIG, WEIGHTS
from sympformer.provenance import this_code
from sympformer.training.checkpoint import FOLDER as CHECKPOINTS
from sympformer.training.checkpoint import Checkpoints, best_step, load_model_tensors
from sympformer.training.config import (
    DEFAULT_TOKENS,
    DEFAULT_VARIANT,
    FREE_TO_CHANGE,
    DataConfig,
    TrainConfig,
    choose_model,
)
from sympformer.training.engine import Engine, pick_device
from sympformer.training.folder import RECORD, Opened, RunFolder, is_run, stored_model
from sympformer.training.report import Reporter, require_tensorboard
from sympformer.training.trainer import Trainer, texts

FULL = (errno.ENOSPC, errno.EDQUOT)
BUDGET = ("steps", "tokens")
FREE = ("dropout", "overflow")  # options of a model that its weights do not depend on
KIND = ("stepper", "attention", "integrator")  # what a variant's name says


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


def train(
    config: TrainConfig,
    resume: bool = False,
    given: Mapping[str, Any] | None = None,
    bar: bool | None = None,
    echo: float = 0.0,
) -> TrainResult:
    """Train. resume: continue the run in `config.out` from its newest good checkpoint, with its own config.

    given: the options that were named, by dotted name; None: those that are not as by default.
    bar: show a progress line; None where stderr is a terminal.
    echo: seconds after a signal in which another one is the same wish.
    """
    run, begun = None, None
    if resume:
        run = _run_to_resume(config)
        config = resumed(run, config.named() if given is None else given)
    else:
        config, begun = _begun(config)
    pick_device(config)
    if config.tensorboard:
        require_tensorboard()
    if run is None:
        choose_model(config.model)  # what it refuses is refused before the text is read
    # before the processes are a group: they meet at the lock of the tokens, and none waits in a collective
    prepared = open_tokens(config.data) if run is None else run.tokens()
    if begun is not None:
        _check_tokens(begun, prepared)
    cfg = choose_model(config.model, prepared.tokenizer) if run is None else run.cfg
    engine = Engine(config)
    texts(config, cfg.block_size, prepared)
    if config.global_batch() % (engine.world * config.accumulate // gcd(engine.world, config.accumulate)):
        raise InputError(
            f"{engine.world} processes cannot share a batch of {config.global_batch()} equally; "
            "make batch_size or accumulate a multiple of the number of processes"
        )
    if engine.first and run is None:  # it speaks for all processes
        run = RunFolder.create(config, cfg, prepared, begun)
    with _claimed(run) if engine.first and run is not None else nullcontext():
        run = RunFolder(Path(engine.told("" if run is None else str(run.path))))
        result = _train(engine, config, cfg, prepared, run, bar, echo)
        engine.leave()
    return result


# --- a new run


def _begun(config: TrainConfig) -> tuple[TrainConfig, Opened | None]:
    """The config of a new run in full, and the model it begins with if it names one."""
    if config.out is not None:
        if is_run(folder := Path(config.out)):
            raise InputError(f"{folder} holds a run: continue it with --resume, or choose another --out")
        check_new(folder)
    if config.steps is None and config.tokens is None:
        config = config.replace(tokens=DEFAULT_TOKENS)
    if config.init_from is None:
        return config, None
    begun = stored_model(Path(config.init_from))
    return _fitted(config, begun), begun


def _fitted(config: TrainConfig, begun: Opened) -> TrainConfig:
    """The config of a run that begins with a model: its own and its tokenizer take the place of what was chosen.

    Options that ask for another model or tokenizer are refused; dropout and overflow may be others.
    """
    where, cfg, tokenizer = f"the model in {config.init_from}", begun.model.cfg, begun.tokenizer
    if tokenizer is None:
        raise InputError(f"{where} has no tokenizer: save it beside the weights")
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
    cfg = cfg.replace(**{option: options[option] for option in FREE if option in options})
    data = config.data
    if data.folder is None:
        if data.tokenizer not in (DataConfig.tokenizer, tokenizer.name, str(begun.folder)):
            raise InputError(
                f"{where} has the tokenizer {tokenizer.name}, not {data.tokenizer}: leave out data.tokenizer"
            )
        data = dataclasses.replace(data, tokenizer=str(begun.folder))
    return config.replace(model=cfg.to_dict(), data=data)


def _check_tokens(begun: Opened, prepared: Tokens) -> None:
    """Refuse tokens whose ids mean something else to the model."""
    if begun.tokenizer.fingerprint != prepared.tokenizer.fingerprint:
        raise InputError(
            f"the tokens in {prepared.folder} were made by {prepared.tokenizer.name}, another tokenizer than that of "
            f"the model in {begun.folder}: give the text as data.corpus, and it is prepared with the model's own"
        )


# --- a run that is taken up again


def _run_to_resume(asked: TrainConfig) -> RunFolder:
    if asked.out is None:
        raise InputError("say which run to continue: --resume --out RUN")
    folder = Path(asked.out)
    if not is_run(folder):
        other = f", or begin with the model there: --init_from {folder}" if (folder / CONFIG).is_file() else ""
        raise InputError(f"{folder} holds no run to continue; start one without --resume{other}")
    return RunFolder.open(folder)


def resumed(run: RunFolder, given: Mapping[str, Any]) -> TrainConfig:
    """The run's own config. Options that are given again must be the same, except those that change no result, and
    the budget, which may be larger.
    """
    stored = run.config
    kept = stored.flat()
    for name, value in given.items():
        if name in FREE_TO_CHANGE or name in BUDGET or (name not in kept and "." not in name):
            continue
        own = kept.get(name, getattr(run.cfg, name.removeprefix("model."), None))
        if value != own:
            raise InputError(
                f"the run in {run.path} has {name} = {own!r}, not {value!r}: "
                "leave the option out to continue the run, or start a new one with another --out"
            )
    free = {name: given[name] for name in FREE_TO_CHANGE if name in given}
    asked = {name: given.get(name) for name in BUDGET}
    if any(asked.values()):
        before = stored.total_steps(run.cfg.block_size)
        wanted = stored.replace(**asked).total_steps(run.cfg.block_size)
        if wanted < before:
            raise InputError(
                f"the run in {run.path} has {before:,} steps to do, and {wanted:,} are asked for: that can only grow"
            )
        if wanted > before:
            free |= {"steps": wanted, "tokens": None}
    return stored.replace(**free | {"out": str(run.path)})


# --- either


@contextmanager
def _claimed(run: RunFolder) -> Iterator[None]:
    """No other process has the run's folder meanwhile, and what a killed one left half-written is gone."""
    with run.locked():
        for place in (run.path, run.path / CHECKPOINTS):
            tidy(place)
        yield


def _train(
    engine: Engine,
    config: TrainConfig,
    cfg: ModelConfig,
    prepared: Tokens,
    run: RunFolder,
    bar: bool | None,
    echo: float,
) -> TrainResult:
    model = build_model(cfg, seed=config.seed)
    checkpoints = Checkpoints(run.path, config.keep_last)
    reporter = Reporter(run.path, config.total_steps(cfg.block_size), not engine.first, bar)
    try:
        checkpoint = checkpoints.newest(reporter.say)
        if checkpoint is not None:
            load_model_tensors(model, checkpoint.model, checkpoint.folder)
        trainer = Trainer(engine, config, model, prepared, checkpoints, reporter, checkpoint)
        _take_on(engine, run, trainer, reporter)
        stopped_by = trainer.run(echo)
        done, best = trainer.progress.step, trainer.progress.best_loss
        figures = (trainer.validation_loss, best, trainer.last_sample)
        return TrainResult(run.path, done, trainer.total, *figures, stopped_by, engine.rank)
    except (OSError, InputError) as error:
        if not _is_full(error):
            raise
        usable = checkpoints.steps()
        last = f"the checkpoint of step {usable[-1]} is usable" if usable else "there is no checkpoint yet"
        raise InputError(
            f"the disk of {run.path} is full; {last}: free some space and continue "
            f"(train --resume --out {run.path}, or the same compare again)"
        ) from error
    finally:
        with suppress(OSError):
            reporter.close()


def _take_on(engine: Engine, run: RunFolder, trainer: Trainer, reporter: Reporter) -> None:
    """Write down by whom, and how far, a run is taken on, where either is new; and say so.

    Best weights that lie ahead of the checkpoint are on a path that a larger budget leaves.
    """
    progress, total = trainer.progress, trainer.total
    before, best, code = run.config.total_steps(trainer.model.cfg.block_size), best_step(run.path), run.codes[-1]
    left = total > before and best is not None and best > progress.step
    if left:
        progress.best_loss = progress.best_step = None
    engine.wait()  # what all have looked at changes now
    if not engine.first or progress.step >= total:
        return
    if code.source != this_code().source:
        run.note("codes", this_code().to_dict())
        reporter.say(
            f"this code, {this_code().label}, is not the one that the run had so far, {code.label}: {RECORD} keeps both"
        )
    if left:
        (run.path / WEIGHTS).unlink(missing_ok=True)
        reporter.say("the best weights were made after this checkpoint, under the smaller budget: they are dropped")
    if total > before:
        run.note("budgets", {"at": progress.step, "steps": total})
        reporter.say(
            f"the budget grows from {before:,} to {total:,} steps, and the rate follows the cosine of {total:,} steps "
            f"from step {progress.step:,} on: it is {trainer.learning_rate(progress.step):.3g} now, and falls again"
        )


def _is_full(error: BaseException | None) -> bool:
    """Whether an error, or the one behind it, says that the disk is full."""
    if isinstance(error, OSError) and error.errno in FULL:
        return True
    return isinstance(error, InputError) and _is_full(error.__cause__)
