"""A comparison's folder and the order of its work: prepare the text, choose the rates, train the seeds.

compare.yaml  steps.json  runs/<model>/choose-lr<rate>-seed<seed>/  runs/<model>/final-seed<seed>/
"""

import json
import math
from dataclasses import dataclass
from pathlib import Path

import yaml

from sympformer.data import Prepared
from sympformer.errors import InputError
from sympformer.experiments.compare.grid import Outcome, outcome, run_cells
from sympformer.experiments.compare.plan import Budget, Cell, CompareConfig
from sympformer.experiments.compare.speed import tokens_per_second
from sympformer.training.config import read_yaml
from sympformer.training.corpus import open_data
from sympformer.training.files import write_file
from sympformer.training.model_choice import choose_model

CONFIG, STEPS = "compare.yaml", "steps.json"


@dataclass(frozen=True)
class Grid:
    """The trained runs: every model's chosen rate, and the outcomes of both stages."""

    rates: dict[str, float]
    choosing: dict[str, dict[float, Outcome]]
    cells: list[Cell]
    outcomes: list[Outcome]


class Comparison:
    """A comparison in its folder."""

    def __init__(self, root: Path, config: CompareConfig) -> None:
        self.root, self.config = root, config

    @classmethod
    def create(cls, root: Path, config: CompareConfig) -> "Comparison":
        """Begin, or go on with the same one."""
        if (root / CONFIG).is_file():
            if cls.open(root).config != config:
                raise InputError(f"{root} holds another comparison (see its {CONFIG}): choose another --out")
            return cls(root, config)
        if root.exists() and (not root.is_dir() or any(root.iterdir())):
            raise InputError(f"{root} exists and holds no comparison: choose another --out")
        try:
            root.mkdir(parents=True, exist_ok=True)
            write_file(root / CONFIG, yaml.safe_dump(config.to_dict(), sort_keys=False))
        except OSError as error:
            raise InputError(f"cannot write {root}: {error.strerror or error}") from error
        return cls(root, config)

    @classmethod
    def open(cls, root: Path) -> "Comparison":
        """One that `create` began."""
        if not (root / CONFIG).is_file():
            what = "holds no comparison" if root.is_dir() else "does not exist"
            raise InputError(f"{root} {what}: make one with 'sympformer compare FILE.yaml --out {root}'")
        try:
            return cls(root, CompareConfig.from_dict(read_yaml(root / CONFIG)))
        except (TypeError, KeyError, ValueError) as error:
            raise InputError(f"{root / CONFIG} is damaged ({error}): it cannot be continued") from error

    def prepared(self) -> Prepared:
        """The tokens all runs train on; there must be some for the test."""
        prepared = open_data(self.config.common.data)
        if "test" not in prepared.sheet.splits:
            raise InputError(
                f"corpus {prepared.sheet.corpus['name']!r} has no test split: give common.data.test a share, such as 0.05"
            )
        return prepared

    def train(self, jobs: int) -> Grid:
        """Run what is missing of the grid."""
        self.prepared()
        cells = self.config.choosing_cells(self._steps(self.config.choose))
        choosing = self._chosen(cells, self._run(cells, jobs, "choosing rates"))
        rates = self._rates(choosing)
        cells = list(self.config.final_cells(rates, self._steps(self.config.budget)))
        return Grid(rates, choosing, cells, self._run(cells, jobs, "training"))

    def finished(self) -> Grid:
        """The grid of a comparison whose runs are all there; says how many are missing otherwise."""
        cells = self.config.choosing_cells(self._steps(self.config.choose, measure=False))
        found = self._found(cells)
        if len(found) < len(cells):
            raise self._half_finished(len(cells) - len(found), len(cells), "that choose the learning rates")
        choosing = self._chosen(cells, found)
        rates = self._rates(choosing)
        cells = list(self.config.final_cells(rates, self._steps(self.config.budget, measure=False)))
        found = self._found(cells)
        if len(found) < len(cells):
            raise self._half_finished(len(cells) - len(found), len(cells), "that are reported")
        return Grid(rates, choosing, cells, found)

    # --- parts

    def _half_finished(self, missing: int, total: int, which: str) -> InputError:
        return InputError(
            f"the comparison in {self.root} is half-finished: {missing} of the {total} runs {which} are missing; "
            f"go on with 'sympformer compare {self.root / CONFIG} --out {self.root}'"
        )

    def _total_steps(self, cell: Cell) -> int:
        return cell.config.total_steps(choose_model(cell.config.model).block_size)

    def _run(self, cells: list[Cell], jobs: int, label: str) -> list[Outcome]:
        return run_cells(self.root, cells, [self._total_steps(cell) for cell in cells], jobs, label)

    def _found(self, cells: list[Cell]) -> list[Outcome]:
        return [done for cell in cells if (done := outcome(self.root, cell, self._total_steps(cell))) is not None]

    @staticmethod
    def _chosen(cells: list[Cell], outcomes: list[Outcome]) -> dict[str, dict[float, Outcome]]:
        choosing: dict[str, dict[float, Outcome]] = {}
        for cell, done in zip(cells, outcomes, strict=True):
            choosing.setdefault(cell.model, {})[cell.lr] = done
        return choosing

    def _rates(self, choosing: dict[str, dict[float, Outcome]]) -> dict[str, float]:
        """Each model's best rate by validation loss; a model that diverged at every rate has none."""
        rates = {}
        for model in self.config.models:
            tried = choosing.get(model)
            if tried is None:
                rates[model] = float(self.config.rates(model)[0])
                continue
            best = min(tried, key=lambda rate: tried[rate].validation_loss)
            if math.isfinite(tried[best].validation_loss):
                rates[model] = best
        return rates

    def _steps(self, budget: Budget | None, measure: bool = True) -> dict[str, int]:
        """Steps of every model under a budget of seconds, from its speed, measured once and kept."""
        if budget is None or budget.seconds is None:
            return {}
        file = self.root / STEPS
        if not file.is_file():
            if not measure:
                raise self._half_finished(0, 0, "(the models' speeds)")
            speeds = tokens_per_second(
                {name: self.config.model_options(name) for name in self.config.models}, self.config.common
            )
            write_file(file, json.dumps(speeds, indent=2) + "\n")
        speeds = json.loads(file.read_text())
        per_step = self.config.common.global_batch()
        return {
            name: max(
                1, round(budget.seconds * speed / (per_step * choose_model(self.config.model_options(name)).block_size))
            )
            for name, speed in speeds.items()
        }
