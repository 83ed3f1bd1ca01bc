"""A comparison as data: the file that asks for it, the models that it comes to, and the training runs of each.

Factors, parents and matched sizes are ways to write options down: `unfold` resolves them once, into a plain list of
models. Every model then trains briefly at each of its learning rates, the validation loss chooses one, and it trains at
that rate with every seed. A seed draws the batches, so that all models of a seed see the same text in the same order.
"""

import math
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from itertools import count, product
from typing import Any

import torch

from sympformer.config_checks import check_types
from sympformer.errors import InputError, unknown_name
from sympformer.models import ModelConfig, build_model
from sympformer.models.describe import parameter_counts
from sympformer.training.config import TrainConfig, choose_model, model_options

Options = dict[str, Any]
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
OWN = ("parent", "match", "lr")  # of a model's entry: for the comparison, not for the model
SIZES = ("d_model", "n_layer")


@dataclass(frozen=True)
class Budget:
    """How long a run may train: one of tokens, steps and seconds, or the seconds a model needs for the first two."""

    tokens: int | None = None
    """Training tokens."""
    steps: int | None = None
    """Optimizer steps."""
    seconds: float | None = None
    """Seconds of training; each model's speed is measured first and turns them into steps."""
    seconds_of: str | None = None
    """With tokens or steps: every model has the seconds that this one needs for them."""

    def __post_init__(self) -> None:
        check_types(self)
        given = {name: value for name in ("tokens", "steps", "seconds") if (value := getattr(self, name)) is not None}
        if len(given) != 1 or (self.seconds_of is not None and self.seconds is not None):
            raise InputError(f"a budget is one of tokens, steps and seconds, or of seconds_of and tokens, got {given}")
        for name, value in given.items():
            if not 0 < value < math.inf:
                raise InputError(f"a budget of {value} {name} is not positive and finite")

    @property
    def timed(self) -> bool:
        """Whether models have equal seconds, and therefore steps of their own."""
        return self.seconds is not None or self.seconds_of is not None

    def describe(self) -> str:
        if self.seconds is not None:
            return f"{self.seconds:g} s"
        length = f"{self.tokens:,} tokens" if self.tokens is not None else f"{self.steps:,} steps"
        return length if self.seconds_of is None else f"the seconds that {self.seconds_of} needs for {length}"


@dataclass(frozen=True)
class CompareConfig:
    """Everything that defines a comparison."""

    baseline: str
    """The name of the model that all are compared with."""
    budget: Budget
    """Budget of the runs that are reported."""
    models: dict[str, Options] = field(default_factory=dict)
    """A name for each model, and what it is: 'variant', 'preset' and options of ModelConfig, as in a training config;
    `lr` may stand there too, as one rate or a list, instead of the common ones; `parent`, a model whose options it has
    where it names none of its own; and `match`, a model whose number of parameters it is given, by one of its sizes."""
    factors: dict[str, dict[str, Options]] = field(default_factory=dict)
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
    seeds: list[int] = field(default_factory=lambda: [1, 2, 3, 4, 5])
    """Seeds of the runs that are reported."""
    reference: str | None = None
    """The model that differences are taken to; by default the baseline."""
    families: dict[str, list[str]] = field(default_factory=dict)
    """Groups of models whose differences are corrected together (Holm), by names; the others are a group too."""
    beside: dict[str, dict[str, float]] = field(default_factory=dict)
    """Columns of figures from elsewhere, such as a publication's: heading -> model -> figure."""

    def __post_init__(self) -> None:
        if self.common.steps is not None or self.common.out is not None or "lr" in self.common.model:
            raise InputError("common.steps and common.out follow from the comparison: leave them out")
        if self.common.init_from is not None:
            raise InputError("a comparison trains every model from its own start: leave out common.init_from")
        object.__setattr__(self, "common", self.common.replace(tokens=None))  # the budget says how long
        if not 0 <= self.extend <= 20:
            raise InputError(f"extend must lie between 0 and 20 rates, got {self.extend}")
        if not self.seeds or len(set(self.seeds)) < len(self.seeds):
            raise InputError(f"seeds must be different numbers, at least one, got {self.seeds}")

    def to_dict(self) -> dict[str, Any]:
        return asdict(self) | {"common": self.common.to_dict()}


