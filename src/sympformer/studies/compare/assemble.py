"""From scored run folders to `Results`."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from sympformer.data import Prepared
from sympformer.errors import InputError
from sympformer.models import ModelConfig, build_model
from sympformer.models.describe import kernel_passes, parameter_counts
from sympformer.provenance import Code, distinct, environment
from sympformer.studies.results.results import Curve, Difference, Effect, ModelResult, ProbeFigure, Results, Spread
from sympformer.studies.results.statistics import corrected, effects, first_reach, paired_difference, spread
from sympformer.training.config import TrainConfig, load_config
from sympformer.training.metrics import read_metrics
from sympformer.training.run import CONFIG, MODEL

METRICS = ("loss", "bits_per_byte")
MOST = 100  # points of a training curve that are kept
MIXED = "The runs were made by different code ({}): a difference between models may come from that."


@dataclass(frozen=True)
class ScoredRun:
    """A finished run with its score (see `sympformer.studies.scoring.score`)."""

    folder: Path
    score: dict[str, Any]

    @cached_property
    def config(self) -> TrainConfig:
        return load_config(self.folder / CONFIG)

    @cached_property
    def cfg(self) -> ModelConfig:
        return ModelConfig.load(self.folder / MODEL)

    @cached_property
    def metrics(self) -> list[dict[str, Any]]:
        """The lines of metrics."""
        return list(read_metrics(self.folder))

    @cached_property
    def evaluations(self) -> list[dict[str, Any]]:
        """Those with a validation loss."""
        return [record for record in self.metrics if "validation_loss" in record]

    @property
    def curve(self) -> Curve:
        rows = self.evaluations
        train = thinned([(record["tokens"], record["loss"]) for record in self.metrics if "loss" in record])
        return Curve(
            self.config.seed,
            [row["tokens"] for row in rows],
            [row["seconds"] for row in rows],
            [row["validation_loss"] for row in rows],
            [tokens for tokens, _ in train],
            [loss for _, loss in train],
        )

    @property
    def passed_over(self) -> list[str]:
        """Checkpoints that were damaged, in a sentence each."""
        return list(self.score.get("passed_over", []))

    def figure(self, metric: str) -> float:
        """On test data, with the last weights."""
        return float(self.score["last"][metric])


def thinned(points: Sequence[tuple[int, float]]) -> list[tuple[int, float]]:
    """At most MOST points of a curve: the means of as many neighbours as it takes, each at its last place."""
    size = math.ceil(len(points) / MOST)
    groups = [points[i : i + size] for i in range(0, len(points), size or 1)]
    return [(group[-1][0], sum(loss for _, loss in group) / len(group)) for group in groups]


@dataclass(frozen=True)
class Entry:
    """One model's part of the comparison. diverged: why runs are missing; then it has no figures."""

    name: str
    options: dict[str, Any]
    cfg: ModelConfig
    runs: list[ScoredRun]
    lr: float | None = None
    rates: Mapping[float, float] | None = None  # validation loss at every rate tried, inf: diverged
    diverged: tuple[str, ...] = ()
    tokens_per_second: float | None = None
    memory_mb: float | None = None
    codes: tuple[Code, ...] = ()  # that trained all its runs, those that chose the rate too
    parent: str | None = None  # the model that it is a change of

    @property
    def whole(self) -> bool:
        """Whether it has all its figures."""
        return bool(self.runs) and not self.diverged


