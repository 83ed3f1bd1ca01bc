"""A comparison as data: which models, which text, which budget, and the training runs that follow from it.

Every model first trains briefly at each learning rate; the validation loss chooses its rate. Then it trains at that
rate with every seed. A seed draws the batches, so that all models of a seed see the same text in the same order.
"""

import dataclasses
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from sympformer.data import Tokenizer
from sympformer.errors import InputError, unknown_name
from sympformer.models import ModelConfig
from sympformer.studies.compare.budgets import Budget
from sympformer.studies.compare.factorial import Factorial
from sympformer.studies.compare.matching import Match, check_match, matched, parameters
from sympformer.studies.compare.rates import ChooseIn, Losses, RateGroup
from sympformer.training import TrainConfig
from sympformer.training.choices import choose_model, model_options

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
CHOOSE, FINAL = "choose", "final"

PUBLISHED = ("last", "best", "seconds")  # what may stand beside our figures


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

    baseline: str
    """The name of the model that all are compared with."""
    budget: Budget
    """Budget of the runs that are reported."""
    models: dict[str, dict[str, Any]] = field(default_factory=dict)
    """A name for each model, and what it is: 'variant', 'preset' and options of ModelConfig, as in a training config;
    `lr` may stand there too, as one rate or a list, instead of the common ones; `parent`, a model whose options it has
    where it names none of its own; and `match`, a model whose number of parameters it is given, by one of its sizes."""
    factors: dict[str, dict[str, dict[str, Any]]] = field(default_factory=dict)
    """Factors, their levels, and the options of each level: all combinations that can be built are models too, under
    the names of their levels joined by '-'. A model of the name of one that cannot takes its place."""
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
    choose_in: ChooseIn | None = None
    """With factors: choose one rate for each level of one of them, in some of its cells, instead of one a model."""
    seeds: list[int] = field(default_factory=lambda: [1, 2, 3, 4, 5])
    """Seeds of the runs that are reported."""
    reference: str | None = None
    """The model that differences are taken to; by default the baseline."""
    families: dict[str, list[str]] = field(default_factory=dict)
    """Groups of models whose differences are corrected together (Holm), by names; the others are a group too."""
    published: dict[str, dict[str, float]] = field(default_factory=dict)
    """What a publication reports for models of this comparison, shown beside our figures: by name, any of `last` and
    `best` (validation loss, nats per token) and `seconds` (of training)."""

    def __post_init__(self) -> None:
        self._check_common()
        object.__setattr__(self, "models", self._with_cells())
        if not self.models:
            raise InputError("a comparison needs at least one model")
        for name in self.models:
            self._check_model(name)
        for what, wanted in (("baseline", self.baseline), ("reference", self.reference)):
            if wanted is not None and wanted not in self.models:
                raise unknown_name(what, wanted, self.models)
        self._check_budgets()
        self._check_families()
        self._check_published()
        if not 0 <= self.extend <= 20:
            raise InputError(f"extend must lie between 0 and 20 rates, got {self.extend}")
        if not self.seeds or len(set(self.seeds)) < len(self.seeds):
            raise InputError(f"seeds must be different numbers, at least one, got {self.seeds}")

    # --- the models

    @cached_property
    def factorial(self) -> Factorial:
        """The models that follow from the factors."""
        return Factorial(self.factors, self.common.model)

    @property
    def refused(self) -> dict[str, str]:
        """Cells of the factorial that cannot be built, and why; those that a model of their name stands for are not."""
        return {name: why for name, why in self.factorial.refused.items() if name not in self.models}

    def refusals(self) -> list[str]:
        """A sentence for every reason, with the cells that it is the reason of."""
        why = self.refused
        return [
            f"Refused: {', '.join(name for name in why if why[name] == reason)}: {reason}."
            for reason in dict.fromkeys(why.values())
        ]

    @cached_property
    def sizes(self) -> dict[str, Match]:
        """The sizes that `match` has found, by model: empty until `sized` has looked for them."""
        return {}

    def sized(self, tokenizer: Tokenizer) -> "CompareConfig":
        """The same with the sizes that `match` asks for: they depend on the vocabulary, and so on the text."""
        found = dataclasses.replace(self)
        found.sizes.update({name: self._matched(name, tokenizer) for name in self.models if self.match_of(name)})
        return found

    def _matched(self, name: str, tokenizer: Tokenizer) -> Match:
        options, match = self.model_options(name), self.match_of(name)
        assert match is not None

        def model(size: dict[str, int]) -> ModelConfig:
            return choose_model(options | size, tokenizer)

        wanted = parameters(choose_model(self.model_options(match["parameters"]), tokenizer))
        return matched(model, match["by"], wanted)

    def matches(self) -> list[str]:
        """A sentence for every size that was found."""
        wanted = {name: (self.match_of(name) or {})["parameters"] for name in self.sizes}
        return [size.describe(name, wanted[name]) for name, size in self.sizes.items()]

    def match_of(self, model: str) -> dict[str, str] | None:
        """The model whose parameters this one is given, and by which of its sizes; None for most."""
        return self.own_options(model).get("match")

    def rates(self, model: str) -> list[float]:
        """The learning rates of a model."""
        own = self.own_options(model).get("lr", self.lr)
        return list(own) if isinstance(own, list) else [own]

    def own_options(self, model: str) -> dict[str, Any]:
        """What a model's entry says, on top of what its parent's says."""
        chain = [model]
        while (parent := self.models[chain[-1]].get("parent")) is not None:
            if not isinstance(parent, str) or parent not in self.models:
                raise unknown_name(f"parent of {chain[-1]}", parent, self.models)
            if parent in chain:
                raise InputError(f"models.{model}: {' is a change of '.join([*chain, parent])}: that has no beginning")
            chain.append(parent)
        merged: dict[str, Any] = {}
        for name in reversed(chain):
            merged |= self.models[name]
        return merged

    def model_options(self, model: str) -> dict[str, Any]:
        """What a training config's `model` would hold."""
        own = {name: value for name, value in self.own_options(model).items() if name not in ("parent", "match")}
        size = {found.by: found.size} if (found := self.sizes.get(model)) else {}
        return model_options(self.common.model, own | size)

    # --- the runs

    @cached_property
    def rate_groups(self) -> list[RateGroup]:
        """Who shares a rate, and where it is chosen: every model by itself, or all cells of a factor's level."""
        groups = self._level_groups() if self.choose_in is not None else []
        taken = {name for group in groups for name in group.members}
        alone = [
            RateGroup(name, (name,), (name,), tuple(self.rates(name))) for name in self.models if name not in taken
        ]
        return [*groups, *alone]

    def choosing_cells(self, losses: Losses, steps: Mapping[str, int]) -> list[Cell]:
        """The next runs that choose the rates, by the validation losses of those tried so far.

        steps: of the models whose budget is in seconds.
        """
        if self.choose is None:
            return []
        rates = {name: g.next_rates(losses, self.extend) for g in self.rate_groups for name in g.chosen_in}
        return [
            self._cell(model, CHOOSE, rate, self.choose_seed, self.choose, steps)
            for model in self.models
            for rate in rates.get(model, ())
        ]

    def chosen_rates(self, losses: Losses) -> dict[str, float]:
        """Every model's rate; those that diverged at every one have none."""
        best = {name: group.best(losses) for group in self.rate_groups for name in group.members}
        return {name: rate for name in self.models if (rate := best[name]) is not None}

    def final_cells(self, rates: Mapping[str, float], steps: Mapping[str, int]) -> Iterator[Cell]:
        """The runs that are reported, at the chosen rates: one seed of all models, then the next."""
        for seed in self.seeds:
            for model in self.models:
                if model in rates:
                    yield self._cell(model, FINAL, rates[model], seed, self.budget, steps)

    def _cell(self, model: str, stage: str, lr: float, seed: int, budget: Budget, steps: Mapping[str, int]) -> Cell:
        length = {"steps": budget.steps, "tokens": budget.tokens}
        if budget.timed:
            length = {"steps": steps[model], "tokens": None}
        config = self.common.replace(model=self.model_options(model), lr=float(lr), seed=seed, **length)
        return Cell(model, stage, float(lr), seed, config)

    def differences(self, other: "CompareConfig") -> list[str]:
        """What makes runs of the two different ones. Rates are not looked at: every run is held against its own config.

        A table may be read in another way (factors, reference, families, parents), and have more seeds.
        """
        options = [
            {name: (one.model_options(name), one.match_of(name)) for name in one.models} for one in (self, other)
        ]
        found = ["models"] if options[0] != options[1] else []
        found += [name for name in ("budget", "common") if getattr(self, name) != getattr(other, name)]
        return found + (["seeds"] if set(other.seeds) - set(self.seeds) else [])

    def to_dict(self) -> dict[str, Any]:
        """All fields as plain values."""
        return dataclasses.asdict(self) | {"common": self.common.to_dict()}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "CompareConfig":
        """The config that `to_dict` wrote."""
        parts: dict[str, Any] = {name: Budget(**values[name]) for name in ("choose", "budget") if values.get(name)}
        if values.get("choose_in"):
            parts["choose_in"] = ChooseIn(**values["choose_in"])
        values = {"extend": 0} | values  # one that began before rates were extended
        return cls(**values | {"common": TrainConfig.from_dict(values["common"])} | parts)

    # --- parts

    def _with_cells(self) -> dict[str, dict[str, Any]]:
        """The cells of the factorial, and the models by name; a name that is both has to be the same."""
        for name, options in self.models.items():
            if not isinstance(name, str) or not isinstance(options, Mapping):
                raise InputError(f"models.{name} must hold named options such as variant, got {options!r}")
            if self.factorial.models.get(name, options) != options:
                raise InputError(f"models.{name} is a cell of the factors too, and has other options there")
        return {
            name: dict(self.models[name] if name in self.models else self.factorial.models[name])
            for name in dict.fromkeys([*self.factorial.cells, *self.models])
            if name in self.models or name in self.factorial.models
        }

    def _level_groups(self) -> list[RateGroup]:
        assert self.choose_in is not None
        factor, wanted = self.choose_in.factor, self.choose_in.cells
        if factor not in self.factors:
            raise unknown_name("factor to choose rates for", factor, self.factors)
        rests = {name: self.factorial.rest_of(name, factor) for name in self.factorial.cells}
        for cell in wanted:
            if cell not in rests.values():
                raise unknown_name("cell to choose rates in", cell, dict.fromkeys(rests.values()))
        place, groups = list(self.factors).index(factor), []
        for level in self.factors[factor]:
            members = [n for n, levels in self.factorial.cells.items() if levels[place] == level and n in self.models]
            chosen_in = [name for name in members if rests[name] in wanted]
            if not chosen_in:
                raise InputError(f"choose_in: {level} has none of the cells {', '.join(wanted)} to choose its rate in")
            rates = {tuple(self.rates(name)) for name in members}
            if len(rates) > 1:
                raise InputError(f"choose_in: the cells of {level} are given different rates, and are to share one")
            groups.append(RateGroup(level, tuple(members), tuple(chosen_in), rates.pop()))
        return groups

    def _check_model(self, name: str) -> None:
        if not NAME.fullmatch(name):
            raise InputError(f"the model name {name!r} must be letters, digits, '.', '_' and '-': it names a folder")
        rates = self.rates(name)
        if not rates or not all(isinstance(rate, int | float) and 0 < rate < 1e3 for rate in rates):
            raise InputError(f"the learning rates of {name} must be positive numbers, got {rates}")
        self._check_match(name)
        try:
            choose_model(self.model_options(name))
        except InputError as error:
            raise InputError(f"models.{name}: {error}") from None

    def _check_match(self, name: str) -> None:
        own = self.own_options(name)
        match = self.match_of(name)
        if match is None:
            return
        check_match(name, match)
        if match["parameters"] not in self.models:
            raise unknown_name(f"model to match {name} with", match["parameters"], self.models)
        if self.match_of(match["parameters"]) is not None:
            raise InputError(
                f"models.{name}: {match['parameters']} is matched itself: name a model with sizes of its own"
            )
        if match["by"] in own:
            raise InputError(f"models.{name} gives {match['by']} and has it matched too: leave one of them out")

    def _check_budgets(self) -> None:
        for budget in (self.budget, self.choose):
            if budget is not None and budget.seconds_of is not None and budget.seconds_of not in self.models:
                raise unknown_name("model of the budget (seconds_of)", budget.seconds_of, self.models)
        several = [group for group in self.rate_groups if len(group.given) > 1]
        if self.choose is None and several:
            raise InputError(
                f"{several[0].name} has several learning rates: give 'choose' a budget to choose one, or one rate"
            )

    def _check_families(self) -> None:
        seen: dict[str, str] = {}
        for family, names in self.families.items():
            for name in names:
                if name not in self.models:
                    raise unknown_name(f"model of the family {family}", name, self.models)
                if seen.setdefault(name, family) != family:
                    raise InputError(f"{name} is in the families {seen[name]} and {family}: a model has one family")

    def _check_common(self) -> None:
        if self.common.steps is not None or self.common.out is not None or "lr" in self.common.model:
            raise InputError("common.steps and common.out follow from the comparison: leave them out")
        if self.common.init_from is not None:
            raise InputError("a comparison trains every model from its own start: leave out common.init_from")
        # the budget says how long; one that began when this had a default of its own is the same comparison
        object.__setattr__(self, "common", self.common.replace(tokens=None))

    def _check_published(self) -> None:
        for name, figures in self.published.items():
            if name not in self.models:
                raise unknown_name("published model", name, self.models)
            for what, figure in figures.items():
                if what not in PUBLISHED:
                    raise unknown_name("published figure", what, PUBLISHED)
                if isinstance(figure, bool) or not isinstance(figure, int | float):
                    raise InputError(f"published.{name}.{what} must be a number, got {figure!r}")
