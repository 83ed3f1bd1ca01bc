"""The one description of a model: a frozen, validated dataclass that round-trips through JSON and YAML."""

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_type_hints

from sympformer.config_checks import check_names
from sympformer.errors import InputError
from sympformer.nn import DYNAMICS, StackConfig
from sympformer.safe_files import LARGEST_YAML, parse_yaml, read_text

StartMomentum = Literal["zero", "embedded"]
SecondTable = Literal["none", "every_layer"]
Overflow = Literal["error", "slide"]


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
    start_momentum: StartMomentum = "zero"
    """Momentum before the first layer: zero, or embedded from token and position."""
    second_table: SecondTable = "none"
    """A second table of tokens: none, or added to x ahead of every layer, with a learned weight a layer and channel."""

    def _check_sizes(self) -> None:
        super()._check_sizes()
        for name in ("block_size", "vocab_size"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} must be at least 1, got {getattr(self, name)}")

    def used(self) -> frozenset[str]:
        momentum = {"start_momentum"} if DYNAMICS[self.architecture].has_momentum else set()
        return super().used() | {"block_size", "vocab_size", "tie_head", "overflow", "second_table"} | momentum

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "ModelConfig":
        """The config of these fields; missing ones take their defaults, unknown ones and those of no use are errors."""
        check_names(cls, values, "model", "model option")
        return cls.made_of({}, values)

    @classmethod
    def from_saved(cls, values: Mapping[str, Any]) -> "ModelConfig":
        """The config of a file that any version wrote: earlier ones wrote options of no use too, which are left out."""
        check_names(cls, values, "model", "model option")
        values = dict(values)
        if isinstance(values.get("mlp"), bool):  # before there were several kinds
            values["mlp"] = "gelu" if values["mlp"] else "none"
        return cls.made_of(values, {})

    def to_json(self) -> str:
        """JSON text."""
        return json.dumps(self.to_dict(), indent=2) + "\n"

    def to_yaml(self) -> str:
        """YAML text."""
        import yaml

        return yaml.safe_dump(self.to_dict(), sort_keys=False)

    @classmethod
    def from_text(cls, text: str, where: str = "config") -> "ModelConfig":
        """The config written in JSON or YAML text."""
        import yaml

        try:
            values = parse_yaml(text)  # JSON is YAML
        except yaml.YAMLError as error:
            raise InputError(f"{where} is neither JSON nor YAML: {' '.join(str(error).split())}") from None
        if not isinstance(values, dict):
            raise InputError(f"{where} must hold named fields, got {type(values).__name__}")
        return cls.from_saved(values)

    def save(self, path: str | Path) -> None:
        """Write .json, or .yaml / .yml."""
        path = Path(path)
        path.write_text(self.to_yaml() if path.suffix in (".yaml", ".yml") else self.to_json())

    @classmethod
    def load(cls, path: str | Path) -> "ModelConfig":
        """Read what `save` wrote."""
        return cls.from_text(read_text(Path(path), LARGEST_YAML, "the model config "), str(path))


def named_options() -> dict[str, tuple[Any, Any, Any]]:
    """What may stand under `model` in a config, or as `--model.NAME`: type, default, and its text or who has it."""
    hints = get_type_hints(ModelConfig)
    named = {
        "variant": "One of sympformer.VARIANTS.",
        "preset": "Of a variant: tuned, full, paper, paper-spd, modern.",
    }
    fields = {f.name: (hints[f.name], f.default, ModelConfig) for f in dataclasses.fields(ModelConfig)}
    return {name: (str, None, text) for name, text in named.items()} | fields
