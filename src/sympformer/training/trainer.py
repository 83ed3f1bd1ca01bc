"""One run in progress: a step, and what happens between steps."""

import math
import resource
import sys
import time
from collections.abc import Callable
from math import gcd
from typing import Any

import torch
from torch import Tensor

from sympformer.data import BlockSampler, EvaluationBlocks, Tokens, validation_blocks
from sympformer.errors import DivergenceError
from sympformer.models import LanguageModel
from sympformer.models.folder import build_from
from sympformer.training.checkpoint import (
    Checkpoint,
    Checkpoints,
    Progress,
    load_optimizer_tensors,
    model_tensors,
    optimizer_tensors,
    save_best,
)
from sympformer.training.config import TrainConfig
from sympformer.training.engine import ECHO_SECONDS, Engine, SharedStop, StopSignal
from sympformer.training.evaluate import Evaluation, evaluate_sums, momentum_norms, summary
from sympformer.training.optimizer import clip_gradients, learning_rate, make_optimizers, set_learning_rate
from sympformer.training.report import Reporter
from sympformer.training.sampling import sample_text

NAMES = ("loss", "gradient_norm", "scalar_gradient_norm")
SKIPS_ALLOWED = 20  # float16: gradients that overflow are skipped while the scale adapts, but not for ever


