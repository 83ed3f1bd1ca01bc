"""GPTs written by hand with SDPA: a ruler for our own baseline, which widens its small heads."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sympformer.models import ModelConfig
from sympformer.ops import flash
from sympformer.studies.bench.bench import BATCH, BODY, GPT, STEPS, Row, bare, model_step, training_step
from sympformer.studies.bench.timing import interleaved, ratio

PLAIN = "plain SDPA block"
WIDENED = f"plain SDPA block with heads widened to {flash.CPU.least}"
BOUNDS = {"tuned": 0.45, "full": 0.45, "full, form paper": 0.60, "full, multi-head": 1.05, "YuriiFormer": 1.10}


class PlainBlock(nn.Module):
    """A GPT block as one writes it by hand.

    `width` is the trick that `ops.flash` plays on small heads, for a ruler that knows it too: zeros up to that size.
    """

    def __init__(self, d: int, n_head: int, width: int = 0) -> None:
        super().__init__()
        self.n_head, self.width = n_head, max(width, d // n_head)
        self.ln_1 = nn.LayerNorm(d, bias=False)
        self.c_attn, self.c_proj = nn.Linear(d, 3 * d, bias=False), nn.Linear(d, d, bias=False)
        self.ln_2 = nn.LayerNorm(d, bias=False)
        self.c_fc, self.c_out = nn.Linear(d, 4 * d, bias=False), nn.Linear(4 * d, d, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        B, T, d = x.shape
        parts = (part.view(B, T, self.n_head, -1).transpose(1, 2) for part in self.c_attn(self.ln_1(x)).split(d, 2))
        q, k, v = (flash.widened(part, self.width) for part in parts)
        scale = (d // self.n_head) ** -0.5
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=scale)[..., : d // self.n_head]
        x = x + self.c_proj(mixed.transpose(1, 2).contiguous().view(B, T, d))
        return x + self.c_out(F.gelu(self.c_fc(self.ln_2(x))))


class PlainGPT(nn.Module):
    """Plain blocks, tied head, cross-entropy of full logits."""

    def __init__(self, cfg: ModelConfig, width: int = 0) -> None:
        super().__init__()
        self.wte, self.wpe = nn.Embedding(cfg.vocab_size, cfg.d_model), nn.Embedding(cfg.block_size, cfg.d_model)
        self.blocks = nn.Sequential(*(PlainBlock(cfg.d_model, cfg.n_head, width) for _ in range(cfg.n_layer)))
        self.ln_f = nn.LayerNorm(cfg.d_model, bias=False)

    def loss(self, idx: Tensor, targets: Tensor) -> Tensor:
        x = self.blocks(self.wte(idx) + self.wpe(torch.arange(idx.shape[1], device=idx.device)))
        return F.cross_entropy(F.linear(self.ln_f(x), self.wte.weight).flatten(0, 1), targets.flatten())


def bench_plain(rounds: int) -> list[Row]:
    """Training steps at vocabulary 2,048 against the block as one writes it, which knows no trick."""
    body = BODY | {"vocab_size": 2048}
    cfg = bare(GPT, **body)
    works = {what: model_step(bare(name, **(body | options)), BATCH) for what, (name, options, _) in STEPS.items()}
    works["our GPT"] = model_step(cfg, BATCH)
    for what, width in ((PLAIN, 0), (WIDENED, flash.CPU.least)):
        plain = PlainGPT(cfg, width)
        works[what] = training_step(plain, plain.loss, cfg, BATCH)
    seconds = interleaved(works, rounds, label="training steps beside GPTs by hand")
    pairs = [("our GPT", WIDENED, 1.05), ("our GPT", PLAIN, None), *((what, PLAIN, BOUNDS[what]) for what in STEPS)]
    return [Row("plain", f"{what}: step / {ruler}", ratio(seconds, what, ruler), b) for what, ruler, b in pairs]
