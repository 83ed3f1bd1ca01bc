"""`sympformer bench`: what a layer costs, as ratios to our own GPT of equal layers, heads and width."""

import json
import statistics
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sympformer import files, machine, ops
from sympformer.errors import InputError
from sympformer.models import Cache, LanguageModel, ModelConfig, build_model, variant
from sympformer.provenance import this_code
from sympformer.studies.bench.timing import PreparedWork, Work, high_water, in_fresh_process, interleaved, ratio
from sympformer.tables import Head, terminal_table

Suite = Literal["step", "memory", "generation", "linear"]
BODY: dict[str, Any] = {"n_layer": 8, "n_head": 8, "d_model": 64, "block_size": 512}
BATCH = 6
VOCABULARIES = (2048, 50304)
GPT = "softmax-baseline"
LINEAR = ("linear-presymp-euler", "linear-baseline")
# what -> (variant, options, bound of a step by our GPT's at the large vocabulary)
STEPS: dict[str, tuple[str, dict[str, Any], float | None]] = {
    "tuned": ("softmax-exp-euler", {}, 0.60),
    "full": ("softmax-exp-euler", {"preset": "full"}, 0.60),
    "full, form paper": ("softmax-exp-euler", {"preset": "full", "form": "paper"}, 0.90),
    "full, multi-head": ("softmax-exp-euler", {"preset": "full", "heads": "multi"}, None),
    "YuriiFormer": ("softmax-yuriiformer", {}, None),
}


@dataclass(frozen=True)
class Row:
    """One figure: what was measured, the value, and the bound that it should stay below, if any."""

    suite: str
    what: str
    value: float
    bound: float | None = None

    @property
    def met(self) -> bool | None:
        """Whether the bound is kept; None without a bound."""
        return None if self.bound is None else self.value <= self.bound

    @property
    def cells(self) -> tuple[str, str, str, str]:
        verdict = {True: "met", False: "[bold red]missed[/]", None: ""}[self.met]
        return self.what, f"{self.value:.2f}", "" if self.bound is None else f"<= {self.bound:.2f}", verdict


def bench(suites: list[Suite] | None = None, rounds: int = 15, out: str | None = "runs/bench.json") -> None:
    """Measure what layers, long texts, memory and generation cost, as ratios.

    Args:
        suites: Which measurements: step, memory, generation, linear (attention at long texts). All by default.
        rounds: Rounds of interleaved timing; every figure is a median over them.
        out: JSON file for the figures and the machine; null writes none.
    """
    if rounds < 1:
        raise InputError(f"rounds must be at least 1, got {rounds}")
    target = None if out is None else _place(Path(out))
    rows: list[Row] = []
    # each is shown and written as soon as it is there: the whole takes minutes
    for suite in get_args(Suite) if suites is None else suites:
        show(suite, done := SUITES[suite](rounds))
        rows += done
        if target is not None:
            files.write(target, record(rows, rounds))
    if target is not None:
        print(f"written to {target}")


def record(rows: list[Row], rounds: int) -> str:
    figures = [asdict(row) | {"met": row.met} for row in rows]
    content = {"code": this_code().to_dict(), "machine": machine.facts(), "rounds": rounds, "figures": figures}
    return json.dumps(content, indent=2) + "\n"


def show(suite: str, rows: list[Row]) -> None:
    from rich.console import Console

    heads = [Head("measured", left=True, wrap=True), Head("ratio"), Head("wanted"), Head("", left=True)]
    table = terminal_table(f"{suite}: {machine.headline()}", heads, [row.cells for row in rows])
    Console(width=None if sys.stdout.isatty() else 110).print(table)


def _place(path: Path) -> Path:
    """The file's path, its folder made; an error before any minute is spent measuring."""
    if path.is_dir():
        raise InputError(f"out must name a file, {path} is a folder; try {path / 'bench.json'}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot make the folder {path.parent}: {error.strerror}") from None
    return path


# --- a training step


def bare(name: str, **options: Any) -> ModelConfig:
    """A variant without what its preset puts ahead of the layers: that costs all models alike."""
    return variant(name, **{"second_table": "none", "transport": "none"} | options)


def training_step(model: nn.Module, loss_of: Callable[[Tensor, Tensor], Tensor], cfg: ModelConfig, batch: int) -> Work:
    """Forward, backward, AdamW, on random tokens."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    idx, targets = torch.randint(cfg.vocab_size, (2, batch, cfg.block_size))

    def step() -> None:
        loss_of(idx, targets).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def model_step(cfg: ModelConfig, batch: int) -> Work:
    model = build_model(cfg, seed=0)
    return training_step(model, lambda idx, targets: model(idx, targets=targets).loss, cfg, batch)


def bench_step(rounds: int) -> list[Row]:
    """Training steps at L8 H8 d64 T512 batch 6 by our GPT's, with a small and a large vocabulary."""
    rows = []
    for size in VOCABULARIES:
        body, label = BODY | {"vocab_size": size}, f"vocabulary {size:,}"
        works = {what: model_step(bare(name, **(body | options)), BATCH) for what, (name, options, _) in STEPS.items()}
        works["GPT"] = model_step(bare(GPT, **body), BATCH)
        seconds = interleaved(works, rounds, label=f"training steps, {label}")
        for what, (_, _, bound) in STEPS.items():
            bound = bound if size == VOCABULARIES[-1] else None
            rows.append(Row("step", f"{what}, {label}: step / GPT", ratio(seconds, what, "GPT"), bound))
    return rows


