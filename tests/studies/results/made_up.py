"""Made-up results of a comparison, quick and without training: for tests of tables, plots and reports."""

import dataclasses
import math
import random
from collections.abc import Sequence
from typing import Any

from sympformer.studies.results import Curve, ModelResult, ProbeFigure, Results, Spread
from sympformer.studies.results.statistics import first_reach, paired_difference, spread

SEEDS = (1, 2, 3)
LAYERS, TOKENS, BATCH, BLOCK = 4, 2_000_000, 8, 128
BYTES_PER_TOKEN = 3.9

# name -> variant, preset, test loss, tokens a second
EIGHTEEN: dict[str, tuple[str, str, float, float]] = {
    "gpt": ("softmax-baseline", "tuned", 3.012, 21400),
    "gpt-1-head": ("softmax-baseline", "tuned", 3.041, 23900),
    "yuriiformer-paper": ("softmax-yuriiformer", "paper", 3.148, 18900),
    "yuriiformer": ("softmax-yuriiformer", "tuned", 2.871, 18800),
    "plain-euler-paper": ("softmax-plain-euler", "paper", 3.207, 14300),
    "plain-euler": ("softmax-plain-euler", "tuned", 2.842, 17700),
    "presymp-euler-paper": ("softmax-presymp-euler", "paper", 3.188, 14100),
    "presymp-euler": ("softmax-presymp-euler", "tuned", 2.846, 17500),
    "exp-euler-paper": ("softmax-exp-euler", "paper", 3.171, 14000),
    "exp-euler": ("softmax-exp-euler", "tuned", 2.839, 17400),
    "ab2-paper": ("softmax-ab2", "paper", 3.229, 13800),
    "ab2": ("softmax-ab2", "tuned", 2.868, 17100),
    "etd-ab2-paper": ("softmax-etd-ab2", "paper", 3.201, 13700),
    "etd-ab2": ("softmax-etd-ab2", "tuned", 2.858, 17000),
    "linear-gpt": ("linear-baseline", "tuned", 3.334, 22800),
    "linear-yuriiformer": ("linear-yuriiformer", "tuned", 3.021, 20100),
    "linear-plain-euler": ("linear-plain-euler", "tuned", 3.092, 16900),
    "linear-presymp-euler": ("linear-presymp-euler", "tuned", 3.104, 16700),
}
FRIENDS = ("Tom", "Mia", "Ben", "Lily", "Sam", "Anna")
STORY = (
    "Once upon a time there was a little {animal} named {friend}. {friend} liked to play in the garden with a red "
    "ball. One day the ball rolled under a big tree and {friend} could not find it. A kind bird said, “Do not be "
    "sad, I can see it from up here!” So they looked together and soon they"
)


def model(name: str, seeds: Sequence[int] = SEEDS, **changes: Any) -> ModelResult:
    """A model with all its figures. An unknown name is a tuned softmax-exp-euler; changes: fields to set."""
    variant, preset, loss, speed = EIGHTEEN.get(name, ("softmax-exp-euler", "tuned", 2.9, 17000.0))
    curves = [_curve(name, seed, loss, speed) for seed in seeds]
    losses = [curve.loss[-1] + 0.012 for curve in curves]
    fields: dict[str, Any] = {
        "name": name,
        "variant": variant,
        "preset": preset,
        "parameters": 345_088 + 1024 * len(variant),
        "oracle_calls": 2 if preset == "paper" and variant.startswith("softmax-") and "euler" in variant else 1,
        "lr": 0.008,
        "rates": {"0.002": loss + 0.21, "0.004": loss + 0.13, "0.008": loss + 0.08, "0.016": None},
        "diverged": [],
        "audit": audit(),
        "rank": None,
        "last": spread(losses),
        "best": spread([figure - 0.001 for figure in losses]),
        "bits_per_byte": spread([figure / math.log(2) / BYTES_PER_TOKEN for figure in losses]),
        "difference": None,
        "tokens_to_baseline": None,
        "seconds_to_baseline": None,
        "reached": 0,
        "tokens_per_second": speed,
        "memory_mb": 81.0 + len(variant),
        "seconds": TOKENS / speed * 1.3,
        "probes": _probes(loss, len(seeds)),
        "curves": curves,
        "layers": _layers(variant, preset),
        "samples": [_sample(name, k) for k in range(2)],
    }
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
    kinds = [("causality", "given"), ("causality", "perturbed"), ("prefix", "given"), ("batch", "given")]
    rows: list[dict[str, Any]] = [
        {"check": check, "weights": weights, "deviation": 3.1e-15, "tolerance": 1e-9, "first_position": None,
         "passed": True, "note": ""}
        for check, weights in kinds
    ]  # fmt: skip
    rows.append(rows[0] | {"check": "cache", "deviation": None, "note": "not tried: the model has no cache"})
    if leak_at is not None:
        rows[0] |= {"deviation": 0.42, "first_position": leak_at, "passed": False, "note": "random edit at 9"}
    return {"passed": leak_at is None, "dtype": "float64", "rows": rows}


