"""A comparison's folder and the order of its work: prepare the text, choose the rates, train the seeds.

compare.yaml  calibration.json  costs.json  runs/<model>/choose-lr<rate>-seed<seed>/  runs/<model>/final-seed<seed>/
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from statistics import median
from typing import Any

import yaml

from sympformer.atomic import is_new, staged_folder, write_file
from sympformer.data import Prepared
from sympformer.errors import InputError
from sympformer.locks import Busy, Lock
from sympformer.models import ModelConfig
from sympformer.provenance import Code, this_code
from sympformer.safe_files import read_sealed, sealed
from sympformer.studies.bench.costs import memory_mb, tokens_per_second
from sympformer.studies.compare.assemble import Entry, ScoredRun, describe_data, make_results, older, one_code
from sympformer.studies.compare.budgets import Budget
from sympformer.studies.compare.calibration import PASSES, Timing, seconds_a_step, time_steps
from sympformer.studies.compare.grid import Outcome, outcome, run_cells
from sympformer.studies.compare.plan import CHOOSE, FINAL, Cell, CompareConfig
from sympformer.studies.compare.workers import Board, Workers
from sympformer.studies.results.results import Results
from sympformer.studies.scoring.score import kept_score, score_cell
from sympformer.training.choices import choose_model, open_data
from sympformer.training.config import read_yaml
from sympformer.training.engine import pick_device
from sympformer.training.origin import check_data
from sympformer.training.run import run_codes

CONFIG, CALIBRATION, COSTS = "compare.yaml", "calibration.json", "costs.json"
Choosing = dict[str, dict[float, Outcome]]  # model -> rate -> what came of it
LABELS = {CHOOSE: "choosing rates", FINAL: "training"}
MEANT = {CHOOSE: "that choose the learning rates", FINAL: "that are reported"}
CHOSEN = "Learning rates were chosen on validation data; every loss in the table is on test data that chose nothing."
GIVEN = "Learning rates were given, not searched for here; every loss in the table is on test data."
CHOSEN_IN = (
    "All cells of a level of {} have one rate, that with the lowest mean validation loss in its cells {}; "
    "cells in which it was not tried have it as given."
)
TIMED = (
    "All models had equal seconds of training steps. What a step takes was measured once before training, all models "
    "in turn, in processes of their own ({}, threads: {}), and made the seconds into steps: {}."
)
NOTES = [
    "Differences are paired by seed: all models of a seed see the same batches in the same order. "
    "Intervals are Student's, 95 % for each difference by itself; verdicts after Holm hold for all differences of a "
    "table, or of a family named in the config, together.",
    "Tokens/s and memory were measured beside each other after training, and give the seconds to the baseline's loss; "
    "seconds of a run are by its own clock, on a machine that may have been busy.",
    "Every trained model was audited (causality, prefix, batch, cache); one that fails is struck out and not ranked.",
]


@dataclass(frozen=True)
class Grid:
    """The trained runs: every model's chosen rate, and the outcomes of both stages."""

    rates: dict[str, float]
    choosing: Choosing
    choosing_cells: list[Cell]
    cells: list[Cell]
    outcomes: list[Outcome]

    def first_runs(self) -> dict[str, str]:
        """Model -> the folder of its first run that did not diverge."""
        runs: dict[str, str] = {}
        for cell, done in zip(self.cells, self.outcomes, strict=True):
            if done.diverged is None:
                runs.setdefault(cell.model, cell.folder)
        return runs


