"""Made-up results of a comparison, quick and without training: for tests of tables, plots and the page."""

import dataclasses
import math
import random
from collections.abc import Sequence
from typing import Any

from sympformer.studies.results.results import Curve, ModelResult, ProbeFigure, Results, Spread
from sympformer.studies.results.statistics import first_reach, paired_difference, spread

SEEDS = (1, 2, 3)
LAYERS, TOKENS, BATCH, BLOCK = 4, 2_000_000, 8, 128
# name -> variant, preset, test loss, tokens a second, kernel passes a layer; others are like exp-euler
MODELS: dict[str, tuple[str, str, float, float, int]] = {
    "gpt": ("softmax-baseline", "tuned", 3.012, 21400, 1),
    "yuriiformer": ("softmax-yuriiformer", "tuned", 2.871, 18800, 1),
    "yuriiformer-paper": ("softmax-yuriiformer", "paper", 3.148, 18900, 1),
    "exp-euler": ("softmax-exp-euler", "tuned", 2.839, 17400, 1),
    "exp-euler-paper": ("softmax-exp-euler", "paper", 3.171, 14000, 2),
    "linear-plain-euler": ("linear-plain-euler", "tuned", 3.092, 16900, 1),
}


def model(name: str, seeds: Sequence[int] = SEEDS, **changes: Any) -> ModelResult:
    """A model with all its figures. changes: fields to set."""
    variant, preset, loss, speed, passes = MODELS.get(name, ("softmax-exp-euler", "tuned", 2.9, 17000.0, 1))
    curves = [_curve(name, seed, loss, speed) for seed in seeds]
    losses = [curve.loss[-1] + 0.012 for curve in curves]
    fields: dict[str, Any] = {
        "name": name, "variant": variant, "preset": preset, "parameters": 345_088 + 1024 * len(variant),
        "passes_a_layer": passes, "passes_a_token": passes * LAYERS / (BATCH * BLOCK), "lr": 0.008,
        "rates": {"0.002": loss + 0.21, "0.004": loss + 0.13, "0.008": loss + 0.08, "0.016": None}, "diverged": [],
        "audit": audit(), "rank": None, "last": spread(losses), "best": spread([figure - 0.001 for figure in losses]),
        "bits_per_byte": spread([figure / math.log(2) / 3.9 for figure in losses]), "difference": None,
        "tokens_to_baseline": None, "seconds_to_baseline": None, "reached": 0, "tokens_per_second": speed,
        "memory_mb": 81.0 + len(variant), "seconds": TOKENS / speed * 1.3,
        "probes": {"cloze": ProbeFigure(spread([0.65 - 0.1 * loss + 0.01 * k for k in range(len(seeds))]), 0.25, 240)},
        "curves": curves, "layers": _layers(variant, preset),
        "samples": [{"prompt": "Once upon a time", "text": f"Once upon a time {name} wrote text {k}."} for k in (1, 2)],
    }  # fmt: skip
    return ModelResult(**fields | changes)


def leaking(name: str = "leaking") -> ModelResult:
    """A model with the best loss of all, and a failed audit."""
    low = Spread(1.2, 0.01, [1.19, 1.2, 1.21])
    curves = [Curve(s, c.tokens, c.seconds, [2.0, *c.loss[1:-1], 1.2]) for s in SEEDS for c in model(name).curves[:1]]
    return model(name, audit=audit(leak_at=3), last=low, best=low, curves=curves)


def diverged(name: str = "diverged") -> ModelResult:
    """A model that left the finite numbers at every rate: no figures."""
    missing = ("lr", "audit", "last", "best", "bits_per_byte", "tokens_per_second", "memory_mb", "seconds")
    changes: dict[str, Any] = dict.fromkeys(missing)
    changes |= {"probes": {}, "curves": [], "layers": [], "samples": [], "rates": {"0.008": None, "0.016": None}}
    changes["diverged"] = ["rate 0.016, seed 0: the loss is not a number at step 212"]
    return model(name, **changes)