# --- memory


def peak_memory(cfg: ModelConfig, batch: int) -> int:
    """Bytes that a training step adds to the peak of a fresh process."""
    return int(in_fresh_process(f"{__name__}:added_by_a_step", cfg.to_dict(), batch))


def added_by_a_step(fields: dict[str, Any], batch: int) -> int:
    """In that process: one small step first, so that libraries and thread pools are already counted."""
    model_step(ModelConfig.from_dict(fields | {"block_size": min(64, fields["block_size"])}), 1)()
    before = high_water()
    model_step(ModelConfig.from_dict(fields), batch)()
    return high_water() - before


def bench_memory(rounds: int) -> list[Row]:
    """Peak memory of a training step at T = 4,096 by our GPT's."""
    bounds = {"softmax-exp-euler": 1.2, "softmax-yuriiformer": None, "linear-presymp-euler": None}
    size = BODY | {"vocab_size": 2048, "block_size": 4096}
    peaks = {
        name: statistics.median(peak_memory(bare(name, **size), 1) for _ in range(min(3, rounds)))
        for name in (GPT, *bounds)
    }
    return [Row("memory", f"{n}: peak of a step at T 4,096 / GPT", peaks[n] / peaks[GPT], b) for n, b in bounds.items()]


# --- generation


def continuation(model: LanguageModel, context: int, tokens: int, cached: bool = True) -> PreparedWork:
    """Draw tokens after a context: with a cache of it, whose making is not timed, or each by a pass over all of it."""
    idx = torch.randint(model.cfg.vocab_size, (1, context + tokens))
    constants = model.constants(numbers=True)

    @torch.inference_mode()  # as in generate
    def prepare() -> Cache | None:
        cache = model.new_cache(1) if cached else None
        if cache is not None:
            model.hidden(idx[:, :context], cache, constants=constants)
        return cache

    @torch.inference_mode()
    def run(cache: Cache | None) -> None:
        for place in range(context, context + tokens):
            seen = idx[:, :context] if cache is None else idx[:, place : place + 1]
            hidden = model.hidden(seen, cache, constants=None if cache is None else constants)
            F.linear(hidden[:, -1], model.head_weight).argmax(-1)

    return PreparedWork(prepare, run)


def bench_generation(rounds: int) -> list[Row]:
    """Cached against recomputed tokens at context 448; the linear variants at context 4,096 against 64."""
    rows = []
    for name in ("softmax-exp-euler", GPT):
        model = build_model(bare(name, **(BODY | {"vocab_size": VOCABULARIES[-1]})), seed=0).eval()
        works = {"cached": continuation(model, 447, 4), "recomputed": continuation(model, 448, 4, cached=False)}
        seconds = interleaved(works, rounds, label=f"generation: {name}")
        title = f"{name}: time per token cached / recomputed, context 448"
        rows.append(Row("generation", title, ratio(seconds, "cached", "recomputed"), 0.2))
    for name in LINEAR:
        size = BODY | {"vocab_size": VOCABULARIES[-1], "block_size": 4096 + 16}
        model = build_model(bare(name, **size), seed=0).eval()
        contexts = {f"context {n}": continuation(model, n, 16) for n in (64, 4096)}
        value = ratio(interleaved(contexts, rounds, label=f"generation: {name}"), "context 4096", "context 64")
        rows.append(Row("generation", f"{name}: time per token, context 4,096 / 64", value, 1.2))
    return rows


# --- linear attention


def bench_linear(rounds: int) -> list[Row]:
    """Time per token against length, and the chunked scans against the masked quadratic sums."""
    works = {
        f"{name} {T}": model_step(bare(name, **(BODY | {"vocab_size": 2048, "block_size": T})), 8192 // T)
        for name in LINEAR
        for T in (1024, 8192)
    }
    seconds = interleaved(works, max(3, rounds // 4), warm_up=1, label="linear attention, long texts")
    title = "time per token, T 8,192 / T 1,024"
    rows = [Row("linear", f"{n}: {title}", ratio(seconds, f"{n} 8192", f"{n} 1024"), 1.3) for n in LINEAR]
    seconds = interleaved(scans(), rounds, label="linear scans")
    for what in ("accelerated", "classical"):
        value = ratio(seconds, f"{what} chunked", f"{what} quadratic")
        rows.append(Row("linear", f"{what} scan, T 1,024: chunked / quadratic", value, 0.2))
    return rows


def scans() -> dict[str, Work]:
    """Forward and backward of the linear scans at (6, 1, 1024, 64), fast and naive."""
    q, x, y = (torch.randn(6, 1, 1024, 64, requires_grad=True) for _ in range(3))
    g = torch.randn(6, 1, 1024, 64)

    def run(scan: Callable[..., Any]) -> None:
        out = scan(q, x, y)
        out = out if isinstance(out, tuple) else (out,)
        torch.autograd.grad(out, (q, x, y), (g,) * len(out))

    return {
        "accelerated chunked": partial(run, ops.symplectic_scan),
        "accelerated quadratic": partial(run, ops.symplectic_scan_naive),
        "classical chunked": partial(run, ops.linear_attention),
        "classical quadratic": partial(run, ops.linear_attention_naive),
    }


SUITES = {"step": bench_step, "memory": bench_memory, "generation": bench_generation, "linear": bench_linear}
