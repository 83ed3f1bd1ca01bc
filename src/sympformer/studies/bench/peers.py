"""What the peers' other rows cost beside the rows that they are read against: time and memory of a training step."""

from typing import Any

from sympformer.studies.bench.costs import bare, model_step, peak_memory
from sympformer.studies.bench.sizes import SIZES
from sympformer.studies.bench.timing import Row, interleaved, ratio

# what -> (variant, options)
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "GPT": ("softmax-baseline", {}),
    "two streams": ("softmax-baseline", {"architecture": "streams"}),
    "YuriiFormer": ("softmax-yuriiformer", {}),
    "H0": ("softmax-yuriiformer", {"attention_step": "h0"}),
    "R2": ("softmax-yuriiformer", {"attention_step": "r2"}),
    "H1": ("softmax-yuriiformer", {"attention_step": "h1"}),
}
RULERS = {"two streams": "GPT", "YuriiFormer": "H0", "R2": "H0", "H1": "H0"}  # what -> beside what


def bench_peers(rounds: int) -> list[Row]:
    """At the shapes of both comparisons: 4 layers at 128 tokens, 8 layers at 512."""
    rows = []
    for size in (SIZES[0], SIZES[-1]):
        configs = {what: bare(name, **(size.body | options)) for what, (name, options) in MODELS.items()}
        works = {what: model_step(cfg, size.batch) for what, cfg in configs.items()}
        seconds = interleaved(works, rounds, label=f"peers' steps, {size.title}")
        peaks = {what: peak_memory(cfg, size.batch) for what, cfg in configs.items()}
        for what, ruler in RULERS.items():
            title = f"{size.title} H{size.body['n_head']}: {what} / {ruler}"
            rows += [Row("peers", f"{title}, step", ratio(seconds, what, ruler))]
            rows += [Row("peers", f"{title}, memory", peaks[what] / peaks[ruler])]
    return rows