class Comparison:
    """A comparison in its folder."""

    def __init__(self, root: Path, config: CompareConfig, mixed_code: bool = False) -> None:
        """mixed_code: take runs of different code into one table, which then says so."""
        self.root, self.config, self.mixed_code = root, config, mixed_code

    @classmethod
    def create(cls, root: Path, config: CompareConfig, mixed_code: bool = False) -> "Comparison":
        """Begin, or go on with the same one."""
        if (root / CONFIG).is_file():
            return cls._taken_up(root, config, mixed_code)
        if not is_new(root):
            raise InputError(f"{root} exists and holds no comparison: choose another --out")
        with staged_folder(root) as work:
            write_file(work / CONFIG, yaml.safe_dump(config.to_dict(), sort_keys=False))
        return cls(root, config, mixed_code)

    @classmethod
    def _taken_up(cls, root: Path, config: CompareConfig, mixed_code: bool) -> "Comparison":
        """Go on, where the runs are the same; how they are read may have changed, and seeds may be new."""
        before = cls.open(root)
        if changed := config.differences(before.config):
            raise InputError(
                f"{root} holds another comparison ({', '.join(changed)}; see its {CONFIG}): choose another --out"
            )
        if config != before.config:
            with before.lock():
                write_file(root / CONFIG, yaml.safe_dump(config.to_dict(), sort_keys=False))
        return cls(root, config, mixed_code)

    def lock(self) -> Lock:
        """While one process works on a comparison, no other does."""
        try:
            return Lock(self.root / CONFIG)
        except Busy:
            raise Busy(f"another process is at work on the comparison in {self.root}: wait for it") from None

    @classmethod
    def open(cls, root: Path, mixed_code: bool = False) -> "Comparison":
        """One that `create` began."""
        if not (root / CONFIG).is_file():
            what = "holds no comparison" if root.is_dir() else "does not exist"
            raise InputError(f"{root} {what}: make one with 'sympformer compare FILE.yaml --out {root}'")
        try:
            return cls(root, CompareConfig.from_dict(read_yaml(root / CONFIG)), mixed_code)
        except (TypeError, KeyError, ValueError) as error:
            raise InputError(f"{root / CONFIG} is damaged ({error}): it cannot be continued") from error

    def check_data(self, trust: bool) -> None:
        """Refuse to open what a comparison from elsewhere names as its data, unless it is trusted."""
        for config in sorted(self.root.glob("runs/*/*/config.yaml")):
            check_data(config.parent, self.config.common.data, trust)

    @cached_property
    def prepared(self) -> Prepared:
        """The tokens all runs train on; there must be some for the test."""
        prepared = open_data(self.config.common.data)
        if "test" not in prepared.sheet.splits:
            raise InputError(
                f"corpus {prepared.sheet.corpus['name']!r} has no test split: "
                "give common.data.test a share, such as 0.05"
            )
        return prepared

    @cached_property
    def plan(self) -> CompareConfig:
        """The config with the sizes that follow from the text."""
        matched = any(self.config.match_of(name) for name in self.config.models)
        return self.config.sized(self.prepared.tokenizer) if matched else self.config

    def train(self, workers: Workers) -> Grid:
        """Run what is missing of the grid."""
        _ = self.prepared, this_code()  # before any worker asks for them, or the source changes under way
        self._calibrate(workers)

        def run(cells: list[Cell], stage: str) -> list[Outcome]:
            totals = [self._total_steps(cell) for cell in cells]
            return run_cells(self.root, cells, totals, workers, LABELS[stage], self.mixed_code)

        return self._grid(run)

    def finished(self) -> Grid:
        """The grid of a comparison whose runs are all there; says how many are missing otherwise."""

        def find(cells: list[Cell], stage: str) -> list[Outcome]:
            done = [outcome(self.root, cell, self._total_steps(cell)) for cell in cells]
            found = [one for one in done if one is not None]
            if len(found) < len(cells):
                raise InputError(
                    f"the comparison in {self.root} is half-finished: "
                    f"{len(cells) - len(found)} of the {len(cells)} runs {MEANT[stage]} are missing; {self._go_on}"
                )
            return found

        return self._grid(find)

    def _grid(self, outcomes: Callable[[list[Cell], str], list[Outcome]]) -> Grid:
        """Both stages in turn: the second one's runs follow from the first one's outcomes."""
        first: list[Cell] = []
        choosing: Choosing = {}
        while next_cells := self._choosing_cells(choosing):
            first += next_cells
            for cell, done in zip(next_cells, outcomes(next_cells, CHOOSE), strict=True):
                choosing.setdefault(cell.model, {})[cell.lr] = done
        rates = self._rates(choosing)
        cells = list(self.plan.final_cells(rates, self._steps(self.config.budget)))
        return Grid(rates, choosing, first, cells, outcomes(cells, FINAL))

    # --- parts

    @property
    def _go_on(self) -> str:
        return f"go on with 'sympformer compare {self.root / CONFIG} --out {self.root}'"

    def _total_steps(self, cell: Cell) -> int:
        return cell.config.total_steps(choose_model(cell.config.model).block_size)

    def _choosing_cells(self, choosing: Choosing) -> list[Cell]:
        """What to train next in order to choose the rates."""
        return self.plan.choosing_cells(_losses(choosing), self._steps(self.config.choose))

    def _rates(self, choosing: Choosing) -> dict[str, float]:
        """Each model's rate by validation loss; a model that diverged at every rate has none."""
        return self.config.chosen_rates(_losses(choosing))

    def _steps(self, budget: Budget | None) -> dict[str, int]:
        """Steps of every model under a budget of seconds, from what a step of it took when that was measured."""
        if budget is None or not budget.timed:
            return {}
        if not (self.root / CALIBRATION).is_file():
            raise InputError(f"the comparison in {self.root} is half-finished: {self._go_on}")
        block_size = self.model_configs[budget.seconds_of or self.config.baseline].block_size
        length = self.config.common.replace(steps=budget.steps, tokens=budget.tokens)
        return budget.steps_of(read_sealed(self.root / CALIBRATION)["seconds_a_step"], length.total_steps(block_size))

    def _calibrate(self, workers: Workers) -> None:
        """Measure the steps that a budget in seconds needs, once: who goes on later has the same."""
        timed = any(budget is not None and budget.timed for budget in (self.config.budget, self.config.choose))
        if not timed or (self.root / CALIBRATION).is_file():
            return
        if pick_device(self.config.common) != "cpu":
            raise InputError("a budget in seconds is measured on the CPU: give tokens, or set common.device to cpu")
        timings: dict[str, list[Timing]] = {name: [] for name in self.model_configs}
        with Board("measuring steps", PASSES * len(timings)) as board:
            for name in [*timings] * PASSES:
                found = workers.alone(time_steps, (self.config.common, self.model_configs[name]))
                timings[name].append(found)
                board.finished(f"{name}: {1e3 * median(found.seconds):.1f} ms, {found.clock}, threads: {found.threads}")
        write_file(self.root / CALIBRATION, sealed(seconds_a_step(timings) | {"code": this_code().to_dict()}))

    @cached_property
    def model_configs(self) -> dict[str, ModelConfig]:
        """The full config of every model."""
        tokenizer = self.prepared.tokenizer
        return {name: choose_model(self.plan.model_options(name), tokenizer) for name in self.config.models}

    def costs(self) -> dict[str, Any]:
        """Training speed and memory of every model, measured once, beside each other, and kept."""
        file = self.root / COSTS
        if not file.is_file():
            models, batch = self.model_configs, self.config.common.batch_size
            speeds = self._calibrated_speeds() or tokens_per_second(models, batch)
            costs = {"tokens_per_second": speeds, "memory_mb": memory_mb(models, batch)}
            write_file(file, sealed(costs | {"code": this_code().to_dict()}))
        return read_sealed(file)

    def _calibrated_speeds(self) -> dict[str, float] | None:
        """The speeds that made seconds into steps, where there was such a budget: one table has one speed a model."""
        if not (self.root / CALIBRATION).is_file():
            return None
        texts = self.config.common.global_batch()
        found = read_sealed(self.root / CALIBRATION)["seconds_a_step"]
        return {name: texts * self.model_configs[name].block_size / seconds for name, seconds in found.items()}

    def score(self, grid: Grid, workers: Workers) -> list[dict[str, Any] | None]:
        """The scores of the reported runs, made where they are missing; None for a run that diverged.

        A run whose weights are of no use on test data has diverged too: its outcome then says so.
        """
        folders = [self.root / cell.folder for cell in grid.cells]
        whole = [i for i, done in enumerate(grid.outcomes) if done.diverged is None]
        scores = [kept_score(folder) if i in whole else None for i, folder in enumerate(folders)]
        missing = [i for i in whole if scores[i] is None]
        with Board("scoring on test data", len(whole), len(whole) - len(missing)) as board:
            for k, score in workers.run(score_cell, [(folders[i],) for i in missing]):
                i = missing[k]
                if isinstance(score, str):
                    grid.outcomes[i] = replace(grid.outcomes[i], diverged=score)
                else:
                    scores[i] = score
                what = score if isinstance(score, str) else f"test loss {score['last']['loss']:.4f}"
                board.finished(f"{grid.cells[i].describe()}: {what}")
        return scores

    def results(self, grid: Grid, workers: Workers) -> Results:
        """Everything measured, ready for tables, plots and the report."""
        codes: dict[str, list[Code]] = {name: [] for name in self.config.models}
        for cell in (*grid.choosing_cells, *grid.cells):
            codes[cell.model] += run_codes(self.root / cell.folder)
        advice = "compare again with another --out"
        one_code([code for of_model in codes.values() for code in of_model], advice, self.mixed_code)
        scores, costs = self.score(grid, workers), self.costs()
        entries = []
        for name, cfg in self.model_configs.items():
            mine = [i for i, cell in enumerate(grid.cells) if cell.model == name]
            tried = grid.choosing.get(name, {})
            scored = [ScoredRun(self.root / grid.cells[i].folder, s) for i in mine if (s := scores[i]) is not None]
            entries.append(
                Entry(
                    name=name,
                    options=self.plan.model_options(name),
                    cfg=scored[0].cfg if scored else cfg,  # what was trained, whatever a preset says by now
                    runs=scored,
                    lr=grid.rates.get(name),
                    rates={lr: done.validation_loss for lr, done in tried.items()},
                    diverged=tuple(why for i in mine if (why := grid.outcomes[i].diverged))
                    or (() if mine else self._no_rate(name, grid)),
                    tokens_per_second=costs["tokens_per_second"][name],
                    memory_mb=costs["memory_mb"][name],
                    codes=tuple(codes[name]),
                    parent=self.config.models[name].get("parent"),
                )
            )
        return make_results(
            self.root.name,
            entries,
            self.config.baseline,
            "loss",
            self.config.budget.describe(),
            seeds=self.config.seeds,
            data=describe_data(self.prepared),
            config=self._recipe(),
            notes=[*older(entries), *self._notes(grid), *NOTES],
            reference=self.config.reference,
            families=self.config.families,
            factors={factor: list(levels) for factor, levels in self.config.factors.items()},
            cells=self.config.factorial.cells,
            refused=self.config.refused,
            beside=self._beside(),
        )

    def _beside(self) -> dict[str, dict[str, float]]:
        """What a publication reports for some of the models, by heading."""
        found: dict[str, dict[str, float]] = {}
        for what, word in {"last": "last", "best": "best", "seconds": "s"}.items():
            if figures := {name: own[what] for name, own in self.config.published.items() if what in own}:
                found[f"{word}, published"] = figures
        return found

    def _no_rate(self, name: str, grid: Grid) -> tuple[str, ...]:
        """Why a model has no rate: what diverged where its rate was to be chosen."""
        group = next(group for group in self.config.rate_groups if name in group.members)
        return tuple(done.diverged or "" for cell in group.chosen_in for done in grid.choosing.get(cell, {}).values())

    def _recipe(self) -> dict[str, Any]:
        """The config as it was given, and what its models are where that depends on others."""
        recipe, plan = self.config.to_dict(), self.plan
        if any({"parent", "match"} & set(options) for options in plan.models.values()):
            recipe["options"] = {name: plan.model_options(name) for name in plan.models}
        return recipe

    def _notes(self, grid: Grid) -> list[str]:
        """How rates, sizes and steps came about, and what there is not."""
        notes = [CHOSEN if grid.choosing else GIVEN]
        if grid.choosing and (chosen := self.config.choose_in) is not None:
            notes.append(CHOSEN_IN.format(chosen.factor, " and ".join(chosen.cells)))
            wishes = (group.disagreement(_losses(grid.choosing)) for group in self.config.rate_groups)
            notes += [wish for wish in wishes if wish]
        notes += self.plan.matches()
        if self.config.budget.timed:
            found, steps = read_sealed(self.root / CALIBRATION), self._steps(self.config.budget)
            each = ", ".join(f"{name} {count:,}" for name, count in steps.items())
            notes.append(TIMED.format(found["clock"], found["threads"], each))
        return notes + self.config.refusals()


def _losses(choosing: Choosing) -> dict[str, dict[float, float]]:
    return {model: {rate: done.validation_loss for rate, done in of.items()} for model, of in choosing.items()}
