"""What momentum costs at other sizes, against the fastest honest peer of the same shape: time and memory of a step."""

from itertools import product
from typing import Any, NamedTuple

from sympformer.studies.bench.bench import Row, bare, model_step, peak_memory
from sympformer.studies.bench.timing import interleaved, ratio


class Size(NamedTuple):
    """A shape, its batch, the heads of its peers, and the bound of our step by a peer's."""

    n_layer: int
    d_model: int
    block_size: int
    heads: tuple[int, ...]
    batch: int
    bound: tuple[str, float]

    def models(self, vocab_size: int = 2048) -> dict[str, tuple[str, dict[str, Any]]]:
        """What -> variant and options: presets "tuned" and "full" of ours, each peer with each number of heads."""
        shape = self._asdict() | {"vocab_size": vocab_size, "n_head": self.heads[0]}
        body = {name: shape[name] for name in ("n_layer", "d_model", "block_size", "n_head", "vocab_size")}
        ours = {"SympFormer": ("softmax-exp-euler", body), "full": ("softmax-exp-euler", body | {"preset": "full"})}
        kinds = {"GPT": "softmax-baseline", "YuriiFormer": "softmax-yuriiformer"}
        peers = product(kinds.items(), self.heads)
        return ours | {f"{kind}, heads: {n}": (name, body | {"n_head": n}) for (kind, name), n in peers}


SIZES = (
    Size(4, 64, 128, (4,), 8, ("GPT, heads: 4", 1.0)),
    Size(4, 256, 256, (8,), 4, ("GPT, heads: 8", 1.0)),
    Size(6, 384, 256, (6,), 4, ("GPT, heads: 6", 1.0)),
    Size(8, 64, 512, (4, 1), 6, ("YuriiFormer, heads: 1", 0.95)),
)


def bench_sizes(rounds: int) -> list[Row]:
    """Training steps of exponential Euler, averaged heads, by those of its peers; then their memory."""
    rows = []
    for size in SIZES:
        title = f"L{size.n_layer} d{size.d_model} T{size.block_size}"
        configs = {what: bare(name, **options) for what, (name, options) in size.models().items()}
        works = {what: model_step(cfg, size.batch) for what, cfg in configs.items()}
        seconds = interleaved(works, rounds, label=f"training steps, {title}")
        peaks = {what: peak_memory(cfg, size.batch) for what, cfg in configs.items()}
        for ours, peer in product(list(configs)[:2], list(configs)[2:]):
            bound = size.bound[1] if (ours, peer) == ("SympFormer", size.bound[0]) else None
            rows.append(Row("sizes", f"{title}: {ours} / {peer}, step", ratio(seconds, ours, peer), bound))
            rows.append(Row("sizes", f"{title}: {ours} / {peer}, memory", peaks[ours] / peaks[peer]))
    return rows