def audit(leak_at: int | None = None) -> dict[str, Any]:
    """An audit's report; leak_at: the first position that sees the future."""
    good: dict[str, Any] = {"weights": "given", "deviation": 3.1e-15, "tolerance": 1e-9, "first_position": None,
                            "passed": True, "note": ""}  # fmt: skip
    rows = [good | {"check": check} for check in ("causality", "prefix", "batch")]
    rows.append(good | {"check": "cache", "deviation": None, "note": "not tried: the model has no cache"})
    if leak_at is not None:
        rows[0] |= {"deviation": 0.42, "first_position": leak_at, "passed": False, "note": "random edit at 9"}
    return {"passed": leak_at is None, "dtype": "float64", "rows": rows}


def results(models: Sequence[str | ModelResult] = tuple(MODELS), **changes: Any) -> Results:
    """A comparison of these models, with gpt as its baseline if it is there. changes: fields of `Results` to set."""
    seeds = changes.get("seeds", list(SEEDS))
    made = [one if isinstance(one, ModelResult) else model(one, seeds) for one in models]
    baseline = changes.get("baseline", "gpt" if "gpt" in [one.name for one in made] else None)
    metric = changes.get("metric", "loss")
    reference = next((one for one in made if one.name == baseline), None)
    made = [one if reference is None else _against(one, reference, metric) for one in made]
    fields: dict[str, Any] = {
        "title": "Momentum in language models", "baseline": baseline, "metric": metric, "budget": f"{TOKENS:,} tokens",
        "seeds": seeds, "models": _with_ranks(made, metric), "data": {"corpus": "tinystories", "tokenizer": "bpe:2048"},
        "environment": {"torch": "2.13.0+cpu", "cpus": 2},
        "config": {"lr": [0.002, 0.004], "budget": {"tokens": TOKENS}},
        "notes": ["The learning rates were chosen with seed 0, which is none of the seeds reported."],
    }  # fmt: skip
    return Results(**fields | changes)


# --- parts


def _curve(name: str, seed: int, loss: float, speed: float) -> Curve:
    noise = random.Random(f"{name} {seed}")
    shift = random.Random(f"seed {seed}").gauss(0, 0.012)
    shares = [(k + 1) / 14 for k in range(14)]
    losses = [loss + shift + 0.6 * (share**-0.5 - 1) + noise.gauss(0, 0.006) for share in shares]
    tokens = [int(share * TOKENS) for share in shares]
    return Curve(seed, tokens, [1.3 * n / speed for n in tokens], losses)


def _layers(variant: str, preset: str) -> list[dict[str, float]]:
    names = {"baseline": (), "yuriiformer": ("momentum_rms",), "plain-euler": ("h_x", "h_y", "momentum_rms")}
    names["exp-euler"] = ("h_x", "h_y", "alpha", "momentum_rms")
    draw = random.Random(variant + preset)
    return [
        {name: (1 + k) * draw.uniform(0.05, 0.1) for name in names[variant.split("-", 1)[1]]} for k in range(LAYERS)
    ]


def _figure(one: ModelResult, metric: str) -> Spread | None:
    return one.last if metric == "loss" else one.bits_per_byte


def _against(one: ModelResult, reference: ModelResult, metric: str) -> ModelResult:
    """The figures that depend on the baseline."""
    mine, other = _figure(one, metric), _figure(reference, metric)
    if one is reference or mine is None or other is None or len(mine.values) != len(other.values):
        return one
    reach = [first_reach(a.tokens, a.loss, b.loss[-1]) for a, b in zip(one.curves, reference.curves, strict=True)]
    tokens = sum(filter(None, reach)) / len(reach) if all(reach) and reach else None
    seconds = tokens / one.tokens_per_second if tokens and one.tokens_per_second else None
    return dataclasses.replace(
        one, difference=paired_difference(mine.values, other.values), tokens_to_baseline=tokens,
        seconds_to_baseline=seconds, reached=len(list(filter(None, reach))),
    )  # fmt: skip


def _with_ranks(made: Sequence[ModelResult], metric: str) -> list[ModelResult]:
    figures = {one.name: _figure(one, metric) for one in made if one.passed}
    order = [name for _, name in sorted((figure.mean, name) for name, figure in figures.items() if figure is not None)]
    return [dataclasses.replace(one, rank=order.index(one.name) + 1 if one.name in order else None) for one in made]