def model_results(
    entries: Sequence[Entry],
    baseline: str | None,
    metric: str,
    reference: str | None = None,
    families: Mapping[str, Sequence[str]] | None = None,
) -> list[ModelResult]:
    """The figures of every model, ranked by the metric; models that failed their audit are not.

    reference: the model that differences are taken to, by default the baseline. families: of differences that are
    corrected together; the models in none of them are one more.
    """
    by_name = {entry.name: entry for entry in entries}
    results = [_figures(entry, by_name, baseline, reference or baseline, metric) for entry in entries]
    figures = {result.name: _metric(result, metric) for result in results if result.passed}
    order = sorted((figure.mean, name) for name, figure in figures.items() if figure is not None)
    ranks = {name: i for i, (_, name) in enumerate(order, start=1)}
    family_of = {name: family for family, names in (families or {}).items() for name in names}
    counted = [result for result in results if result.passed]
    difference: dict[str, Difference] = {}
    for family in dict.fromkeys(family_of.get(result.name) for result in counted):
        members = [result for result in counted if family_of.get(result.name) == family]
        difference |= corrected({r.name: r.difference for r in members if r.difference is not None})
    to_parent = corrected({r.name: r.to_parent for r in counted if r.to_parent is not None})
    return [
        replace(
            result,
            rank=ranks.get(result.name),
            difference=difference.get(result.name, result.difference),
            to_parent=to_parent.get(result.name, result.to_parent),
        )
        for result in results
    ]


def effects_of(
    models: Sequence[ModelResult], metric: str, factors: Mapping[str, list[str]], cells: Mapping[str, tuple[str, ...]]
) -> list[Effect]:
    """The effects and interactions of a factorial, from its ranked cells. cells: name -> levels."""
    ranked = {m.name: figure for m in models if m.rank is not None and (figure := _metric(m, metric)) is not None}
    figures = {levels: ranked[name].values for name, levels in cells.items() if name in ranked}
    return effects(factors, figures)


def _metric(result: ModelResult, metric: str) -> Spread | None:
    return result.last if metric == "loss" else result.bits_per_byte


def _minus(entry: Entry, other: Entry | None, metric: str) -> Difference | None:
    """A model minus another, where both are whole."""
    if other is None or other is entry or not (entry.whole and other.whole) or len(other.runs) != len(entry.runs):
        return None
    return paired_difference([run.figure(metric) for run in entry.runs], [run.figure(metric) for run in other.runs])


def _changes(entry: Entry, parent: Entry) -> list[str]:
    """The options in which a model differs from its parent; where only one of them names it, the other's own value."""

    def value(of: Entry, name: str) -> object:
        return of.options.get(name, of.cfg.to_dict().get(name, "none"))

    names = dict.fromkeys([*entry.options, *parent.options])
    return [
        f"{name} {_word(value(parent, name))} → {_word(value(entry, name))}"
        for name in names
        if value(entry, name) != value(parent, name)
    ]


