"""A comparison as data: which models, which text, which budget, and the training runs that follow from it.

Every model first trains briefly at each learning rate; the validation loss chooses its rate. Then it trains at that
rate with every seed. A seed draws the batches, so that all models of a seed see the same text in the same order.
"""

import dataclasses
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from sympformer.config_checks import check_types
from sympformer.errors import InputError, unknown_name
from sympformer.studies.results.tables import PUBLISHED
from sympformer.training import TrainConfig
from sympformer.training.choices import choose_model, model_options

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
CHOOSE, FINAL = "choose", "final"


@dataclass(frozen=True)
class Budget:
    """How long a run may train: exactly one of the three."""

    tokens: int | None = None
    """Training tokens."""
    steps: int | None = None
    """Optimizer steps."""
    seconds: float | None = None
    """Seconds of training; each model's speed is measured first and turns them into steps."""

    def __post_init__(self) -> None:
        check_types(self)
        given = [name for name, value in dataclasses.asdict(self).items() if value is not None]
        if len(given) != 1:
            raise InputError(
                f"a budget is one of tokens, steps and seconds, got {' and '.join(given) or 'none of them'}"
            )
        if not 0 < getattr(self, given[0]) < float("inf"):
            raise InputError(f"a budget of {getattr(self, given[0])} {given[0]} is not positive and finite")

    def describe(self) -> str:
        """In words."""
        if self.seconds is not None:
            return f"{self.seconds:g} s"
        return f"{self.tokens:,} tokens" if self.tokens is not None else f"{self.steps:,} steps"


@dataclass(frozen=True)
class Cell:
    """One training run of the grid."""

    model: str
    stage: str
    lr: float
    seed: int
    config: TrainConfig

    @property
    def folder(self) -> str:
        """Its run folder, below the comparison's."""
        rate = f"lr{self.lr:g}-" if self.stage == CHOOSE else ""
        return f"runs/{self.model}/{self.stage}-{rate}seed{self.seed}"

    def describe(self) -> str:
        """For a line of progress."""
        return f"{self.model}, {'rate ' if self.stage == CHOOSE else 'chosen rate '}{self.lr:g}, seed {self.seed}"


