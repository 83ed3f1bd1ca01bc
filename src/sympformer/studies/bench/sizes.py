"""What momentum costs at other sizes, against the fastest honest peer of the same shape: time and memory of a step."""

from itertools import product
from typing import Any, NamedTuple

from sympformer.studies.bench.costs import bare, model_step, peak_memory
from sympformer.studies.bench.timing import Row, interleaved, ratio


class Size(NamedTuple):
    """A shape, its batch, its peers (name -> variant and options), and the bound of our step by a peer's."""

    body: dict[str, int]
    batch: int
    peers: dict[str, tuple[str, dict[str, Any]]]
    bounds: dict[str, float]

    @property
    def title(self) -> str:
        """In the order of a config."""
        body = self.body
        return f"L{body['n_layer']} d{body['d_model']} T{body['block_size']}"


# presets "tuned", for which the bounds are meant, and "full"
OURS: dict[str, tuple[str, dict[str, Any]]] = {
    "SympFormer": ("softmax-exp-euler", {}),
    "SympFormer, full": ("softmax-exp-euler", {"preset": "full"}),
}


def _body(n_layer: int, n_head: int, d_model: int, block_size: int) -> dict[str, int]:
    return {"n_layer": n_layer, "n_head": n_head, "d_model": d_model, "block_size": block_size, "vocab_size": 2048}


def _peers(*heads: int) -> dict[str, tuple[str, dict[str, Any]]]:
    """GPT and YuriiFormer with each number of heads."""
    kinds = {"GPT": "softmax-baseline", "YuriiFormer": "softmax-yuriiformer"}
    return {
        f"{kind}, {n} head{'s' if n > 1 else ''}": (name, {"n_head": n}) for n in heads for kind, name in kinds.items()
    }


SIZES = (
    Size(_body(4, 4, 64, 128), 8, _peers(4), {"GPT, 4 heads": 1.0}),
    Size(_body(4, 8, 256, 256), 4, _peers(8), {"GPT, 8 heads": 1.0}),
    Size(_body(6, 6, 384, 256), 4, _peers(6), {"GPT, 6 heads": 1.0}),
    Size(_body(8, 8, 64, 512), 6, _peers(4, 1), {"YuriiFormer, 1 head": 0.95}),
)


def bench_sizes(rounds: int) -> list[Row]:
    """Training steps of exponential Euler, averaged heads, by those of its peers; then their memory."""
    rows = []
    for size in SIZES:
        models = OURS | size.peers
        configs = {what: bare(name, **(size.body | options)) for what, (name, options) in models.items()}
        works = {what: model_step(cfg, size.batch) for what, cfg in configs.items()}
        seconds = interleaved(works, rounds, label=f"training steps, {size.title}")
        peaks = {what: peak_memory(cfg, size.batch) for what, cfg in configs.items()}
        for ours, peer in product(OURS, size.peers):
            title, bound = f"{size.title}: {ours} / {peer}", size.bounds.get(peer) if ours == "SympFormer" else None
            rows += [
                Row("sizes", f"{title}, step", ratio(seconds, ours, peer), bound),
                Row("sizes", f"{title}, memory", peaks[ours] / peaks[peer]),
            ]
    return rows
