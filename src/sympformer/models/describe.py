"""A model in words and numbers."""

from collections import Counter

from torch import nn

from sympformer.models.attention import ClassicalAttention, LinearOracle, SoftmaxOracle
from sympformer.models.config import ModelConfig
from sympformer.models.layers import MLP, Embedding, Norm
from sympformer.models.model import LanguageModel
from sympformer.models.scalars import LearnedScalars

_PARTS: tuple[tuple[str, tuple[type[nn.Module], ...]], ...] = (
    ("norms", (Norm,)),
    ("scalars", (LearnedScalars,)),
    ("embeddings", (Embedding,)),
    ("attention", (ClassicalAttention, SoftmaxOracle, LinearOracle)),
    ("MLP", (MLP,)),
)


def parameter_counts(model: LanguageModel) -> dict[str, int]:
    """Parameters by part; shared and tied ones count once."""
    counts: Counter[str] = Counter({name: 0 for name, _ in _PARTS})
    seen: set[int] = set()
    for name, kinds in _PARTS:
        for module in model.modules():
            if isinstance(module, kinds):
                for parameter in module.parameters():
                    if id(parameter) not in seen:
                        seen.add(id(parameter))
                        counts[name] += parameter.numel()
    counts["head"] = sum(p.numel() for p in model.parameters() if id(p) not in seen)
    return dict(counts)


def oracle_calls(model: LanguageModel) -> int:
    """Attention-kernel evaluations of one forward pass: one a layer, for every model here."""
    return model.cfg.n_layer


def _passes(cfg: ModelConfig) -> str:
    twice = cfg.architecture == "sympformer" and cfg.attention == "softmax" and cfg.form == "paper"
    return "one attention kernel a layer" + (", passed over twice for the others' momenta" if twice else "")


def describe(model: LanguageModel) -> str:
    """Parameters by part, oracle calls, and the scalars of every layer."""
    cfg, counts = model.cfg, parameter_counts(model)
    kind = f"{cfg.architecture}, {cfg.attention} attention"
    if cfg.architecture == "sympformer":
        kind += f", {cfg.integrator}, {cfg.heads} heads" + (f", form {cfg.form}" if cfg.attention == "softmax" else "")
    lines = [
        f"{kind}: {cfg.n_layer} layers, {cfg.n_head} heads, width {cfg.d_model}, context {cfg.block_size},"
        f" vocabulary {cfg.vocab_size:,}",
        f"parameters   {sum(counts.values()):>12,}",
        *(f"  {name:<10} {count:>12,}" for name, count in counts.items() if count),
        f"oracle calls {oracle_calls(model):>12,} a forward pass ({_passes(cfg)})",
    ]
    return "\n".join(lines + _scalar_table(model.layer_scalars()))


def _scalar_table(rows: list[dict[str, float]]) -> list[str]:
    """One line a layer; nothing for a model without scalars."""
    names = list(rows[0])
    if not names:
        return []
    width = max(9, *(len(name) + 1 for name in names))
    lines = ["layer" + "".join(f"{name:>{width}}" for name in names)]
    return lines + [f"{k:>5}" + "".join(f"{row[name]:>{width}.4g}" for name in names) for k, row in enumerate(rows)]