def _word(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _figures(
    entry: Entry, by_name: Mapping[str, Entry], baseline: str | None, reference: str | None, metric: str
) -> ModelResult:
    model = build_model(entry.cfg, seed=0)
    whole, first = entry.whole, by_name.get(baseline or "")
    runs = entry.runs if whole else []
    parent = by_name.get(entry.parent or "")
    reach = _reach(entry, first) if whole and first is not None and len(first.runs) == len(runs) else []
    reached = [tokens for tokens in reach if tokens is not None]
    tokens = sum(reached) / len(reached) if reached and len(reached) == len(reach) else None
    return ModelResult(
        name=entry.name,
        variant=entry.options.get("variant", entry.cfg.architecture),
        preset=entry.options.get("preset"),
        parameters=sum(parameter_counts(model).values()),
        passes_a_layer=kernel_passes(model) / entry.cfg.n_layer,
        passes_a_token=kernel_passes(model) / (runs[0].config.batch_size * entry.cfg.block_size) if whole else None,
        lr=entry.lr,
        rates={f"{lr:g}": loss if math.isfinite(loss) else None for lr, loss in (entry.rates or {}).items()},
        diverged=list(entry.diverged),
        audit=_worst_audit(entry.runs),
        rank=None,
        last=spread([run.figure("loss") for run in runs]) if whole else None,
        best=spread([float(run.score["best"]["loss"]) for run in runs]) if whole else None,
        bits_per_byte=spread([run.figure("bits_per_byte") for run in runs]) if whole else None,
        difference=_minus(entry, by_name.get(reference or ""), metric),
        tokens_to_baseline=tokens,
        seconds_to_baseline=tokens / entry.tokens_per_second if tokens and entry.tokens_per_second else None,
        reached=len(reached),
        tokens_per_second=entry.tokens_per_second,
        memory_mb=entry.memory_mb,
        seconds=sum(run.evaluations[-1]["seconds"] for run in runs) / len(runs) if whole else None,
        probes=_probes(runs),
        curves=[run.curve for run in entry.runs],
        layers=runs[0].evaluations[-1].get("layers", []) if whole else [],
        samples=runs[0].score["samples"] if whole else [],
        code=[code.label for code in distinct(entry.codes)],
        parent=entry.parent,
        changes=_changes(entry, parent) if parent is not None else [],
        to_parent=_minus(entry, parent, metric),
    )


def _reach(entry: Entry, reference: Entry) -> list[float | None]:
    """Tokens to the baseline's final validation loss, seed by seed."""
    curves = [(run.curve, other.curve) for run, other in zip(entry.runs, reference.runs, strict=True)]
    return [first_reach(mine.tokens, mine.loss, other.loss[-1]) for mine, other in curves]


def _worst_audit(runs: Sequence[ScoredRun]) -> dict[str, Any] | None:
    """A failed audit if there is one, otherwise the one that came nearest to failing."""
    audits = [run.score["audit"] for run in runs]
    return max(
        audits,
        key=lambda audit: (
            not audit["passed"],
            max(
                (float(row["deviation"]) / row["tolerance"] for row in audit["rows"] if row["deviation"] is not None),
                default=0,
            ),
        ),
        default=None,
    )


def _probes(runs: Sequence[ScoredRun]) -> dict[str, ProbeFigure]:
    if not runs:
        return {}
    return {
        name: ProbeFigure(
            spread([run.score["probes"][name]["accuracy"] for run in runs]), probe["chance"], probe["items"]
        )
        for name, probe in runs[0].score["probes"].items()
    }


def one_code(codes: Iterable[Code], advice: str, mixed: bool) -> None:
    """Refuse runs that different code has made, unless that is asked for. advice: what else to do."""
    found = distinct(codes)
    if len(found) > 1 and not mixed:
        raise InputError(
            f"the runs were made by different code ({labels(found)}): {advice}, "
            "or mix them and have the table say so with --mixed_code true"
        )


def labels(codes: Iterable[Code]) -> str:
    """Codes in words, with the commits that have them."""
    return ", ".join(code.label + (f" of commit {code.commit}" if code.commit else "") for code in codes)


def describe_data(prepared: Prepared) -> dict[str, Any]:
    """Which text, cut into which tokens."""
    sheet = prepared.sheet
    return {
        "corpus": sheet.corpus["name"],
        "split": sheet.split,
        "tokenizer": sheet.tokenizer["name"],
        "vocabulary": sheet.tokenizer["vocab_size"],
        "tokens": {name: split.tokens for name, split in sheet.splits.items()},
        "bytes": {name: split.bytes for name, split in sheet.splits.items()},
    }


def older(entries: Iterable[Entry]) -> list[str]:
    """A note for every run whose newest weights could not be used."""
    return [f"Scored with older weights: {why}." for entry in entries for run in entry.runs for why in run.passed_over]


def make_results(
    title: str,
    entries: Sequence[Entry],
    baseline: str | None,
    metric: str,
    budget: str,
    *,
    reference: str | None = None,
    families: Mapping[str, Sequence[str]] | None = None,
    cells: Mapping[str, tuple[str, ...]] | None = None,
    **parts: Any,
) -> Results:
    """The whole. cells: of a factorial, name -> levels. parts: other fields of `Results`."""
    codes = distinct(code for entry in entries for code in entry.codes)
    if len(codes) > 1:
        parts["notes"] = [MIXED.format(labels(codes)), *parts["notes"]]
    models = model_results(entries, baseline, metric, reference, families)
    if cells:
        parts["effects"] = effects_of(models, metric, parts["factors"], cells)
    return Results(
        title=title,
        baseline=baseline,
        metric=metric,
        budget=budget,
        models=models,
        reference=reference if reference != baseline else None,
        environment=environment() | {"runs": [code.to_dict() for code in codes]},
        **parts,
    )
