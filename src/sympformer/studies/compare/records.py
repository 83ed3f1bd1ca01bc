"""From finished run folders to `Results`: of a comparison's grid, or of runs side by side, one a model."""

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from statistics import fmean, median
from typing import Any

from sympformer.data import Tokens
from sympformer.errors import InputError, unknown_name
from sympformer.files import read_json
from sympformer.models import ModelConfig, build_model
from sympformer.models.describe import kernel_passes, parameter_counts
from sympformer.progress import steps_with_progress
from sympformer.provenance import Code, distinct, environment
from sympformer.studies.results.results import Curve, Difference, ModelResult, ProbeFigure, Results, Spread
from sympformer.studies.results.statistics import corrected, effects, first_reach, paired_difference, spread
from sympformer.studies.scoring.score import kept_score, score_run
from sympformer.training.folder import RunFolder

DIVERGED = "diverged.json"
MOST = 100  # points of a training curve that are kept
MIXED = "The runs were made by different code ({}): a difference between models may come from that."
SINGLE = [
    "Single runs, trained by themselves: no seeds to take a spread or an interval from. "
    "Rates, budgets and batches are whatever each run had.",
    "Tokens/s and memory are what each run's own clock saw.",
]


@dataclass(frozen=True)
class Run(RunFolder):
    """A run that was trained, and what it scored."""

    split: str = "test"  # that it is scored on

    @cached_property
    def evaluations(self) -> list[dict[str, Any]]:
        """The lines of metrics with a validation loss."""
        return [record for record in self.metrics() if "validation_loss" in record]

    @cached_property
    def score(self) -> dict[str, Any] | None:
        return kept_score(self.path, self.split)

    @cached_property
    def diverged(self) -> str | None:
        """Why there is no figure."""
        if (self.path / DIVERGED).is_file():
            return str(read_json(self.path / DIVERGED)["why"])
        last = self.evaluations[-1]
        whole = math.isfinite(last["validation_loss"])
        return None if whole else f"the validation loss is not finite at step {last['step']}"

    @property
    def validation_loss(self) -> float:
        """The last one; infinite where it diverged."""
        return float(self.evaluations[-1]["validation_loss"]) if self.diverged is None else math.inf

    def figure(self, metric: str, which: str = "last") -> float:
        """On test data."""
        assert self.score is not None
        return float(self.score[which][metric])

    @property
    def curve(self) -> Curve:
        rows, steps = self.evaluations, [record for record in self.metrics() if "loss" in record]
        train = thinned([(record["tokens"], record["loss"]) for record in steps])
        tokens, seconds = [row["tokens"] for row in rows], [row["seconds"] for row in rows]
        losses = [row["validation_loss"] for row in rows]
        return Curve(self.config.seed, tokens, seconds, losses, [t for t, _ in train], [loss for _, loss in train])


def thinned(points: Sequence[tuple[int, float]]) -> list[tuple[int, float]]:
    """At most MOST points of a curve: the means of as many neighbours as it takes, each at its last place."""
    size = math.ceil(len(points) / MOST)
    groups = [points[i : i + size] for i in range(0, len(points), size or 1)]
    return [(group[-1][0], fmean(loss for _, loss in group)) for group in groups]


@dataclass(frozen=True)
class Entry:
    """One model's part of the results. diverged: why runs are missing; then it has no figures."""

    name: str
    options: dict[str, Any]
    cfg: ModelConfig
    runs: list[Run]
    lr: float | None = None
    rates: Mapping[float, float] = field(default_factory=dict)  # rate -> validation loss, inf: diverged
    diverged: tuple[str, ...] = ()
    tokens_per_second: float | None = None
    memory_mb: float | None = None
    codes: tuple[Code, ...] = ()  # that trained all its runs, those that chose the rate too
    parent: str | None = None  # the model that it is a change of
    levels: tuple[str, ...] = ()  # of a factorial's cell

    @property
    def whole(self) -> bool:
        return bool(self.runs) and not self.diverged

    def minus(self, other: "Entry | None", metric: str) -> Difference | None:
        """This model minus another, where both are whole."""
        if other is None or other is self or not (self.whole and other.whole) or len(other.runs) != len(self.runs):
            return None
        return paired_difference([run.figure(metric) for run in self.runs], [run.figure(metric) for run in other.runs])

    def reach(self, baseline: "Entry | None") -> list[float]:
        """Tokens to the baseline's final validation loss, of the seeds that reach it."""
        if baseline is None or not self.whole or len(baseline.runs) != len(self.runs):
            return []
        curves = [(run.curve, other.curve) for run, other in zip(self.runs, baseline.runs, strict=True)]
        found = (first_reach(mine.tokens, mine.loss, other.loss[-1]) for mine, other in curves)
        return [tokens for tokens in found if tokens is not None]

    def changes(self, parent: "Entry") -> list[str]:
        """The options in which it differs from its parent; where only one of them names it, the other's own value."""

        def value(of: "Entry", name: str) -> str:
            found = of.options.get(name, of.cfg.to_dict().get(name, "none"))
            return str(found).lower() if isinstance(found, bool) else str(found)

        names = dict.fromkeys([*self.options, *parent.options])
        pairs = {name: (value(parent, name), value(self, name)) for name in names}
        return [f"{name} {old} → {new}" for name, (old, new) in pairs.items() if old != new]


