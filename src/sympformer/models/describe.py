"""A model in words and numbers."""

import dataclasses
from collections import Counter
from typing import TYPE_CHECKING

import torch
from torch import nn

from sympformer import ops
from sympformer.models.config import ModelConfig
from sympformer.nn import ATTENTIONS, STEPPERS, Embedding, Scalars

if TYPE_CHECKING:
    from sympformer.models.model import LanguageModel

PARTS = ("norms", "scalars", "embeddings", "attention", "MLP", "head")


def parameter_counts(model: "LanguageModel") -> dict[str, int]:
    """Parameters by part; shared and tied ones count once."""
    counts: Counter[str] = Counter(dict.fromkeys(PARTS, 0))
    seen: set[int] = set()
    for name, module in model.named_modules():
        for parameter in module.parameters(recurse=False):
            if id(parameter) not in seen:
                seen.add(id(parameter))
                counts[_part(name, module)] += parameter.numel()
    return dict(counts)


def _part(name: str, module: nn.Module) -> str:
    """The part of a model that a module belongs to, by what it is and where it stands."""
    if getattr(module, "group", None) == "gain":
        return "norms"
    if isinstance(module, Scalars):
        return "scalars"
    if isinstance(module, Embedding):
        return "embeddings"
    _, _, place = name.partition("blocks.")
    part = place.split(".")[1] if "." in place else ""
    if not place:
        return "norms" if part == "norm" else "head"
    return "MLP" if part == "mlp" else "norms" if part in ("norm", "bounds") else "attention"


@torch.no_grad()
def kernel_passes(model: "LanguageModel") -> int:
    """Kernel passes of one forward pass, counted on a text of two tokens (or one, where no more fit).

    Linear attention moves and pulls by momenta alone: at rest, the pass of its flow's first layer gives nothing, and is
    not counted.
    """
    idx = torch.zeros(1, min(2, model.cfg.block_size), dtype=torch.long, device=model.tokens.weight.device)
    with ops.count_passes() as count:
        model.hidden(idx)
    cfg = model.cfg
    idle = STEPPERS[cfg.stepper].inertial and ATTENTIONS[cfg.attention].one_momentum and cfg.start_momentum == "zero"
    return count.passes - idle


def describe(model: "LanguageModel") -> str:
    """Parameters by part, kernel passes, and the scalars of every layer."""
    cfg, counts, passes = model.cfg, parameter_counts(model), kernel_passes(model)
    lines = [
        f"{kind_of(cfg)}: {cfg.n_layer} layers, {cfg.n_head} heads, width {cfg.d_model}, context {cfg.block_size},"
        f" vocabulary {cfg.vocab_size:,}",
        f"parameters    {sum(counts.values()):>12,}",
        *(f"  {name:<11} {count:>12,}" for name, count in counts.items() if count),
        f"kernel passes {passes:>12,} a forward pass ({passes / cfg.n_layer:g} a layer, counted)",
    ]
    rows = model.layer_scalars()
    widths = {name: max(len(name), 9) + 2 for name in rows[0]}
    if widths:  # some models learn no scalars
        lines.append("layer" + "".join(f"{name:>{width}}" for name, width in widths.items()))
        lines += [f"{k:>5}" + "".join(f"{row[n]:>{w}.4g}" for n, w in widths.items()) for k, row in enumerate(rows)]
    return "\n".join(lines + [f"  {name:<15}  {LEGEND[name]}" for name in widths if name in LEGEND])


SAID = ("n_layer", "n_head", "d_model", "block_size", "vocab_size", "stepper", "attention", "integrator", "overflow")
STARTS = ("h_x", "h_y", "mu", "mu_mlp", "beta", "damping", "gain")  # the scalars are told where they stand now


def kind_of(cfg: ModelConfig) -> str:
    """Stepper and attention, and whatever is not as it is by default."""
    usual = {field.name: field.default for field in dataclasses.fields(cfg)} | cfg.used()
    others = [
        f"{name} {value}"
        for name, value in cfg.to_dict().items()
        if name not in (*SAID, *STARTS) and value != usual[name]
    ]
    return ", ".join(filter(None, [cfg.stepper, f"{cfg.attention} attention", cfg.integrator, *others]))


# what the columns of the scalars mean; a scalar of somebody else's stepper has no line here
LEGEND = {
    "h_x": "step of the positions",
    "h_y": "step of the momenta",
    "factor": "momentum factor a of the step",
    "c_log": "damping that fades, c_log / t",
    "c_lin": "damping that stays",
    "mu": "look-ahead of attention, at x + mu y",
    "mu_attention": "look-ahead of attention, at x + mu y",
    "beta_attention": "momentum factor of the attention step",
    "gamma_attention": "gain of the attention step",
    "mu_mlp": "look-ahead of the MLP, at x + mu y",
    "beta_mlp": "momentum factor of the MLP step",
    "gamma_mlp": "gain of the MLP step",
    "t": "time at the layer; it advances by h_x a layer",
    "alpha": "damping at that time, c_log / t + c_lin",
}
