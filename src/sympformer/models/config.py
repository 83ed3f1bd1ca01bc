"""The one description of a model: a frozen, validated dataclass that is plain values in a file; and by name."""

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Self, get_type_hints

from sympformer.config_checks import check_names
from sympformer.errors import InputError, unknown_name
from sympformer.flows import INTEGRATORS, FrozenIntegrator
from sympformer.nn import ATTENTIONS, STEPPERS, StackConfig, attention, parts, positions, steppers
from sympformer.nn.presets import starts_of

StartMomentum = Literal["zero", "embedded"]
SecondTable = Literal["none", "every_layer"]
Overflow = Literal["error", "slide"]
ROWS = (attention, parts, positions, steppers)  # they fill the tables, also where the package is a flat folder
# the sizes by the names that tools look for in a config.json; there every other field stands under `model_options`
SIZES = {
    "vocab_size": "vocab_size",
    "hidden_size": "d_model",
    "num_hidden_layers": "n_layer",
    "num_attention_heads": "n_head",
    "max_position_embeddings": "block_size",
    "tie_word_embeddings": "tie_head",
}


@dataclass(frozen=True)
class ModelConfig(StackConfig):
    """Everything that defines a model. `variant()` fills it from a named row; any field can be overridden."""

    positions: str = "learned"
    """How places are told: learned (a table), rotary (queries and keys are turned, head by head), or none."""
    block_size: int = 128
    """Longest context, in tokens."""
    vocab_size: int = 50304
    """Number of token ids (GPT-2's 50,257 padded to a multiple of 64)."""
    tie_head: bool = True
    """Whether the output head is the token embedding."""
    overflow: Overflow = "error"
    """Generation beyond block_size: stop with an error, or slide (drop the older half of the context, recompute)."""
    start_momentum: StartMomentum | None = None
    """Momentum before the first layer: zero, or embedded from token and position."""
    second_table: SecondTable = "none"
    """A second table of tokens: none, or added to x ahead of every layer, with a learned weight a layer and channel."""

    def _check_sizes(self) -> None:
        super()._check_sizes()
        for name in ("block_size", "vocab_size"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} must be at least 1, got {getattr(self, name)}")

    def used(self) -> dict[str, Any]:
        momentum = {"start_momentum": "zero"} if STEPPERS[self.stepper].has_momentum else {}
        return super().used() | momentum

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """The config of these fields; missing ones take their defaults, unknown ones and those of no use are errors."""
        check_names(cls, values, "model", "model option")
        return cls(**values)


def named_options() -> dict[str, tuple[Any, Any, Any]]:
    """What may stand under `model` in a config, or as `--model.NAME`: type, default, and its text or who has it."""
    hints = get_type_hints(ModelConfig)
    named = {
        "variant": "One of sympformer.VARIANTS.",
        "preset": "Of a variant: tuned, full, paper, paper-spd, modern.",
    }
    fields = {f.name: (hints[f.name], f.default, ModelConfig) for f in dataclasses.fields(ModelConfig)}
    return {name: (str, None, text) for name, text in named.items()} | fields


class Variant(NamedTuple):
    """A row: what the model is. The presets say how it starts."""

    stepper: str
    attention: str
    integrator: str | None = None


class Variants(Mapping[str, Variant]):
    """The models of the paper's comparison, name -> row, made from the tables of attention kinds and integrators.

    Every kind of attention comes as baseline, as YuriiFormer and with each integrator: fourteen models, and more with
    every attention kind or integrator that is registered.
    """

    NO_ROW = ("symplectic_euler",)  # a scheme for `integrator = ...`, not of the paper's comparison

    def _rows(self) -> dict[str, Variant]:
        rows = {}
        for kind in ATTENTIONS:
            rows[f"{kind}-baseline"] = Variant("gradient", kind)
            rows[f"{kind}-yuriiformer"] = Variant("nesterov", kind)
            for name, scheme in INTEGRATORS.items():
                if issubclass(scheme, FrozenIntegrator) and name not in self.NO_ROW:
                    rows[f"{kind}-{name.replace('_', '-')}"] = Variant("hamiltonian", kind, name)
        return rows

    def __getitem__(self, name: str) -> Variant:
        return self._rows()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._rows())

    def __len__(self) -> int:
        return len(self._rows())


VARIANTS: Mapping[str, Variant] = Variants()


def variant(name: str, preset: str = "tuned", **overrides: Any) -> ModelConfig:
    """The config of a named variant, for example `variant("softmax-exp-euler", n_layer=8)`.

    preset "tuned" is ours: the momentum starts small, values are a free matrix, and ahead of every layer stand what
    helped all steppers most, a second table of tokens and transport from the token before; GPT and YuriiFormer have
    both too, so that no peer is denied what helps us. Softmax SympFormers have what pays: x' = y, y' = force - alpha y,
    without z, rho, B and a look-ahead in front of attention. "full" is "tuned" with these terms of the flow, B a free
    matrix; it differs from "tuned" for them only. "paper" is the paper's model to the letter: every layer learns Q, K
    and V, softmax has B = V A^-1, and YuriiFormer starts from tables.
    "paper-spd" is the same with the paper's assumptions built in: B (softmax) or A (linear) symmetric positive
    definite. It differs from "paper" for SympFormers only. "modern" is "full" made of newer parts, alike for all
    steppers: rotary positions, RMSNorm, norms on queries and keys, ReLU^2, true heads, an untied head, and zero-started
    matrices where a layer writes.
    """
    if name not in VARIANTS:
        raise unknown_name("variant", name, VARIANTS)
    check_names(ModelConfig, overrides, "model", "model option")
    row: dict[str, Any] = {n: overrides.get(n, value) for n, value in VARIANTS[name]._asdict().items()}
    return ModelConfig.made_of(starts_of(preset, **row), overrides)
