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

from sympformer.data import BlockSampler, Tokens, validation_blocks
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
from sympformer.training.engine import Engine
from sympformer.training.evaluate import Evaluation, evaluate_sums, momentum_norms, summary
from sympformer.training.optimizer import clip_gradients, learning_rate, make_optimizers, set_learning_rate
from sympformer.training.report import Reporter
from sympformer.training.sampling import sample_text
from sympformer.training.signals import ECHO_SECONDS, SharedStop, StopSignal

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
        self.sampler = BlockSampler(prepared.tokens("train"), model.cfg.block_size, config.global_batch(), config.seed)
        self.validation = validation_blocks(prepared.tokens("validation"), model.cfg.block_size, config.eval_tokens)
        # processes share the forward passes of a step if they can, and the texts of each pass if they cannot
        self.passes = config.accumulate // gcd(config.accumulate, engine.world)
        self.split = engine.split  # no process holds the whole model, all must join in every pass
        self._set_up(checkpoint)
        self.window = Window(self.progress.pending, scaled=config.precision == "float16")
        self.validation_loss: float | None = None
        self.last_sample: str | None = None
        self._clock = self._speed_from = (time.monotonic(), self.progress.step)

    def _set_up(self, checkpoint: Checkpoint | None) -> None:
        """Give model and optimizers to the engine; state goes back in where there is some."""
        self.engine.set_up(self.model, self.config.compile)
        self.optimizers = make_optimizers(self.model, self.config)
        if checkpoint is not None:
            load_optimizer_tensors(self.model, self.optimizers, checkpoint.optimizer)
            if self.progress.scaler:  # none where a run begins with others' weights
                self.engine.scaler.load_state_dict(self.progress.scaler)

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
        self._finish()
        return None

    def step(self, step: int) -> None:
        """Forward and backward passes over the step's batch, then one update."""
        set_learning_rate(self.optimizers, self.learning_rate(step))
        if self.model.cfg.dropout > 0:
            torch.manual_seed((self.config.seed * 1_000_003 + step) * 4096 + self.engine.rank & (2**63 - 1))
        loss = torch.zeros((), device=self.engine.device)
        for part in range(self.passes):
            inputs, targets = self._batch(step, part)
            with self.engine.one_pass(last=part == self.passes - 1):
                part_loss = self.engine.loss(inputs, targets) / self.passes
                self.engine.backward(part_loss)
            loss += part_loss.detach()
        for optimizer in self.optimizers:
            self.engine.scaler.unscale_(optimizer)
        norms = clip_gradients(self.optimizers, self.config.clip)
        self.engine.update(self.optimizers)
        self.window.add(loss, *norms)

    def _batch(self, step: int, part: int) -> tuple[Tensor, Tensor]:
        place = self.engine.rank * self.passes + part
        inputs, targets = self.sampler.batch(step, place, self.engine.world * self.passes)
        device = self.engine.device
        return (
            torch.from_numpy(inputs).to(device, non_blocking=True),
            torch.from_numpy(targets).to(device, non_blocking=True),
        )

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
        step = self.progress.step
        speed = self._speed()
        record: dict[str, Any] = {
            "step": step,
            "tokens": step * self.tokens_per_step,
            "epoch": self.sampler.epoch(step),
            "lr": self.learning_rate(step - 1),
        }
        if log:
            record |= self.window.mean_and_clear()
            self.reporter.update(step, record["loss"], self.progress.best_loss, speed)
        if evaluate:
            record |= self._evaluate()
        record |= {"seconds": self._seconds(), "tokens_per_second": speed, "memory_mb": self._memory()}
        self.reporter.metrics(record)
        if evaluate and self.progress.best_step == step:
            self._save_best()
        self._speed_from = (time.monotonic(), step)

    def _evaluate(self) -> dict[str, Any]:
        """Score the validation set. A loss that is not a number ends the run, as one in training does."""
        evaluation = self._score()
        if not math.isfinite(evaluation.loss):
            raise DivergenceError(f"the validation loss is not finite at step {self.progress.step}; {self._advice()}")
        self.validation_loss = evaluation.loss
        best = self.progress.best_loss is None or evaluation.loss < self.progress.best_loss
        if best:
            self.progress.best_loss, self.progress.best_step = evaluation.loss, self.progress.step
        self.reporter.say(
            f"step {self.progress.step}/{self.total}: validation loss {evaluation.loss:.4f}, perplexity "
            f"{evaluation.perplexity:.2f}, {evaluation.bits_per_byte:.3f} bits per byte{' (best)' if best else ''}"
        )
        return {
            "validation_loss": evaluation.loss,
            "perplexity": evaluation.perplexity,
            "bits_per_byte": evaluation.bits_per_byte,
            "best_validation_loss": self.progress.best_loss,
            "layers": self._layers(),
        }

    def _score(self) -> Evaluation:
        share = (0, 1) if self.split else (self.engine.rank, self.engine.world)
        batch, device = self.config.batch_size, self.engine.device
        self.engine.loss_of.eval()
        sums = evaluate_sums(self.engine.loss, device, self.validation, self.byte_lengths, batch, share)
        self.engine.loss_of.train()
        if share[1] > 1:
            nats, tokens, size = self.engine.summed(*sums)
            sums = nats, int(tokens), int(size)
        return summary(*sums)

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
        if not self.split:
            return self.model if first else None
        tensors = model_tensors(self.model, keep=first)
        return build_from(self.model.cfg, tensors, self.folder) if first else None

    def _save(self) -> None:
        """Write a checkpoint; every process gives its part, the first one writes."""
        first = self.engine.first
        if first or self.split:
            model = model_tensors(self.model, keep=first)
            optimizer = optimizer_tensors(self.model, self.optimizers, keep=first)
            self.progress.seconds = self._seconds()
            self._clock = (time.monotonic(), self.progress.step)
            self.progress.pending = self.window.rows
            self.progress.scaler = self.engine.scaler.state_dict()
            if first:
                self.reporter.sync()
                self.checkpoints.save(self.progress, model, optimizer)
        self.engine.wait()

    def _save_best(self) -> None:
        if self.engine.first or self.split:
            model = model_tensors(self.model, keep=self.engine.first)
            if self.engine.first:
                save_best(self.folder, self.progress, model)

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
        parameters = sum(parameter.numel() for parameter in self.model.parameters())
        if self.progress.step >= self.total:
            self.reporter.say(f"the run is complete: all {self.total} steps are done")
            return
        begun = "training" if self.progress.step == 0 else f"continuing at step {self.progress.step}:"
        self.reporter.say(
            f"{begun} {parameters:,} parameters, {self.total:,} steps of {self.tokens_per_step:,} tokens "
            f"({self.sampler.epoch(self.total):.2f} epochs), {self.engine.device}, {self.config.precision}"
        )

    def _finish(self) -> None:
        if self.validation_loss is None:  # a run taken up after its last step
            self.validation_loss = self._score().loss
        self._sample()

    # --- figures

    @property
    def tokens_per_step(self) -> int:
        """Tokens in one optimizer step, over all processes."""
        return self.config.global_batch() * self.model.cfg.block_size

    def _seconds(self) -> float:
        """Of training so far, pauses left out."""
        return self.progress.seconds + time.monotonic() - self._clock[0]

    def _speed(self) -> float:
        """Tokens a second since the last line of metrics."""
        since, step = self._speed_from
        return (self.progress.step - step) * self.tokens_per_step / max(time.monotonic() - since, 1e-9)

    def _memory(self) -> float:
        """Peak memory in MB."""
        if self.engine.device.type == "cuda":
            return torch.cuda.max_memory_allocated(self.engine.device) / 1e6
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
        figures = engine.mean(torch.stack(self._waiting))
        first = step - len(self._waiting) + 1
        self._waiting = []
        for place, row in enumerate(figures.tolist()):
            self._check(first + place, row, advice)
            self.rows.append(row)

    def mean_and_clear(self) -> dict[str, float]:
        """The means since the last time."""
        means = {
            name: sum(column) / len(column) for name, column in zip(NAMES, zip(*self.rows, strict=True), strict=True)
        }
        self.rows.clear()
        return means

    def _check(self, step: int, row: list[float], advice: Callable[[], str]) -> None:
        bad = [name for name, value in zip(NAMES, row, strict=True) if not math.isfinite(value)]
        if not bad:
            self._skipped = 0
            return
        if self._scaled and "loss" not in bad:
            self._skipped += 1
            row[1:] = [value if math.isfinite(value) else 0.0 for value in row[1:]]
            if self._skipped <= SKIPS_ALLOWED:
                return
        what = "loss" if "loss" in bad else "gradient"
        raise DivergenceError(f"the {what} is not finite at step {step}; {advice()}")
