"""What a comparison came to, as plain data: the one source of tables, plots and the page. Written as results.json."""

import dataclasses
import json
import math
import types
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

from sympformer.errors import InputError
from sympformer.files import read_json

FILE = "results.json"
NOT_SHOWN = "no difference shown"
LEVEL = 0.05  # of a test; intervals hold with the rest, 95 %
State = Literal["ranked", "failed audit", "not audited", "no figures"]


@dataclass(frozen=True)
class Spread:
    """A figure over the seeds. sd: the standard deviation between them, None for a single one."""

    mean: float
    sd: float | None
    values: list[float]


@dataclass(frozen=True)
class Difference:
    """One figure minus another, paired by seed; lower is better. low, high: the 95 % interval, None for one pair.

    p: two-sided, of a difference of zero. p_holm: after Holm's correction for all of its family, None outside one.
    """

    mean: float
    low: float | None
    high: float | None
    p: float | None = None
    p_holm: float | None = None

    @property
    def alone(self) -> str:
        """Better, worse or neither by its own interval."""
        if self.low is None or self.high is None or self.low <= 0 <= self.high:
            return NOT_SHOWN
        return "better" if self.high < 0 else "worse"

    @property
    def verdict(self) -> str:
        """The one that counts: after the correction, where there is one."""
        return self.alone if self.p_holm is None or self.p_holm < LEVEL else NOT_SHOWN


@dataclass(frozen=True)
class Effect:
    """What a level of a factor does, or (the interaction) what two levels of two factors do beyond the sum of both."""

    factors: list[str]  # one, or two for an interaction
    levels: list[str]  # of those factors
    against: list[str]  # their first levels
    pairs: int  # complete ones: all cells of them are there
    possible: int  # of the whole product
    difference: Difference | None  # None without a complete pair


@dataclass(frozen=True)
class Curve:
    """Validation and training loss of one run on its way. seconds: by the run's own clock."""

    seed: int
    tokens: list[int]
    seconds: list[float]
    loss: list[float]
    train_tokens: list[int] = field(default_factory=list)
    train_loss: list[float] = field(default_factory=list)


@dataclass(frozen=True)
class ProbeFigure:
    """A downstream probe: the share of right answers, and what guessing would give."""

    accuracy: Spread
    chance: float
    items: int


@dataclass(frozen=True)
class ModelResult:
    """One model of the comparison. Figures are None where the model has no finished run to take them from."""

    name: str
    variant: str
    preset: str | None
    parameters: int
    passes_a_layer: float  # kernel passes, counted
    passes_a_token: float | None  # kernel passes of training, by tokens trained on
    lr: float | None
    rates: dict[str, float | None]  # validation loss at every rate tried; None: diverged
    diverged: list[str]  # why runs left the finite numbers
    audit: dict[str, Any] | None  # AuditReport.to_dict() of the worst run
    rank: int | None  # by the metric on test data; None for a model that failed its audit or has no figures
    last: Spread | None  # test loss of the last weights, nats per token
    best: Spread | None  # test loss of the weights that were best on validation data
    bits_per_byte: Spread | None  # of the last weights, on test data
    difference: Difference | None  # of the metric: this model minus the reference; None for the reference itself
    tokens_to_baseline: float | None  # mean tokens to reach the baseline's final validation loss of the same seed
    seconds_to_baseline: float | None  # the same in seconds, at the speed measured
    reached: int  # by how many seeds
    tokens_per_second: float | None  # measured beside the others
    memory_mb: float | None  # peak memory of a training step
    seconds: float | None  # mean training time of a run, as its own clock saw it
    probes: dict[str, ProbeFigure] = field(default_factory=dict)
    curves: list[Curve] = field(default_factory=list)
    layers: list[dict[str, float]] = field(default_factory=list)  # final scalars and momentum_rms by depth, first seed
    samples: list[dict[str, str]] = field(default_factory=list)  # prompt, text
    code: list[str] = field(default_factory=list)  # what trained the runs, in short; empty where nobody noted it
    parent: str | None = None  # the model that this one is a change of
    changes: list[str] = field(default_factory=list)  # the options that differ from the parent's, in words
    to_parent: Difference | None = None  # of the metric: this model minus its parent

    @property
    def validation(self) -> tuple[float, float] | None:
        """Last and best validation loss, means over the seeds: what publications often report."""
        if self.last is None or not self.curves:
            return None
        ends = [(curve.loss[-1], min(curve.loss)) for curve in self.curves]
        last, best = (sum(column) / len(ends) for column in zip(*ends, strict=True))
        return last, best

    @property
    def tokens(self) -> int | None:
        return self.curves[0].tokens[-1] if self.last is not None and self.curves else None

    @property
    def passed(self) -> bool:
        return self.audit is not None and bool(self.audit["passed"])