@dataclass(frozen=True)
class Model:
    """One model of a comparison, resolved."""

    name: str
    options: Options  # what a training config's `model` holds
    rates: list[float]
    parent: str | None = None
    levels: tuple[str, ...] = ()  # of a factorial's cell
    note: str | None = None  # how its size came about

    @property
    def cfg(self) -> ModelConfig:
        return choose_model(self.options)

    def next_rates(self, losses: Mapping[float, float], extend: int) -> list[float]:
        """What to try next: the rates given, then one beyond while the best is the outermost, `extend` each way."""
        if len(self.rates) < 2:
            return []
        if not losses:
            return self.rates
        tried = sorted(losses)
        best = min(tried, key=lambda rate: losses[rate])
        if not math.isfinite(losses[best]) or best not in (tried[0], tried[-1]):
            return []
        low = best == tried[0]
        beyond = [rate for rate in tried if (rate < min(self.rates) if low else rate > max(self.rates))]
        neighbour = tried[1] if low else tried[-2]
        return [float(f"{best * best / neighbour:.6g}")] if len(beyond) < extend else []

    def best_rate(self, losses: Mapping[float, float]) -> float | None:
        """The rate with the lowest loss; None where every one diverged. A single rate is given."""
        finite = {rate: loss for rate, loss in losses.items() if math.isfinite(loss)}
        return self.rates[0] if len(self.rates) == 1 else min(finite, key=lambda rate: finite[rate], default=None)


@dataclass(frozen=True)
class Plan:
    """The models of a comparison, and the cells of its factors that cannot be built, with the reason."""

    config: CompareConfig
    models: dict[str, Model]
    refused: dict[str, str]

    def notes(self) -> list[str]:
        """How sizes came about, and a sentence for every reason why cells are not there."""
        reasons: dict[str, list[str]] = {}
        for name, why in self.refused.items():
            reasons.setdefault(why, []).append(name)
        found = [model.note for model in self.models.values() if model.note is not None]
        return found + [f"Refused: {', '.join(names)}: {why}." for why, names in reasons.items()]

    def run(self, model: str, lr: float, seed: int, budget: Budget, steps: int | None, choosing: bool) -> TrainConfig:
        """The config of one training run; steps: where the budget is in seconds."""
        steps, tokens = (steps, None) if budget.timed else (budget.steps, budget.tokens)
        folder = f"runs/{model}/" + (f"choose-lr{lr:g}-seed{seed}" if choosing else f"final-seed{seed}")
        return self.config.common.replace(
            model=self.models[model].options, lr=float(lr), seed=seed, out=folder, steps=steps, tokens=tokens
        )


def unfold(config: CompareConfig, vocab_size: int | None = None) -> Plan:
    """Resolve factors, parents and sizes. vocab_size: of the text, which `match` needs; else they are left out."""
    entries, levels, refused = dict(config.models), dict[str, tuple[str, ...]](), dict[str, str]()
    cells = _cells(config.factors)
    for name, (place, options) in cells.items():
        levels[name] = place
        try:
            choose_model(model_options(config.common.model, options))
        except InputError as error:
            if name not in entries:  # else it takes the place of a cell that cannot be built
                refused[name] = str(error)
            continue
        if entries.setdefault(name, options) != options:
            raise InputError(f"models.{name} is a cell of the factors too, and has other options there")
    for i, (factor, of_factor) in enumerate(config.factors.items()):
        for level in of_factor:
            of_level = [name for name, place in levels.items() if place[i] == level]
            if all(name in refused for name in of_level):  # it fits nowhere, which is a mistake
                raise InputError(f"factors.{factor}.{level}: no model can be built of it: {refused[of_level[0]]}")
    order = dict.fromkeys([*(name for name in cells if name in entries), *entries])
    models = {name: _resolved(name, entries, config, levels.get(name, ())) for name in order}
    if not models:
        raise InputError("a comparison needs at least one model")
    for name in order:
        if (match := _merged(name, entries).get("match")) is not None and vocab_size is not None:
            models[name] = _sized(models[name], models[match["parameters"]], match["by"], vocab_size)
    _check_names(config, models)
    return Plan(config, models, refused)


def _cells(factors: Mapping[str, Mapping[str, Options]]) -> dict[str, tuple[tuple[str, ...], Options]]:
    """Every combination by name, its levels joined: the levels, and what they say together."""
    for factor, levels in factors.items():
        if not isinstance(levels, Mapping) or len(levels) < 2:
            raise InputError(f"factors.{factor} must name two levels or more")
        for level, options in levels.items():
            if not isinstance(level, str) or not isinstance(options, Mapping):
                raise InputError(f"factors.{factor}.{level} must hold options, {{}} for none, got {options!r}")
    found: dict[str, tuple[tuple[str, ...], Options]] = {}
    for place in product(*factors.values()) if factors else ():
        name, options = "-".join(place), dict[str, Any]()
        if name in found:
            raise InputError(f"the levels {found[name][0]} and {place} would both be called {name}: rename one of them")
        for (factor, levels), level in zip(factors.items(), place, strict=True):
            if twice := sorted(options.keys() & levels[level].keys()):
                raise InputError(
                    f"factors.{factor}.{level} gives {twice[0]}, and so does another factor of the cell {name}: "
                    "an option belongs to one factor"
                )
            options |= levels[level]
        found[name] = place, options
    return found