def make_results(
    title: str, entries: Sequence[Entry], *, families: Mapping[str, Sequence[str]] | None = None, **parts: Any
) -> Results:
    """families: of differences corrected together; models in none are one more. parts: other fields of `Results`."""
    codes = distinct(code for entry in entries for code in entry.codes)
    if len(codes) > 1:
        labels = (code.label + (f" of commit {code.commit}" if code.commit else "") for code in codes)
        parts["notes"] = [MIXED.format(", ".join(labels)), *parts["notes"]]
    older = [why for entry in entries for run in entry.runs for why in (run.score or {}).get("passed_over", ())]
    parts["notes"] = [*(f"Scored with older weights: {why}." for why in older), *parts["notes"]]
    by_name = {entry.name: entry for entry in entries}
    reference = by_name.get(parts.get("reference") or parts["baseline"] or "")
    results = Results(
        title=title,
        models=[_figures(entry, by_name, parts["baseline"], reference, parts["metric"]) for entry in entries],
        environment=environment() | {"runs": [code.to_dict() for code in codes]},
        **parts,
    )
    return _ranked(results, families or {}, {entry.name: entry.levels for entry in entries if entry.levels})


def _ranked(results: Results, families: Mapping[str, Sequence[str]], cells: Mapping[str, tuple[str, ...]]) -> Results:
    """With ranks, corrected differences and effects: of the models that have figures and passed their audit."""
    figures = {m.name: found for m in results.models if m.passed and (found := results.metric_of(m)) is not None}
    ranks = {name: i for i, name in enumerate(sorted(figures, key=lambda name: (figures[name].mean, name)), start=1)}
    families = {**families, "": [m.name for m in results.models if not any(m.name in f for f in families.values())]}

    def family(of: str, names: Sequence[str]) -> dict[str, Difference]:
        found = {m.name: getattr(m, of) for m in results.models if m.name in figures and m.name in names}
        return corrected({name: difference for name, difference in found.items() if difference is not None})

    of_reference = {name: one for names in families.values() for name, one in family("difference", names).items()}
    of_parent = family("to_parent", list(figures))
    models = [
        replace(
            model,
            rank=ranks.get(model.name),
            difference=of_reference.get(model.name, model.difference),
            to_parent=of_parent.get(model.name, model.to_parent),
        )
        for model in results.models
    ]
    of_cells = {levels: figures[name].values for name, levels in cells.items() if name in figures}
    return replace(results, models=models, effects=effects(results.factors, of_cells))


def _figures(
    entry: Entry, by_name: Mapping[str, Entry], baseline: str | None, reference: Entry | None, metric: str
) -> ModelResult:
    model, cfg = build_model(entry.cfg, seed=0), entry.cfg
    runs = entry.runs if entry.whole else []
    parent, passes = by_name.get(entry.parent or ""), kernel_passes(model)
    reached = entry.reach(by_name.get(baseline or ""))
    tokens = fmean(reached) if reached and len(reached) == len(runs) else None

    def over_seeds(metric: str, which: str = "last") -> Spread | None:
        return spread([run.figure(metric, which) for run in runs]) if runs else None

    return ModelResult(
        name=entry.name,
        variant=entry.options.get("variant") or cfg.stepper,
        preset=entry.options.get("preset"),
        parameters=sum(parameter_counts(model).values()),
        passes_a_layer=passes / cfg.n_layer,
        passes_a_token=passes / (runs[0].config.batch_size * cfg.block_size) if runs else None,
        lr=entry.lr,
        rates={f"{lr:g}": loss if math.isfinite(loss) else None for lr, loss in entry.rates.items()},
        diverged=list(entry.diverged),
        audit=_worst_audit(entry.runs),
        rank=None,
        last=over_seeds("loss"),
        best=over_seeds("loss", "best"),
        bits_per_byte=over_seeds("bits_per_byte"),
        difference=entry.minus(reference, metric),
        tokens_to_baseline=tokens,
        seconds_to_baseline=tokens / entry.tokens_per_second if tokens and entry.tokens_per_second else None,
        reached=len(reached),
        tokens_per_second=entry.tokens_per_second,
        memory_mb=entry.memory_mb,
        seconds=fmean(run.evaluations[-1]["seconds"] for run in runs) if runs else None,
        probes=_probes(runs),
        curves=[run.curve for run in entry.runs],
        layers=runs[0].evaluations[-1].get("layers", []) if runs else [],
        samples=(runs[0].score or {})["samples"] if runs else [],
        code=[code.label for code in distinct(entry.codes)],
        parent=entry.parent,
        changes=entry.changes(parent) if parent is not None else [],
        to_parent=entry.minus(parent, metric),
    )