@dataclass(frozen=True)
class Results:
    """All models of a comparison, with what is needed to make it again."""

    title: str
    baseline: str | None
    metric: str  # "loss" or "bits_per_byte"
    budget: str
    seeds: list[int]
    models: list[ModelResult]
    data: dict[str, Any]  # corpus, tokenizer, tokens by split
    environment: dict[str, Any]
    config: dict[str, Any]
    notes: list[str] = field(default_factory=list)
    scored: str = "test"  # the split of the losses
    reference: str | None = None  # the model that differences are taken to, where it is not the baseline
    beside: dict[str, dict[str, float]] = field(default_factory=dict)  # heading -> model -> somebody else's figure
    factors: dict[str, list[str]] = field(default_factory=dict)  # of a factorial, with their levels
    refused: dict[str, str] = field(default_factory=dict)  # cells that cannot be built, and why
    effects: list[Effect] = field(default_factory=list)  # of one factor, then of two

    @property
    def against(self) -> str | None:
        """The model that differences are taken to."""
        return self.reference or self.baseline

    @property
    def corrected(self) -> bool:
        """Whether the differences were corrected for their number."""
        return any(model.difference is not None and model.difference.p_holm is not None for model in self.models)

    @property
    def mixed_code(self) -> list[str]:
        """The codes under this table where they are several, else none."""
        found = list(dict.fromkeys(code for model in self.models for code in model.code))
        return found if len(found) > 1 else []

    def role(self, model: ModelResult) -> str | None:
        """What a model is to the others, if anything."""
        return {self.baseline: "baseline", self.reference: "reference"}.get(model.name)

    def state(self, model: ModelResult) -> State:
        """Whether a model may stand in a ranking, and if not, why."""
        if self.metric_of(model) is None:
            return "no figures"
        if model.audit is None:
            return "not audited"
        return "ranked" if model.passed else "failed audit"

    def ranked(self) -> list[ModelResult]:
        """Ranked models first, best first; then those without a rank."""
        return sorted(self.models, key=lambda model: (model.rank is None, model.rank or 0))

    def metric_of(self, model: ModelResult) -> Spread | None:
        """The figure that ranks."""
        return model.last if self.metric == "loss" else model.bits_per_byte

    def mean(self, model: ModelResult) -> float:
        figure = self.metric_of(model)
        return math.nan if figure is None else figure.mean

    def to_json(self) -> str:
        return json.dumps(dataclasses.asdict(self), indent=1) + "\n"

    @classmethod
    def load(cls, file: Path) -> "Results":
        try:
            found: Results = _made(cls, read_json(file))
            return found
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise InputError(f"{file} does not read ({error}): run 'sympformer compare' again to write it") from error


def _made(kind: Any, value: Any) -> Any:
    """A value of JSON as what its annotation says: records, and lists, dicts and options of them."""
    if get_origin(kind) is types.UnionType:
        return None if value is None else _made(get_args(kind)[0], value)
    if isinstance(kind, type) and dataclasses.is_dataclass(kind):
        hints = get_type_hints(kind)
        return kind(**{name: _made(hints[name], one) for name, one in value.items()})
    if get_origin(kind) is list:
        return [_made(get_args(kind)[0], one) for one in value]
    if get_origin(kind) is dict:
        return {name: _made(get_args(kind)[1], one) for name, one in value.items()}
    return value
