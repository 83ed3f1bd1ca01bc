"""The measurements of `sympformer bench`: ratios to our own GPT baseline of equal layers, heads and width."""

import statistics
from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sympformer import ops
from sympformer.models import Cache, Decoder, LanguageModel, ModelConfig, build_model
from sympformer.ops import flash
from sympformer.studies.bench.choices import bench_choices
from sympformer.studies.bench.costs import bare, model_step, peak_memory, training_step
from sympformer.studies.bench.layers import bench_layers
from sympformer.studies.bench.peers import bench_peers
from sympformer.studies.bench.sizes import bench_sizes
from sympformer.studies.bench.timing import PreparedWork, Row, Work, interleaved, ratio

Suite = Literal["step", "sizes", "peers", "linear", "memory", "generation", "layers", "choices"]
BODY: dict[str, Any] = {"n_layer": 8, "n_head": 8, "d_model": 64, "block_size": 512}


# --- a training step


class PlainBlock(nn.Module):
    """A GPT block as one writes it by hand with SDPA: the ruler for our own baseline.

    `width` is the trick that `ops.flash` plays on small heads, for a ruler that knows it too: zeros up to that size.
    """

    def __init__(self, d: int, n_head: int, width: int = 0) -> None:
        super().__init__()
        self.n_head, self.width = n_head, max(width, d // n_head)
        self.ln_1, self.ln_2 = nn.LayerNorm(d, bias=False), nn.LayerNorm(d, bias=False)
        self.c_attn, self.c_proj = nn.Linear(d, 3 * d, bias=False), nn.Linear(d, d, bias=False)
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


PLAIN = "plain SDPA block"
WIDENED = f"plain SDPA block with heads widened to {flash.CPU.least}"
# what -> (variant, overrides, bound at vocabulary 2,048, bound at vocabulary 50,304)
STEP_CASES: dict[str, tuple[str, dict[str, Any], float | None, float | None]] = {
    "tuned, averaged heads": ("softmax-exp-euler", {}, 0.45, 0.60),
    "full, averaged heads": ("softmax-exp-euler", {"preset": "full"}, 0.45, 0.60),
    "full, form paper": ("softmax-exp-euler", {"preset": "full", "form": "paper"}, 0.60, 0.90),
    "full, multi-head": ("softmax-exp-euler", {"preset": "full", "heads": "multi"}, 1.05, None),
    "YuriiFormer": ("softmax-yuriiformer", {}, 1.10, None),
}


def bench_step(rounds: int) -> list[Row]:
    """Training steps at L8 H8 d64 T512 batch 6, against our GPT, and against GPTs written by hand.

    Our GPT's heads of 8 are widened as ours are. Bounds at vocabulary 2,048 are meant against the block as one writes
    it with SDPA, which knows no such trick.
    """
    return _small_vocabulary(rounds) + _large_vocabulary(rounds)


def _small_vocabulary(rounds: int) -> list[Row]:
    size = BODY | {"vocab_size": 2048}
    cfg = bare("softmax-baseline", **size)
    works = {"our GPT": model_step(cfg, 6)}
    for what, (name, overrides, _, _) in STEP_CASES.items():
        works[what] = model_step(bare(name, **(size | overrides)), 6)
    for what, width in ((PLAIN, 0), (WIDENED, flash.CPU.least)):
        plain = PlainGPT(cfg, width)
        works[what] = training_step(plain, plain.loss, cfg, 6)
    seconds = interleaved(works, rounds, label="training steps, vocabulary 2,048")

    def row(what: str, ruler: str, bound: float | None = None) -> Row:
        return Row("step", f"{what}: step / {ruler}", ratio(seconds, what, ruler), bound)

    rows = [row("our GPT", WIDENED, 1.05), row("our GPT", PLAIN)]
    for what, (_, _, bound, _) in STEP_CASES.items():
        rows += [row(what, PLAIN, bound), row(what, "our GPT")]
    return rows


def _large_vocabulary(rounds: int) -> list[Row]:
    size = BODY | {"vocab_size": 50304}
    bounds = {what: bound for what, (_, _, _, bound) in STEP_CASES.items() if bound is not None}
    works = {"our GPT": model_step(bare("softmax-baseline", **size), 6)}
    for what in bounds:
        name, overrides, _, _ = STEP_CASES[what]
        works[what] = model_step(bare(name, **(size | overrides)), 6)
    seconds = interleaved(works, rounds, label="training steps, vocabulary 50,304")
    return [
        Row("step", f"{what}, vocabulary 50,304: step / our GPT", ratio(seconds, what, "our GPT"), bound)
        for what, bound in bounds.items()
    ]


# --- linear attention


def bench_linear(rounds: int) -> list[Row]:
    """Time per token against length, and the chunked oracle against the masked quadratic one."""
    size = BODY | {"vocab_size": 2048}
    works = {
        f"{name} {T}": model_step(bare(name, **(size | {"block_size": T})), 8192 // T)
        for name in ("linear-presymp-euler", "linear-baseline")
        for T in (1024, 8192)
    }
    seconds = interleaved(works, max(3, rounds // 4), warm_up=1, label="linear attention, long texts")
    rows = [
        Row("linear", f"{name}: time per token, T 8,192 / T 1,024", ratio(seconds, f"{name} 8192", f"{name} 1024"), 1.3)
        for name in ("linear-presymp-euler", "linear-baseline")
    ]
    seconds = interleaved(_oracle_works(), rounds, label="linear oracles")
    for what in ("accelerated", "classical"):
        value = ratio(seconds, f"{what} quadratic", f"{what} chunked")
        rows.append(Row("linear", f"{what} oracle, T 1,024: quadratic / chunked", value, 5.0, at_least=True))
    return rows


def _oracle_works() -> dict[str, Work]:
    """Forward and backward of the linear oracles at (6, 1, 1024, 64), fast and naive."""
    q, x, y = (torch.randn(6, 1, 1024, 64, requires_grad=True) for _ in range(3))
    g = torch.randn(6, 1, 1024, 64)

    def work(oracle: Callable[..., Any]) -> Work:
        def run() -> None:
            out = oracle(q, x, y)
            out = out if isinstance(out, tuple) else (out,)
            torch.autograd.grad(out, (q, x, y), (g,) * len(out))

        return run

    return {
        "accelerated chunked": work(ops.symplectic_scan),
        "accelerated quadratic": work(ops.symplectic_scan_naive),
        "classical chunked": work(ops.linear_attention),
        "classical quadratic": work(ops.linear_attention_naive),
    }


# --- memory


def bench_memory(rounds: int) -> list[Row]:
    """Peak memory of a training step at T = 4,096, against the GPT baseline's."""
    bounds = {"softmax-exp-euler": 1.2, "softmax-yuriiformer": None, "linear-presymp-euler": None}
    size = BODY | {"vocab_size": 2048, "block_size": 4096}
    peaks = {
        name: statistics.median(peak_memory(bare(name, **size), 1) for _ in range(min(3, rounds)))
        for name in ("softmax-baseline", *bounds)
    }
    return [
        Row(
            "memory",
            f"{name}: peak of a step at T 4,096 / GPT baseline",
            peaks[name] / peaks["softmax-baseline"],
            bound,
        )
        for name, bound in bounds.items()
    ]


# --- generation


def _continuation(model: LanguageModel, context: int, tokens: int) -> PreparedWork:
    """Draw `tokens` tokens after a cached context of `context` tokens; taking in the context is not timed."""
    idx = torch.randint(model.cfg.vocab_size, (1, context + tokens))

    decoder = Decoder(model)

    @torch.inference_mode()  # as in generate
    def prepare() -> Cache:
        cache = model.new_cache(1)
        decoder.hidden(idx[:, :context], cache)
        return cache

    @torch.inference_mode()  # as in generate
    def run(cache: Cache) -> None:
        for place in range(context, context + tokens):
            decoder.logits(idx[:, place : place + 1], cache).argmax(-1)

    return PreparedWork(prepare, run)


def _recomputation(model: LanguageModel, context: int, tokens: int, head_of_all: bool) -> Work:
    """Draw `tokens` tokens, each from a full pass over `context` tokens: plain calls of the model, or the body only."""
    idx = torch.randint(model.cfg.vocab_size, (1, context))

    @torch.inference_mode()  # as in generate
    def run() -> None:
        for _ in range(tokens):
            hidden = model.hidden(idx)
            F.linear(hidden if head_of_all else hidden[:, -1:], model.head_weight)[:, -1].argmax(-1)

    return run


def bench_generation(rounds: int) -> list[Row]:
    """Cached against recomputed tokens at context 448; the linear variants at context 4,096 against 64."""
    rows = []
    for name in ("softmax-exp-euler", "softmax-baseline"):
        model = build_model(bare(name, **(BODY | {"vocab_size": 50304})), seed=0).eval()
        works: dict[str, Work | PreparedWork] = {
            "cached": _continuation(model, 447, 4),
            "recomputed": _recomputation(model, 448, 4, head_of_all=True),
            "recomputed, head of the last place only": _recomputation(model, 448, 4, head_of_all=False),
        }
        seconds = interleaved(works, rounds, label=f"generation: {name}")
        for what, bound in (("recomputed", 20.0), ("recomputed, head of the last place only", None)):
            title = f"{name}: tokens/s cached / {what}, context 448"
            rows.append(Row("generation", title, ratio(seconds, what, "cached"), bound, at_least=True))
    for name in ("linear-presymp-euler", "linear-baseline"):
        size = BODY | {"vocab_size": 50304, "block_size": 4096 + 16}
        model = build_model(bare(name, **size), seed=0).eval()
        contexts = {f"context {n}": _continuation(model, n, 16) for n in (64, 4096)}
        value = ratio(interleaved(contexts, rounds, label=f"generation: {name}"), "context 4096", "context 64")
        rows.append(Row("generation", f"{name}: time per token, context 4,096 / 64", value, 1.2))
    return rows


SUITES: dict[str, Callable[[int], list[Row]]] = {
    "step": bench_step,
    "sizes": bench_sizes,
    "peers": bench_peers,
    "linear": bench_linear,
    "memory": bench_memory,
    "generation": bench_generation,
    "layers": bench_layers,
    "choices": bench_choices,
}