def results(models: Sequence[str | ModelResult] = tuple(EIGHTEEN), **changes: Any) -> Results:
    """A comparison of these models (names or whole ones), with gpt as its baseline if it is there.

    Ranks and what depends on the baseline are computed here. changes: fields of `Results` to set.
    """
    seeds = changes.get("seeds", list(SEEDS))
    made = [one if isinstance(one, ModelResult) else model(one, seeds) for one in models]
    names = [one.name for one in made]
    baseline = changes.get("baseline", "gpt" if "gpt" in names else None)
    metric = changes.get("metric", "loss")
    reference = next((one for one in made if one.name == baseline), None)
    made = [one if reference is None else _against(one, reference, metric) for one in made]
    fields: dict[str, Any] = {
        "title": "Momentum in language models",
        "baseline": baseline,
        "metric": metric,
        "budget": f"{TOKENS:,} tokens",
        "seeds": seeds,
        "models": _with_ranks(made, metric),
        "data": {
            "corpus": "tinystories",
            "tokenizer": "bpe:2048",
            "tokens": {"train": 48_120_331, "validation": 3_010_442, "test": 4_433_908},
        },
        "environment": {"sympformer": "0.1.0", "python": "3.11.2", "torch": "2.13.0+cpu", "commit": "0123456789ab",
                        "cpus": 2, "threads": 1, "command": "sympformer compare tiny.yaml --jobs 2",
                        "date": "2026-02-03 04:05 UTC"},
        "config": config(names, baseline or names[0], seeds),
        "notes": ["The learning rates were chosen with seed 0, which is none of the seeds reported."],
    }  # fmt: skip
    return Results(**fields | changes)


def config(names: Sequence[str], baseline: str, seeds: Sequence[int]) -> dict[str, Any]:
    """What `CompareConfig.to_dict` would give, in short."""
    chosen = {name: EIGHTEEN.get(name, ("softmax-exp-euler", "tuned", 0, 0)) for name in names}
    return {
        "baseline": baseline,
        "models": {name: {"variant": row[0], "preset": row[1]} for name, row in chosen.items()},
        "lr": [0.002, 0.004, 0.008, 0.016],
        "choose": {"tokens": TOKENS // 2},
        "budget": {"tokens": TOKENS},
        "seeds": list(seeds),
        "common": {
            "model": {"n_layer": LAYERS, "n_head": 4, "d_model": 64, "block_size": BLOCK},
            "batch_size": BATCH,
        },
    }


# --- parts


def _curve(name: str, seed: int, loss: float, speed: float) -> Curve:
    noise = random.Random(f"{name} {seed}")
    shift = random.Random(f"seed {seed}").gauss(0, 0.012)
    shares = [(k + 1) / 14 for k in range(14)]
    losses = [loss + shift + 0.6 * (share**-0.5 - 1) + noise.gauss(0, 0.006) for share in shares]
    tokens = [int(share * TOKENS) for share in shares]
    return Curve(seed, tokens, [1.3 * n / speed for n in tokens], losses)


def _probes(loss: float, seeds: int) -> dict[str, ProbeFigure]:
    right = {"cloze": 0.25 + 0.1 * (4 - loss), "agreement": 0.5 + 0.2 * (4 - loss), "pronoun": 0.5 + 0.1 * (4 - loss)}
    chance = {"cloze": 0.25, "agreement": 0.5, "pronoun": 0.5}
    return {
        kind: ProbeFigure(spread([share + 0.01 * k for k in range(seeds)]), chance[kind], 240)
        for kind, share in right.items()
    }


def _layers(variant: str, preset: str) -> list[dict[str, float]]:
    kind = variant.split("-", 1)[1]
    draw = random.Random(variant + preset)
    rows: list[dict[str, float]] = []
    for k in range(LAYERS):
        row: dict[str, float] = {}
        if kind not in ("baseline", "yuriiformer"):
            start = 0.1 if preset == "paper" else 1.0
            row |= {"h_x": 0.05 * (1 + k) * draw.uniform(0.8, 1.3), "h_y": start * draw.uniform(0.6, 1.6)}
            if kind != "plain-euler":
                row["alpha"] = 3.0 / (1 + 0.2 * k) * draw.uniform(0.8, 1.2)
        if kind != "baseline":
            row["momentum_rms"] = (1.0 if preset == "paper" else 0.05) * (k + 1) * draw.uniform(0.8, 1.2)
        rows.append(row)
    return rows


def _sample(name: str, k: int) -> dict[str, str]:
    draw = random.Random(f"{name} {k}")
    text = STORY.format(animal=draw.choice(("dog", "cat", "fox")), friend=draw.choice(FRIENDS))
    return {"prompt": "Once upon a time", "text": text}


def _figure(one: ModelResult, metric: str) -> Spread | None:
    return one.last if metric == "loss" else one.bits_per_byte


def _against(one: ModelResult, reference: ModelResult, metric: str) -> ModelResult:
    """The figures that depend on the baseline."""
    mine, other = _figure(one, metric), _figure(reference, metric)
    if mine is None or other is None or len(mine.values) != len(other.values):
        return one
    reach = [first_reach(a.tokens, a.loss, b.loss[-1]) for a, b in zip(one.curves, reference.curves, strict=True)]
    reached = [tokens for tokens in reach if tokens is not None]
    tokens = sum(reached) / len(reached) if len(reached) == len(reach) else None
    return dataclasses.replace(
        one,
        difference=None if one is reference else paired_difference(mine.values, other.values),
        tokens_to_baseline=tokens,
        seconds_to_baseline=tokens / one.tokens_per_second if tokens and one.tokens_per_second else None,
        reached=len(reached),
    )


def _with_ranks(made: Sequence[ModelResult], metric: str) -> list[ModelResult]:
    figures = {one.name: _figure(one, metric) for one in made if one.passed}
    order = [name for _, name in sorted((figure.mean, name) for name, figure in figures.items() if figure is not None)]
    return [dataclasses.replace(one, rank=order.index(one.name) + 1 if one.name in order else None) for one in made]
