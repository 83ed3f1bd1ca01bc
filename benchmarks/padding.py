"""What padding costs: an encoder beside torch's own, and prompts of different lengths beside equal ones."""

from typing import Any

import torch
from torch import nn

from sympformer.models import build_model
from sympformer.nn import Encoder
from sympformer.studies.bench.bench import Row, bare
from sympformer.studies.bench.timing import Work, interleaved, ratio

ENCODER: dict[str, Any] = {"d_model": 128, "n_head": 8, "n_layer": 4}
TOKENS, TEXTS = 256, 8
TORCH = "torch.nn.TransformerEncoder"
# what -> (options, bound)
ENCODERS: dict[str, tuple[dict[str, Any], float | None]] = {
    "SympFormer, averaged heads": ({"stepper": "hamiltonian"}, 1.1),
    "YuriiFormer": ({"stepper": "nesterov"}, None),
    "GPT": ({"stepper": "gradient"}, None),
}
PROMPTS: dict[str, Any] = {"block_size": 512, "vocab_size": 2048, "n_layer": 8, "n_head": 8, "d_model": 64}
NEW = 64


def bench_padding(rounds: int) -> list[Row]:
    """Encoders with a padding mask, forward and backward; `generate` from prompts of different lengths."""
    seconds = interleaved(_encoders(), rounds, label="encoders with padding")
    title = f"encoder with padding, T {TOKENS}, d {ENCODER['d_model']}"
    rows = [
        Row("padding", f"{title}, {what}: forward + backward / {TORCH}", ratio(seconds, what, TORCH), bound)
        for what, (_, bound) in ENCODERS.items()
    ]
    for name in ("softmax-exp-euler", "linear-presymp-euler"):
        seconds = interleaved(_generations(name), max(3, rounds // 4), warm_up=1, label=f"ragged generation: {name}")
        value = ratio(seconds, "different", "equal")
        rows.append(Row("padding", f"{name}: generate from prompts of different lengths / of equal ones", value, 1.3))
    return rows


def _encoders() -> dict[str, Work]:
    d, n_head, n_layer = ENCODER["d_model"], ENCODER["n_head"], ENCODER["n_layer"]
    x = torch.randn(TEXTS, TOKENS, d)
    padding = torch.arange(TOKENS) >= torch.linspace(TOKENS // 4, TOKENS, TEXTS).long().unsqueeze(1)
    layer = nn.TransformerEncoderLayer(
        d, n_head, 4 * d, dropout=0.0, activation="gelu", batch_first=True, norm_first=True, bias=False
    )
    theirs = nn.TransformerEncoder(layer, n_layer, norm=nn.LayerNorm(d, bias=False), enable_nested_tensor=False)

    def work(module: nn.Module) -> Work:
        def run() -> None:
            module(x, padding).square().mean().backward()

        return run

    class Torch(nn.Module):
        def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
            return theirs(x, src_key_padding_mask=mask)

    return {TORCH: work(Torch())} | {
        what: work(Encoder(**ENCODER, **options)) for what, (options, _) in ENCODERS.items()
    }


def _generations(name: str) -> dict[str, Work]:
    """Eight prompts, of 32 to 256 tokens or all of 256, and as many new tokens for each."""
    model = build_model(bare(name, **PROMPTS), seed=0).eval()
    longest = PROMPTS["block_size"] // 2
    lengths = {"different": [longest * (i + 1) // TEXTS for i in range(TEXTS)], "equal": [longest] * TEXTS}
    prompts = {kind: [[i % PROMPTS["vocab_size"] for i in range(n)] for n in ns] for kind, ns in lengths.items()}

    def work(kind: str) -> Work:
        return lambda: model.generate(prompts[kind], max_new_tokens=NEW, temperature=0.0)

    return {kind: work(kind) for kind in prompts}
