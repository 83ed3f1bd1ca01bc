"""A training run from top to bottom: set it up or take it up again, step, evaluate, save, end with a sample.

Batches, learning rate and dropout are pure functions of seed and step, so that a resumed run is the same run.
"""

import dataclasses
import errno
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from math import gcd
from pathlib import Path
from typing import Any

from sympformer.config_checks import check_names
from sympformer.data import BlockSampler, Tokens, open_tokens, validation_blocks
from sympformer.errors import InputError
from sympformer.files import check_new, tidy
from sympformer.models import ModelConfig, build_model, variant
from sympformer.models.folder import CONFIG, WEIGHTS
from sympformer.training.checkpoint import FOLDER as CHECKPOINTS
from sympformer.training.checkpoint import Checkpoints, Progress, best_step, load_model_tensors
from sympformer.training.choices import choose_model
from sympformer.training.config import DEFAULT_TOKENS, DEFAULT_VARIANT, FREE_TO_CHANGE, DataConfig, TrainConfig
from sympformer.training.engine import Engine, pick_device
from sympformer.training.folder import RunFolder, Stored, is_run, stored_model
from sympformer.training.report import Reporter, require_tensorboard
from sympformer.training.trainer import Trainer

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
        _check_free(config)
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
    check_sizes(config, cfg, prepared, engine.world)
    with _claimed(engine, run, config, cfg, prepared, begun) as folder:
        result = _train(engine, config, cfg, prepared, folder, bar, echo)
        engine.leave()
    return result


# --- a new run


def _check_free(config: TrainConfig) -> None:
    """Refuse an `out` that holds something."""
    if config.out is not None:
        if is_run(folder := Path(config.out)):
            raise InputError(f"{folder} holds a run: continue it with --resume, or choose another --out")
        check_new(folder)


def _begun(config: TrainConfig) -> tuple[TrainConfig, Stored | None]:
    """The config of a new run in full, and the model it begins with if it names one."""
    if config.steps is None and config.tokens is None:
        config = config.replace(tokens=DEFAULT_TOKENS)
    if config.init_from is None:
        return config, None
    begun = stored_model(Path(config.init_from), "best", lambda text: print(text, file=sys.stderr))
    return fitted(config, begun), begun


def fitted(config: TrainConfig, begun: Stored) -> TrainConfig:
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
    asked = config.data.tokenizer
    if config.data.folder is None and asked not in (DataConfig.tokenizer, tokenizer.name, str(begun.folder)):
        raise InputError(f"{where} has the tokenizer {tokenizer.name}, not {asked}: leave out data.tokenizer")
    free = {option: options[option] for option in FREE if option in options}
    data = config.data if config.data.folder else dataclasses.replace(config.data, tokenizer=str(begun.folder))
    return config.replace(model=cfg.replace(**free).to_dict(), data=data)


def _check_tokens(begun: Stored, prepared: Tokens) -> None:
    """Refuse tokens whose ids mean something else to the model."""
    made_by = prepared.tokenizer
    if begun.tokenizer is None or begun.tokenizer.fingerprint != made_by.fingerprint:
        raise InputError(
            f"the tokens in {prepared.folder} were made by {made_by.name}, another tokenizer than that of the model in "
            f"{begun.folder}: give the text as data.corpus, and it is prepared with the model's own"
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
    free = {name: given[name] for name in FREE_TO_CHANGE if name in given and name != "out"}
    return _with_budget(stored, given, run).replace(**free, out=str(run.path))


def _with_budget(stored: TrainConfig, given: Mapping[str, Any], run: RunFolder) -> TrainConfig:
    """The config with a larger budget, if one is given."""
    asked = {name: given.get(name) for name in BUDGET}
    if not any(asked.values()):
        return stored
    before = stored.total_steps(run.cfg.block_size)
    wanted = stored.replace(**asked).total_steps(run.cfg.block_size)
    if wanted < before:
        raise InputError(
            f"the run in {run.path} has {before:,} steps to do, and {wanted:,} are asked for: that can only grow"
        )
    return stored if wanted == before else stored.replace(steps=wanted, tokens=None)


# --- either


@contextmanager
def _claimed(
    engine: Engine,
    run: RunFolder | None,
    config: TrainConfig,
    cfg: ModelConfig,
    prepared: Tokens,
    begun: Stored | None,
) -> Iterator[RunFolder]:
    """The run's folder, which no other process has meanwhile: a new one, or the one to resume."""
    with ExitStack() as held:
        if engine.first:  # it speaks for all processes
            run = run or RunFolder.create(config, cfg, prepared, begun)
            held.enter_context(run.locked())
            for place in (run.path, run.path / CHECKPOINTS):
                tidy(place)
        yield RunFolder(Path(engine.told("" if run is None else str(run.path))))


def check_sizes(config: TrainConfig, cfg: ModelConfig, prepared: Tokens, world: int) -> None:
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
    cfg: ModelConfig,
    prepared: Tokens,
    run: RunFolder,
    bar: bool | None,
    echo: float = 0.0,
) -> TrainResult:
    model = build_model(cfg, seed=config.seed)
    checkpoints = Checkpoints(run.path, config.keep_last)
    reporter = Reporter(run.path, config.total_steps(cfg.block_size), not engine.first, bar)
    try:
        checkpoint = checkpoints.newest(reporter.say)
        if checkpoint is not None:
            load_model_tensors(model, checkpoint.model, checkpoint.folder)
        before = run.config.total_steps(cfg.block_size)
        trainer = Trainer(engine, config, model, prepared, checkpoints, reporter, checkpoint)
        left = trainer.total > before and _leave_best(run, trainer.progress)
        engine.wait()  # what all have looked at changes now
        if engine.first and trainer.progress.step < trainer.total:
            _note(run, trainer, reporter, before, left)
        stopped_by = trainer.run(echo)
        return TrainResult(
            run.path,
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
        usable = checkpoints.steps()
        last = f"the checkpoint of step {usable[-1]} is usable" if usable else "there is no checkpoint yet"
        raise InputError(
            f"the disk of {run.path} is full; {last}: free some space and continue "
            f"(train --resume --out {run.path}, or the same compare again)"
        ) from error
    finally:
        with suppress(OSError):
            reporter.close()


def _leave_best(run: RunFolder, progress: Progress) -> bool:
    """Whether the best weights lie ahead of the checkpoint, on a path that a larger budget leaves."""
    step = best_step(run.path)
    if step is None or step <= progress.step:
        return False
    progress.best_loss = progress.best_step = None
    return True


def _note(run: RunFolder, trainer: Trainer, reporter: Reporter, before: int, left: bool) -> None:
    """Write down by whom, and how far, a run is taken on, where either is new; and say so."""
    if other := run.note_code():
        reporter.say(other)
    if left:
        (run.path / WEIGHTS).unlink(missing_ok=True)
        reporter.say("the best weights were made after this checkpoint, under the smaller budget: they are dropped")
    step, total = trainer.progress.step, trainer.total
    if total > before:
        run.note_budget(step, total)
        reporter.say(
            f"the budget grows from {before:,} to {total:,} steps, and the rate follows the cosine of {total:,} steps "
            f"from step {step:,} on: it is {trainer.learning_rate(step):.3g} now, and falls again"
        )


def _is_full(error: BaseException | None) -> bool:
    """Whether an error, or the one behind it, says that the disk is full."""
    if isinstance(error, OSError) and error.errno in FULL:
        return True
    return isinstance(error, InputError) and _is_full(error.__cause__)