@dataclass(frozen=True)
class CompareConfig:
    """Everything that defines a comparison."""

    models: dict[str, dict[str, Any]]
    """A name for each model, and what it is: 'variant', 'preset' and options of ModelConfig, as in a training config;
    `lr` may stand there too, as one rate or a list, instead of the common ones."""
    baseline: str
    """The name of the model that all are compared with."""
    budget: Budget
    """Budget of the runs that are reported."""
    common: TrainConfig = field(default_factory=TrainConfig)
    """What all runs share: model sizes, data (with a share of it for the test), batch size, schedule."""
    lr: list[float] = field(default_factory=lambda: [2e-3, 4e-3, 8e-3, 16e-3])
    """Learning rates to choose from, for every model by itself."""
    extend: int = 3
    """How many rates may be tried beyond either end of a model's own: one at a time, in the same ratio, while its best
    is the outermost."""
    choose: Budget | None = None
    """Budget of the runs that choose the rate; not needed where every model has only one."""
    choose_seed: int = 0
    """Seed of the runs that choose the rate; best not one of the seeds that are reported."""
    seeds: list[int] = field(default_factory=lambda: [1, 2, 3])
    """Seeds of the runs that are reported."""
    published: dict[str, dict[str, float]] = field(default_factory=dict)
    """What a publication reports for models of this comparison, shown beside our figures: by name, any of `last` and
    `best` (validation loss, nats per token) and `seconds` (of training)."""

    def __post_init__(self) -> None:
        if not self.models:
            raise InputError("a comparison needs at least one model")
        for name, options in self.models.items():
            if not isinstance(name, str) or not NAME.fullmatch(name):
                raise InputError(
                    f"the model name {name!r} must be letters, digits, '.', '_' and '-': it names a folder"
                )
            if not isinstance(options, Mapping):
                raise InputError(f"models.{name} must hold named options such as variant, got {options!r}")
            self._check_model(name)
        if self.baseline not in self.models:
            raise unknown_name("baseline", self.baseline, self.models)
        self._check_published()
        if not 0 <= self.extend <= 20:
            raise InputError(f"extend must lie between 0 and 20 rates, got {self.extend}")
        if not self.seeds or len(set(self.seeds)) < len(self.seeds):
            raise InputError(f"seeds must be different numbers, at least one, got {self.seeds}")
        if self.choose is None and (several := [name for name in self.models if len(self.rates(name)) > 1]):
            raise InputError(
                f"{several[0]} has several learning rates: give 'choose' a budget to choose one, or one rate"
            )
        if self.common.steps is not None or self.common.out is not None or "lr" in self.common.model:
            raise InputError("common.steps and common.out follow from the comparison: leave them out")
        if self.common.init_from is not None:
            raise InputError("a comparison trains every model from its own start: leave out common.init_from")
        # the budget says how long; one that began when this had a default of its own is the same comparison
        object.__setattr__(self, "common", self.common.replace(tokens=None))

    def _check_model(self, name: str) -> None:
        rates = self.rates(name)
        if not rates or not all(isinstance(rate, int | float) and 0 < rate < 1e3 for rate in rates):
            raise InputError(f"the learning rates of {name} must be positive numbers, got {rates}")
        try:
            choose_model(self.model_options(name))
        except InputError as error:
            raise InputError(f"models.{name}: {error}") from None

    def _check_published(self) -> None:
        for name, figures in self.published.items():
            if name not in self.models:
                raise unknown_name("published model", name, self.models)
            for what, figure in figures.items():
                if what not in PUBLISHED:
                    raise unknown_name("published figure", what, PUBLISHED)
                if isinstance(figure, bool) or not isinstance(figure, int | float):
                    raise InputError(f"published.{name}.{what} must be a number, got {figure!r}")

    def rates(self, model: str) -> list[float]:
        """The learning rates of a model."""
        own = self.models[model].get("lr", self.lr)
        return list(own) if isinstance(own, list) else [own]

    def model_options(self, model: str) -> dict[str, Any]:
        """What a training config's `model` would hold."""
        return model_options(self.common.model, self.models[model])

    def choosing_cells(self, losses: Mapping[str, Mapping[float, float]], steps: Mapping[str, int]) -> list[Cell]:
        """The next runs that choose the rates, by the validation losses of those tried so far.

        steps: of the models whose budget is in seconds.
        """
        if self.choose is None:
            return []
        return [
            self._cell(model, CHOOSE, rate, self.choose_seed, self.choose, steps)
            for model in self.models
            if len(self.rates(model)) > 1
            for rate in (self._rates_beyond(model, losses[model]) if model in losses else self.rates(model))
        ]

    def _rates_beyond(self, model: str, losses: Mapping[float, float]) -> list[float]:
        """The rate that follows where the best so far is the outermost; none where it is not, or at the limit."""
        tried, given = sorted(losses), self.rates(model)
        best = min(tried, key=lambda rate: losses[rate])
        if not math.isfinite(losses[best]) or best not in (tried[0], tried[-1]):
            return []
        neighbour, beyond = (
            (tried[1], [rate for rate in tried if rate < min(given)])
            if best == tried[0]
            else (tried[-2], [rate for rate in tried if rate > max(given)])
        )
        return [float(f"{best * best / neighbour:.6g}")] if len(beyond) < self.extend else []

    def final_cells(self, rates: Mapping[str, float], steps: Mapping[str, int]) -> Iterator[Cell]:
        """The runs that are reported, at the chosen rates: one seed of all models, then the next."""
        for seed in self.seeds:
            for model in self.models:
                if model in rates:
                    yield self._cell(model, FINAL, rates[model], seed, self.budget, steps)

    def _cell(self, model: str, stage: str, lr: float, seed: int, budget: Budget, steps: Mapping[str, int]) -> Cell:
        length = {"steps": budget.steps, "tokens": budget.tokens}
        if budget.seconds is not None:
            length = {"steps": steps[model], "tokens": None}
        config = self.common.replace(model=self.model_options(model), lr=float(lr), seed=seed, **length)
        return Cell(model, stage, float(lr), seed, config)

    def to_dict(self) -> dict[str, Any]:
        """All fields as plain values."""
        return dataclasses.asdict(self) | {"common": self.common.to_dict()}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "CompareConfig":
        """The config that `to_dict` wrote."""
        budgets = {name: Budget(**values[name]) for name in ("choose", "budget") if values.get(name)}
        values = {"extend": 0} | values  # one that began before rates were extended
        return cls(**values | {"common": TrainConfig.from_dict(values["common"])} | budgets)