def _merged(name: str, entries: Mapping[str, Options]) -> Options:
    """What a model's entry says, on top of what its parent's says."""
    chain = [name]
    while (parent := entries[chain[-1]].get("parent")) is not None:
        if not isinstance(parent, str) or parent not in entries:
            raise unknown_name(f"parent of {chain[-1]}", parent, entries)
        if parent in chain:
            raise InputError(f"models.{name}: {' is a change of '.join([*chain, parent])}: that has no beginning")
        chain.append(parent)
    return {option: value for one in reversed(chain) for option, value in entries[one].items()}


def _resolved(name: str, entries: Mapping[str, Options], config: CompareConfig, levels: tuple[str, ...]) -> Model:
    """A model with the options that it has in the end; all that can be wrong with it is said here."""
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise InputError(f"the model name {name!r} must be letters, digits, '.', '_' and '-': it names a folder")
    if not isinstance(entries[name], Mapping):
        raise InputError(f"models.{name} must hold named options such as variant, got {entries[name]!r}")
    own = _merged(name, entries)
    rates = own.get("lr", config.lr)
    rates = list(rates) if isinstance(rates, list) else [rates]
    if not rates or not all(isinstance(rate, int | float) and 0 < rate < 1e3 for rate in rates):
        raise InputError(f"the learning rates of {name} must be positive numbers, got {rates}")
    if len(rates) > 1 and config.choose is None:
        raise InputError(f"{name} has several learning rates: give 'choose' a budget to choose one, or one rate")
    options = model_options(config.common.model, {key: value for key, value in own.items() if key not in OWN})
    _check_match(name, own, entries)
    try:
        choose_model(options)
    except InputError as error:
        raise InputError(f"models.{name}: {error}") from None
    return Model(name, options, [float(rate) for rate in rates], entries[name].get("parent"), levels)


def _check_match(name: str, own: Options, entries: Mapping[str, Options]) -> None:
    match = own.get("match")
    if match is None:
        return
    if not isinstance(match, Mapping) or set(match) != {"parameters", "by"} or match["by"] not in SIZES:
        raise InputError(f"models.{name}.match must name a model and a size, {{parameters: MODEL, by: d_model}}")
    if match["parameters"] not in entries:
        raise unknown_name(f"model to match {name} with", match["parameters"], entries)
    if "match" in _merged(match["parameters"], entries) or match["by"] in own:
        raise InputError(
            f"models.{name}: leave one of {match['by']} and match out, and match a model with its own size"
        )


def parameters(cfg: ModelConfig) -> int:
    """How many a model has; nothing is allocated."""
    with torch.device("meta"):
        return sum(parameter_counts(build_model(cfg)).values())


def _sized(model: Model, other: Model, by: str, vocab_size: int) -> Model:
    """With the size nearest to so many parameters; widths are multiples of the number of heads."""
    vocabulary = {"vocab_size": vocab_size}
    wanted, unit = parameters(choose_model(vocabulary | other.options)), model.cfg.n_head if by == "d_model" else 1
    sizes: dict[int, int] = {}
    for size in (unit * k for k in count(1)):
        with suppress(InputError):  # a width that its heads refuse
            sizes[size] = parameters(choose_model(vocabulary | model.options | {by: size}))
        if size > 1000 * unit:
            raise InputError(f"models.{model.name}: no {by} gives about {wanted:,} parameters")
        if sizes.get(size, 0) >= wanted:
            break
    size = min(sizes, key=lambda size: abs(sizes[size] - wanted))
    note = (
        f"{model.name} has {by} = {size}, where its {sizes[size]:,} parameters are nearest to the {wanted:,} of "
        f"{other.name} ({100 * (sizes[size] / wanted - 1):+.1f} %)."
    )
    return replace(model, options=model.options | {by: size}, note=note)


def _check_names(config: CompareConfig, models: Mapping[str, Model]) -> None:
    """Whoever is named is there."""
    named: list[tuple[str, str | None]] = [("baseline", config.baseline), ("reference", config.reference)]
    named += [("model of the budget (seconds_of)", b.seconds_of) for b in (config.budget, config.choose) if b]
    named += [(f"model of the family {family}", name) for family, names in config.families.items() for name in names]
    named += [(f"model of the column {head}", name) for head, figures in config.beside.items() for name in figures]
    for what, name in named:
        if name is not None and name not in models:
            raise unknown_name(what, name, models)
    for head, figures in config.beside.items():
        if wrong := [figure for figure in figures.values() if type(figure) not in (int, float)]:
            raise InputError(f"beside.{head} must hold a number for each model, got {wrong[0]!r}")
    in_families: Sequence[str] = [name for names in config.families.values() for name in names]
    if len(set(in_families)) < len(in_families):
        raise InputError("a model has one family: " + ", ".join(n for n in models if in_families.count(n) > 1))