def _worst_audit(runs: Sequence[Run]) -> dict[str, Any] | None:
    """A failed audit if there is one, otherwise the one that came nearest to failing."""

    def badness(audit: dict[str, Any]) -> tuple[bool, float]:
        measured = [row for row in audit["rows"] if row["deviation"] is not None]
        return not audit["passed"], max((float(row["deviation"]) / row["tolerance"] for row in measured), default=0.0)

    return max((run.score["audit"] for run in runs if run.score is not None), key=badness, default=None)


def _probes(runs: Sequence[Run]) -> dict[str, ProbeFigure]:
    scores = [run.score["probes"] for run in runs if run.score is not None]
    return {
        name: ProbeFigure(spread([of[name]["accuracy"] for of in scores]), probe["chance"], probe["items"])
        for name, probe in (scores[0] if scores else {}).items()
    }


def describe_data(prepared: Tokens) -> dict[str, Any]:
    """Which text, cut into which tokens."""
    sheet = prepared.sheet
    sizes = {name: {split: getattr(of, name) for split, of in sheet.splits.items()} for name in ("tokens", "bytes")}
    tokenizer = {"tokenizer": sheet.tokenizer["name"], "vocabulary": sheet.tokenizer["vocab_size"]}
    return {"corpus": sheet.corpus, "split": sheet.split, **tokenizer, **sizes}


# --- runs side by side


def runs_results(folders: Sequence[str], baseline: str | None = None, metric: str = "loss") -> Results:
    """Score runs on held-out text and compare them. baseline: one of the folders, by default the first."""
    names = {folder: _name(folder, folders) for folder in folders}
    if len(set(names.values())) < len(folders):
        raise InputError("a run is named twice: name each run once")
    if baseline is not None and baseline not in (*names, *names.values()):
        raise unknown_name("baseline", baseline, names)
    split, prepared = _common_split(folders, metric)
    entries = [_entry(names[folders[i]], Path(folders[i]), split) for i in steps_with_progress(len(folders), "scoring")]
    scored = f"Scored on the {split} split" + ("." if split == "test" else ": there is no test split.")
    return make_results(
        "runs side by side",
        entries,
        baseline=names.get(baseline or folders[0], baseline),
        metric=metric,
        budget="each run's own budget",
        seeds=sorted({entry.runs[0].config.seed for entry in entries}),
        data=describe_data(prepared),
        scored=split,
        config={entry.name: entry.runs[0].config.to_dict() for entry in entries},
        notes=[*SINGLE, scored],
    )


def _name(folder: str, folders: Sequence[str]) -> str:
    """The folder's last part, or as much of the path as tells it from the others."""
    common = os.path.commonpath([os.path.abspath(other) for other in folders]) if len(folders) > 1 else None
    name = os.path.relpath(os.path.abspath(folder), common) if common else Path(folder).name
    return "".join(c if c.isprintable() else "\ufffd" for c in name)  # what no page and no picture can hold


def _common_split(folders: Sequence[str], metric: str) -> tuple[str, Tokens]:
    """The test split if all have one, otherwise the validation split; its documents must be the same."""
    runs = [RunFolder.open(folder) for folder in folders]
    advice = "score both on the same text with 'sympformer eval RUN --text FILE'"
    for run in runs[1:]:
        if metric == "loss" and run.tokenizer.fingerprint != runs[0].tokenizer.fingerprint:
            raise InputError(
                f"{runs[0].path} and {run.path} have different tokenizers, so that their losses per token do not "
                "compare; compare bits per byte with --metric bits_per_byte"
            )
        if run.record["data"]["corpus"] != runs[0].record["data"]["corpus"]:
            raise InputError(f"{runs[0].path} and {run.path} were trained on different corpora; {advice}")
    prepared = [run.tokens() for run in runs]
    split = "test" if all("test" in one.sheet.splits for one in prepared) else "validation"
    first, *others = ((one.sheet.splits[split].documents, one.sheet.splits[split].bytes) for one in prepared)
    for run, held_out in zip(runs[1:], others, strict=True):
        if held_out != first:
            raise InputError(f"{runs[0].path} and {run.path} hold out different {split} text; {advice}")
    return split, prepared[0]


def _entry(name: str, folder: Path, split: str) -> Entry:
    score_run(folder, split)
    run = Run(folder, split)
    if not run.evaluations:
        raise InputError(f"the run in {folder} has no evaluation yet: let it go on with 'sympformer train --resume'")
    return Entry(
        name=name,
        options=run.config.model,
        cfg=run.cfg,
        runs=[run],
        lr=run.config.lr,
        tokens_per_second=median(record["tokens_per_second"] for record in run.metrics()),
        memory_mb=max(record["memory_mb"] for record in run.metrics()),
        codes=tuple(run.codes),
    )