class Trainer:
    """Holds the parts of a run and moves them on, one step at a time."""

    def __init__(
        self,
        engine: Engine,
        config: TrainConfig,
        model: LanguageModel,
        prepared: Tokens,
        checkpoints: Checkpoints,
        reporter: Reporter,
        checkpoint: Checkpoint | None,
    ) -> None:
        self.engine, self.config, self.model, self.reporter = engine, config, model, reporter
        self.progress = Progress() if checkpoint is None else checkpoint.progress
        self.total = config.total_steps(model.cfg.block_size)
        self.checkpoints, self.folder = checkpoints, checkpoints.folder.parent
        self.tokenizer = prepared.tokenizer
        self.byte_lengths = self.tokenizer.byte_lengths()
        self.sampler, self.validation = texts(config, model.cfg.block_size, prepared)
        # processes share the forward passes of a step if they can, and the texts of each pass if they cannot
        self.passes = config.accumulate // gcd(config.accumulate, engine.world)
        engine.set_up(model, config.compile)
        self.optimizers = make_optimizers(model, config)
        if checkpoint is not None:
            load_optimizer_tensors(model, self.optimizers, checkpoint.optimizer)
            if self.progress.scaler:  # none where a run begins with others' weights
                engine.scaler.load_state_dict(self.progress.scaler)
        self.window = Window(self.progress.pending, scaled=config.precision == "float16")
        self.validation_loss: float | None = None
        self.last_sample: str | None = None
        self._since = time.monotonic()
        self._speed_from = (self._since, self.progress.step)

    # --- the loop

    def run(self, echo: float = 0.0) -> int | None:
        """Train to the end; returns the signal that stopped it earlier, if any. echo: see `StopSignal`."""
        self._announce()
        self.model.train()
        with StopSignal(max(echo, ECHO_SECONDS if self.engine.world > 1 else 0.0)) as stop:
            shared = SharedStop(self.engine, stop, self.progress.step)
            self.reporter.start(self.progress.step, self.config.tensorboard)
            while self.progress.step < self.total:
                self.step(self.progress.step)
                self.progress.step += 1
                self._between_steps()
                number = shared.received(self.progress.step)
                if number is not None and self.progress.step < self.total:
                    self._read_window()
                    self._save()
                    self.reporter.say(f"stopped at step {self.progress.step} of {self.total}, saved")
                    return number
        if self.validation_loss is None:  # a run taken up after its last step
            self.validation_loss = self._score().loss
        self._sample()
        return None

    def step(self, step: int) -> None:
        """Forward and backward passes over the step's batch, then one update."""
        set_learning_rate(self.optimizers, self.learning_rate(step))
        if self.model.cfg.dropout > 0:
            torch.manual_seed((self.config.seed * 1_000_003 + step) * 4096 + self.engine.rank & (2**63 - 1))
        loss = torch.zeros((), device=self.engine.device)
        for part in range(self.passes):
            place = self.engine.rank * self.passes + part
            batch = self.sampler.batch(step, place, self.engine.world * self.passes)
            inputs, targets = (torch.from_numpy(ids).to(self.engine.device, non_blocking=True) for ids in batch)
            with self.engine.one_pass(last=part == self.passes - 1):
                part_loss = self.engine.loss(inputs, targets) / self.passes
                self.engine.backward(part_loss)
            loss += part_loss.detach()
        for optimizer in self.optimizers:
            self.engine.scaler.unscale_(optimizer)
        norms = clip_gradients(self.optimizers, self.config.clip)
        self.engine.update(self.optimizers)
        self.window.add(loss, *norms)

    def learning_rate(self, step: int) -> float:
        """The rate of a step."""
        config = self.config
        return learning_rate(step, config.lr, config.warm_up, self.total, config.min_lr_ratio)

    def _due(self, every: int | None) -> bool:
        return every is not None and (self.progress.step % every == 0 or self.progress.step == self.total)

    def _between_steps(self) -> None:
        config = self.config
        log, evaluate, save = (self._due(n) for n in (config.log_every, config.eval_every, config.checkpoint_every))
        if log or evaluate or save or (self.engine.device.type == "cpu" and self.engine.world == 1):
            self._read_window()
        if log or evaluate:
            self._record(log, evaluate)
        if self._due(config.sample_every) and self.progress.step < self.total:
            self._sample()
        if save:
            self._save()

    # --- between steps

    def _read_window(self) -> None:
        self.window.read(self.progress.step, self.engine, self._advice)

    def _advice(self) -> str:
        """What to do when the run has left the finite numbers."""
        last = self.checkpoints.steps()[-1:]
        kept = f"the last good checkpoint is step {last[0]}" if last else "there is no checkpoint yet"
        return (
            f"{kept}. Try a lower --lr (now {self.config.lr:g}), a longer --warm_up, --precision float32,"
            " or --model.bound momentum"
        )

    def _record(self, log: bool, evaluate: bool) -> None:
        """One line of metrics."""
        step, now, (since, first) = self.progress.step, time.monotonic(), self._speed_from
        speed = (step - first) * self.tokens_per_step / max(now - since, 1e-9)
        record: dict[str, Any] = {"step": step, "tokens": step * self.tokens_per_step}
        record |= {"epoch": self.sampler.epoch(step), "lr": self.learning_rate(step - 1)}
        if log:
            record |= self.window.mean_and_clear()
            self.reporter.update(step, record["loss"], self.progress.best_loss, speed)
        if evaluate:
            record |= self._evaluate()
        record |= {"seconds": self._seconds(), "tokens_per_second": speed, "memory_mb": peak_memory(self.engine.device)}
        self.reporter.metrics(record)
        if evaluate and self.progress.best_step == step and (self.engine.first or self.engine.split):
            model = model_tensors(self.model, keep=self.engine.first)
            if self.engine.first:
                save_best(self.folder, self.progress, model)
        self._speed_from = (time.monotonic(), step)

    def _evaluate(self) -> dict[str, Any]:
        """Score the validation set. A loss that is not a number ends the run, as one in training does."""
        progress, found = self.progress, self._score()
        if not math.isfinite(found.loss):
            raise DivergenceError(f"the validation loss is not finite at step {progress.step}; {self._advice()}")
        self.validation_loss = found.loss
        best = progress.best_loss is None or found.loss < progress.best_loss
        if best:
            progress.best_loss, progress.best_step = found.loss, progress.step
        self.reporter.say(
            f"step {progress.step}/{self.total}: validation loss {found.loss:.4f}, perplexity "
            f"{found.perplexity:.2f}, {found.bits_per_byte:.3f} bits per byte{' (best)' if best else ''}"
        )
        figures = {"perplexity": found.perplexity, "bits_per_byte": found.bits_per_byte}
        best_loss = {"best_validation_loss": progress.best_loss}
        return {"validation_loss": found.loss, **figures, **best_loss, "layers": self._layers()}

    def _score(self) -> Evaluation:
        # no process holds a model that is split: all join in every pass
        share = (0, 1) if self.engine.split else (self.engine.rank, self.engine.world)
        self.engine.loss_of.eval()
        batch, device = self.config.batch_size, self.engine.device
        sums = evaluate_sums(self.engine.loss, device, self.validation, self.byte_lengths, batch, share)
        self.engine.loss_of.train()
        nats, tokens, size = sums if share[1] == 1 else self.engine.over_all(sums)
        return summary(nats, int(tokens), int(size))

    def _layers(self) -> list[dict[str, float]]:
        """The layers' scalars and the size of their momenta on the first validation window."""
        model = self._whole_model()
        if model is None:
            return []
        inputs, _ = next(self.validation.batches(1))
        with self.engine.autocast():
            norms = momentum_norms(model, torch.from_numpy(inputs).to(model.tokens.weight.device))
        return [row | ({"momentum_rms": norms[k]} if norms else {}) for k, row in enumerate(model.layer_scalars())]

    def _whole_model(self) -> LanguageModel | None:
        """The model in one piece, in the first process: itself, or a copy of what the processes share."""
        first = self.engine.first
        if not self.engine.split:
            return self.model if first else None
        tensors = model_tensors(self.model, keep=first)
        return build_from(self.model.cfg, tensors, self.folder) if first else None

    def _save(self) -> None:
        """Write a checkpoint; every process gives its part, the first one writes."""
        first = self.engine.first
        if first or self.engine.split:
            model = model_tensors(self.model, keep=first)
            optimizer = optimizer_tensors(self.model, self.optimizers, keep=first)
            self.progress.seconds, self._since = self._seconds(), time.monotonic()
            self.progress.pending, self.progress.scaler = self.window.rows, self.engine.scaler.state_dict()
            if first:
                self.reporter.sync()
                self.checkpoints.save(self.progress, model, optimizer)
        self.engine.wait()

    def _sample(self) -> None:
        """Draw a text from the present weights."""
        model, config = self._whole_model(), self.config
        if model is None:
            return
        text = sample_text(model, self.tokenizer, config.sample_prompt, config.sample_tokens)
        self.reporter.sample(self.progress.step, config.sample_prompt, text)
        at_end = self.progress.step == self.total  # the command shows the last
        (self.reporter.note if at_end else self.reporter.say)(f"sample: {text}")
        self.last_sample = text

    # --- beginning and end

    def _announce(self) -> None:
        step = self.progress.step
        if step >= self.total:
            self.reporter.say(f"the run is complete: all {self.total} steps are done")
            return
        parameters = sum(parameter.numel() for parameter in self.model.parameters())
        self.reporter.say(
            f"{'training' if step == 0 else f'continuing at step {step}:'} {parameters:,} parameters, {self.total:,} "
            f"steps of {self.tokens_per_step:,} tokens ({self.sampler.epoch(self.total):.2f} epochs), "
            f"{self.engine.device}, {self.config.precision}"
        )

    @property
    def tokens_per_step(self) -> int:
        """Tokens in one optimizer step, over all processes."""
        return self.config.global_batch() * self.model.cfg.block_size

    def _seconds(self) -> float:
        """Of training so far, pauses left out."""
        return self.progress.seconds + time.monotonic() - self._since


