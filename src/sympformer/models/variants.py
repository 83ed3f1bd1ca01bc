"""The models of the paper's comparison, as rows of a table that grows with its parts.

Every kind of attention comes as baseline, as YuriiFormer and with each integrator: fourteen models, and more with
every attention kind or integrator that is registered.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from sympformer.config_checks import check_names
from sympformer.errors import unknown_name
from sympformer.flows import INTEGRATORS, FrozenIntegrator
from sympformer.models.config import ModelConfig
from sympformer.nn import ATTENTIONS
from sympformer.nn.presets import starts_of


@dataclass(frozen=True)
class Variant:
    """A row: what the model is. The presets say how it starts."""

    architecture: str
    attention: str
    integrator: str | None = None


class Variants(Mapping[str, Variant]):
    """Name -> row, made from the tables of attention kinds and integrators."""

    NO_ROW = ("symplectic_euler",)  # a scheme for `integrator = ...`, not of the paper's comparison

    def _rows(self) -> dict[str, Variant]:
        rows = {}
        for attention in ATTENTIONS:
            rows[f"{attention}-baseline"] = Variant("gpt", attention)
            rows[f"{attention}-yuriiformer"] = Variant("yuriiformer", attention)
            for name, scheme in INTEGRATORS.items():
                if issubclass(scheme, FrozenIntegrator) and name not in self.NO_ROW:
                    rows[f"{attention}-{name.replace('_', '-')}"] = Variant("sympformer", attention, name)
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
    helped all dynamics most, a second table of tokens and transport from the token before; GPT and YuriiFormer have
    both too, so that no peer is denied what helps us. Softmax SympFormers have what pays: x' = y, y' = force - alpha y,
    without z, rho, B and a look-ahead in front of attention. "full" is "tuned" with these terms of the flow, B a free
    matrix; it differs from "tuned" for them only. "paper" is the paper's model to the letter: every layer learns Q, K
    and V, softmax has B = V A^-1, and YuriiFormer starts from tables.
    "paper-spd" is the same with the paper's assumptions built in: B (softmax) or A (linear) symmetric positive
    definite. It differs from "paper" for SympFormers only. "modern" is "full" made of newer parts, alike for all
    dynamics: rotary positions, RMSNorm, norms on queries and keys, ReLU^2, true heads, an untied head, and zero-started
    matrices where a layer writes.
    """
    if name not in VARIANTS:
        raise unknown_name("variant", name, VARIANTS)
    row = VARIANTS[name]
    starts: dict[str, Any] = {"architecture": row.architecture, "attention": row.attention}
    if row.integrator is not None:
        starts["integrator"] = row.integrator
    starts |= starts_of(preset, row.architecture, row.attention, row.integrator)
    check_names(ModelConfig, overrides, "model", "model option")
    return ModelConfig.made_of(starts, overrides)
