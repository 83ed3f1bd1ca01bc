"""A comparison's folder and the order of its work: measure the steps, choose the rates, train and score the seeds.

compare.yaml  steps.json  results.json  runs/<model>/choose-lr<rate>-seed<seed>/  runs/<model>/final-seed<seed>/

A run is a child process, and its folder says how far it is: what is done is skipped, what was cut is gone on with. A
folder may get more models and more seeds; a run that is there with other settings than those asked for is refused.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml

from sympformer.data import Tokens, open_tokens
from sympformer.errors import InputError
from sympformer.files import Busy, check_new, locked, write
from sympformer.machine import usable_cores
from sympformer.models import ModelConfig
from sympformer.progress import Bar
from sympformer.studies.compare import cell, children, steps
from sympformer.studies.compare.plan import Budget, CompareConfig, Model, Plan, unfold
from sympformer.studies.compare.records import Entry, Run, describe_data, make_results
from sympformer.studies.results.results import Results
from sympformer.training.config import TrainConfig, choose_model
from sympformer.training.engine import pick_device
from sympformer.training.folder import RECORD, RunFolder

CONFIG = "compare.yaml"
PASSES = 5, 2  # processes in which the steps of a model are timed: for a budget in seconds, and for the table alone
CHOSEN = "Learning rates were chosen on validation data; every loss in the table is on test data that chose nothing."
GIVEN = "Learning rates were given, not searched for here; every loss in the table is on test data."
TIMED = (
    "All models had equal seconds of training steps: what a step takes was measured before training and made the "
    "seconds into steps: {}."
)
MEASURED = (
    "Tokens/s and memory are of a run's own steps, all models in turn before training, in processes of their own ({}, "
    "threads: {}), and give the seconds to the baseline's loss; seconds of a run are by its own clock, on a machine "
    "that may have been busy."
)
NOTES = [
    "Differences are paired by seed: all models of a seed see the same batches in the same order. "
    "Intervals are Student's, 95 % for each difference by itself; verdicts after Holm hold for all differences of a "
    "table, or of a family named in the config, together.",
    "Every trained model was audited (causality, prefix, batch, cache); one that fails is struck out and not ranked.",
]


class Comparison:
    """A comparison in its folder. jobs: runs at a time."""

    def __init__(self, root: Path, config: CompareConfig, jobs: int = 1) -> None:
        self.root, self.config, self.jobs = root, config, jobs

    @contextmanager
    def begun(self) -> Iterator[None]:
        """The folder, made or taken up; in the block no other process works on it."""
        if not (self.root / CONFIG).is_file():
            check_new(self.root)
        _ = self.plan  # what is wrong with the text or the models is said before anything is written
        try:
            with locked(self.root / CONFIG):
                self._check_runs()
                write(self.root / CONFIG, yaml.safe_dump(self.config.to_dict(), sort_keys=False))
                yield
        except Busy:
            raise Busy(f"another process is at work on the comparison in {self.root}: wait for it") from None

    def _check_runs(self) -> None:
        """Refuse, before anything is written, runs with other settings; their rates are looked at one by one later."""
        for file in sorted(self.root.glob(f"runs/*/*/{RECORD}")):
            theirs, model = RunFolder(file.parent).config, file.parent.parent.name
            choosing = file.parent.name.startswith("choose")
            if model in self.plan.models and (budget := self.config.choose if choosing else self.config.budget):
                cell.check_same(self._cell(model, theirs.lr, theirs.seed, budget), file.parent)

    @cached_property
    def prepared(self) -> Tokens:
        """The tokens all runs train on; there must be some for the test."""
        prepared = open_tokens(self.config.common.data)
        if "test" not in prepared.sheet.splits:
            raise InputError(
                f"corpus {prepared.sheet.corpus!r} has no test split: give common.data.test a share, such as 0.05"
            )
        return prepared

    @cached_property
    def plan(self) -> Plan:
        """The models, with the sizes that follow from the text."""
        return unfold(self.config, self.prepared.tokenizer.padded_vocab_size)

    @cached_property
    def model_configs(self) -> dict[str, ModelConfig]:
        return {name: choose_model(model.options, self.prepared.tokenizer) for name, model in self.plan.models.items()}

    # --- training

    @cached_property
    def steps(self) -> dict[str, dict[str, Any]]:
        """What a step of every model takes."""
        pick_device(self.config.common)  # for the children too, before any of them starts
        timed = any(budget is not None and budget.timed for budget in (self.config.budget, self.config.choose))
        passes = PASSES[0] if timed else PASSES[1]
        return steps.measured(self.root / steps.FILE, self.config.common, self.model_configs, self._threads, passes)

    def train(self) -> list[Entry]:
        """Run what is missing: the runs that choose a rate, rate by rate, and those that are reported, seed by seed."""
        _ = self.steps  # while nothing else is at work
        tried: dict[str, dict[float, Run]] = {name: {} for name in self.plan.models}
        models, choose, extend = self.plan.models, self.config.choose, self.config.extend
        while asked := [(name, r) for name, m in models.items() for r in m.next_rates(_losses(tried[name]), extend)]:
            assert choose is not None  # the plan refuses several rates without it
            configs = [self._cell(name, rate, self.config.choose_seed, choose) for name, rate in asked]
            for (name, rate), run in zip(asked, self._run("choosing rates", configs), strict=True):
                tried[name][rate] = run
        rates = {name: model.best_rate(_losses(tried[name])) for name, model in models.items()}
        whole = [(name, rate) for name, rate in rates.items() if rate is not None]
        reported = [self._cell(*one, seed, self.config.budget) for seed in self.config.seeds for one in whole]
        runs: dict[str, list[Run]] = {name: [] for name in models}
        for run in self._run("training", reported, scored=True):
            runs[run.path.parent.name].append(run)
        return [self._entry(model, rates[name], tried[name], runs[name]) for name, model in models.items()]

    def _cell(self, model: str, lr: float, seed: int, budget: Budget) -> TrainConfig:
        config = self.plan.run(model, lr, seed, budget, self._steps(budget, model), budget is self.config.choose)
        return config.replace(out=str(self.root / str(config.out)))

    def _steps(self, budget: Budget, model: str) -> int | None:
        """Steps of a model under a budget of seconds, from what a step of it took when that was measured."""
        if not budget.timed:
            return None
        seconds = budget.seconds
        if budget.seconds_of is not None:
            length = self.config.common.replace(steps=budget.steps, tokens=budget.tokens)
            total = length.total_steps(self.model_configs[budget.seconds_of].block_size)
            seconds = total * self.steps[budget.seconds_of]["seconds"]
        assert seconds is not None
        return max(1, round(seconds / self.steps[model]["seconds"]))

    def _run(self, label: str, configs: Sequence[TrainConfig], scored: bool = False) -> list[Run]:
        """Train what is not done yet; the runs in the order of their configs."""
        found = [cell.finished(config, scored) for config in configs]
        missing = [i for i, run in enumerate(found) if run is None]
        commands, done = [cell.command(configs[i], scored) for i in missing], len(configs) - len(missing)
        with Bar(label, len(configs)) as bar:
            if done:
                bar.say(f"{label}: {done} of {len(configs)} are done already")
            bar.update(done)
            for k, _ in children.run_all(commands, self.jobs, self._threads):
                done += 1
                config = configs[missing[k]]
                found[missing[k]] = run = cell.finished(config, scored)
                if run is None:
                    raise InputError(f"{config.out} did not finish; its log.txt may say why")
                bar.say(f"{label} {done}/{len(configs)}  {_what(run, scored)}")
                bar.update(done)
        return [run for run in found if run is not None]

    @property
    def _threads(self) -> int:
        return max(1, usable_cores() // self.jobs)

    # --- results

    def results(self, entries: Sequence[Entry]) -> Results:
        """Everything measured, ready for tables, plots and the page."""
        config, recipe, models = self.config, self.config.to_dict(), self.plan.models
        if config.factors or any({"parent", "match"} & set(options) for options in config.models.values()):
            recipe["options"] = {name: model.options for name, model in models.items()}  # which depend on others
        return make_results(
            self.root.name,
            entries,
            families=config.families,
            baseline=config.baseline,
            metric="loss",
            budget=config.budget.describe(),
            seeds=config.seeds,
            data=describe_data(self.prepared),
            config=recipe,
            notes=self._notes(any(entry.rates for entry in entries)),
            reference=config.reference if config.reference != config.baseline else None,
            beside=config.beside,
            factors={factor: list(levels) for factor, levels in config.factors.items()},
            refused=self.plan.refused,
        )

    def _entry(self, model: Model, rate: float | None, tried: dict[float, Run], runs: list[Run]) -> Entry:
        cost, whole = self.steps[model.name], [run for run in runs if run.diverged is None]
        cfg = whole[0].cfg if whole else self.model_configs[model.name]  # as trained, whatever a preset says by now
        return Entry(
            name=model.name,
            options=model.options,
            cfg=cfg,
            runs=whole,
            lr=rate,
            rates=_losses(tried),
            diverged=tuple(run.diverged for run in runs or tried.values() if run.diverged is not None),
            tokens_per_second=self.config.common.global_batch() * cfg.block_size / cost["seconds"],
            memory_mb=cost["memory_mb"],
            codes=tuple(code for run in (*tried.values(), *runs) for code in run.codes),
            parent=model.parent,
            levels=model.levels,
        )

    def _notes(self, chosen: bool) -> list[str]:
        """How rates, sizes and steps came about, and what there is not."""
        budget, cost = self.config.budget, self.steps[self.config.baseline]
        notes = [CHOSEN if chosen else GIVEN, *self.plan.notes()]
        if budget.timed:
            each = ", ".join(f"{name} {self._steps(budget, name):,}" for name in self.plan.models)
            notes.append(TIMED.format(each))
        return [*notes, NOTES[0], MEASURED.format(cost["clock"], cost["threads"]), NOTES[1]]


def _losses(tried: dict[float, Run]) -> dict[float, float]:
    return {rate: run.validation_loss for rate, run in tried.items()}


def _what(run: Run, scored: bool) -> str:
    kind = "chosen rate" if scored else "rate"
    came = run.diverged or f"validation loss {run.validation_loss:.4f}"
    if run.diverged is None and scored:
        came += f", test loss {run.figure('loss'):.4f}"
    seconds = f" ({run.evaluations[-1]['seconds']:.0f} s)" if run.evaluations else ""
    return f"{run.path.parent.name}, {kind} {run.config.lr:g}, seed {run.config.seed}: {came}{seconds}"