def texts(config: TrainConfig, block_size: int, prepared: Tokens) -> tuple[BlockSampler, EvaluationBlocks]:
    """What is trained on, and what is evaluated; refuses a text that is too short."""
    sampler = BlockSampler(prepared.tokens("train"), block_size, config.global_batch(), config.seed)
    return sampler, validation_blocks(prepared.tokens("validation"), block_size, config.eval_tokens)


def peak_memory(device: torch.device) -> float:
    """In MB."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 1e6
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (1e6 if sys.platform == "darwin" else 1e3)


class Window:
    """Collects one row of figures a step; `read` brings them to the CPU and stops the run if one is not finite."""

    def __init__(self, rows: list[list[float]], scaled: bool) -> None:
        """rows: those a checkpoint kept. scaled: float16, whose gradients may overflow now and then."""
        self.rows = rows
        self._scaled, self._waiting, self._skipped = scaled, list[Tensor](), 0

    def add(self, loss: Tensor, norm: Tensor, scalar_norm: Tensor) -> None:
        """Take a step's figures, still on the device."""
        self._waiting.append(torch.stack((loss, norm, scalar_norm)))

    def read(self, step: int, engine: Engine, advice: Callable[[], str]) -> None:
        """Bring the figures over, averaged over processes. step: steps done. Raises DivergenceError."""
        if not self._waiting:
            return
        first = step - len(self._waiting) + 1
        figures = engine.mean(torch.stack(self._waiting)).tolist()
        self._waiting = []
        for place, row in enumerate(figures):
            if (bad := self._bad(row)) is not None:
                raise DivergenceError(f"the {bad} is not finite at step {first + place}; {advice()}")
            self.rows.append(row)

    def mean_and_clear(self) -> dict[str, float]:
        """The means since the last time."""
        means = [sum(column) / len(column) for column in zip(*self.rows, strict=True)]
        self.rows.clear()
        return dict(zip(NAMES, means, strict=True))

    def _bad(self, row: list[float]) -> str | None:
        """What in a row ends the run; norms of a step that may be skipped become 0."""
        if all(map(math.isfinite, row)):
            self._skipped = 0
            return None
        if not math.isfinite(row[0]):
            return "loss"
        self._skipped += 1
        row[1:] = [value if math.isfinite(value) else 0.0 for value in row[1:]]
        return None if self._scaled and self._skipped <= SKIPS_ALLOWED else "gradient"
