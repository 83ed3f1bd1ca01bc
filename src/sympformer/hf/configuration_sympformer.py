# trf-ignore: TRF028 - it wants the header of Hugging Face's own repository; LICENSE covers this file
# trf-ignore: TRF057 (below) - @auto_docstring knows only the models of that repository, and would write "a None model"
# Copyright 2026 The SympFormer developers, see LICENSE
"""The config of a model in Hugging Face's form. It holds a `ModelConfig` whole, and nothing of it twice."""

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any, ClassVar

from huggingface_hub.dataclasses import strict
from transformers import PreTrainedConfig

from sympformer.errors import InputError, unknown_name
from sympformer.models.config import SIZES, ModelConfig

# mlp -> which matrices several devices may share; those of attention stay whole: averaged heads are one kernel
MLP_PLAN = {"body.blocks.*.mlp.up": "colwise", "body.blocks.*.mlp.down": "rowwise"}
TP_PLANS = {"gelu": MLP_PLAN, "relu2": MLP_PLAN}


# trf-ignore: TRF057
@strict
class SympFormerConfig(PreTrainedConfig):
    """Everything that defines a model, saved as config.json.

    `SympFormerConfig.from_model_config(sympformer.variant("softmax-exp-euler"))` makes one of a named variant;
    `to_model_config()` gives the same `ModelConfig` back.
    """

    model_type = "sympformer"
    keys_to_ignore_at_inference: ClassVar = ["past_key_values"]
    base_model_fsdp_plan: ClassVar = {
        "body.tokens": "free_full_weight",
        "body.blocks.*": "free_full_weight",
        "body.norm": "keep_full_weight",
    }

    vocab_size: int = 50304
    hidden_size: int = 64
    num_hidden_layers: int = 4
    num_attention_heads: int = 4
    max_position_embeddings: int = 128
    tie_word_embeddings: bool = True
    model_options: dict[str, Any] | None = None
    """The other fields of `sympformer.ModelConfig`; missing ones take its defaults."""
    use_cache: bool = True
    bos_token_id: int | None = None
    eos_token_id: int | list[int] | None = None
    pad_token_id: int | None = None

    def __post_init__(self, **kwargs: Any) -> None:
        _check_names(kwargs)
        for name, own in SIZES.items():  # a size has one place: its own field
            if own in (self.model_options or {}):
                raise InputError(
                    f"model_options holds {own!r}, which belongs to the config field {name!r}; give it there"
                )
        options = self.to_model_config().to_dict()
        # written in full, so that a default that changes one day does not change a saved model
        self.model_options = {name: value for name, value in options.items() if name not in SIZES.values()}
        super().__post_init__(**kwargs)
        # not by assignment, as it belongs to classes; last, as transformers adds a name that is not ours
        vars(self)["base_model_tp_plan"] = TP_PLANS.get(self.model_options["mlp"])

    def save_pretrained(self, *args: Any, **kwargs: Any) -> None:
        """As in transformers, after a look for slips: what is written can be read."""
        _check_names(vars(self))
        super().save_pretrained(*args, **kwargs)

    @classmethod
    def from_model_config(cls, cfg: ModelConfig, **kwargs: Any) -> "SympFormerConfig":
        """The Hugging Face form of a `ModelConfig`; `kwargs` such as eos_token_id come on top."""
        options = cfg.to_dict()
        sizes = {name: options.pop(own) for name, own in SIZES.items()}
        return cls(**sizes, model_options=options, **kwargs)

    def to_model_config(self) -> ModelConfig:
        """The `ModelConfig` that this config holds."""
        sizes = {own: getattr(self, name) for name, own in SIZES.items()}
        return ModelConfig.from_dict({**(self.model_options or {}), **sizes})


def _check_names(names: Iterable[str]) -> None:
    """Refuse a name that is nearly one of ours, and so a slip. Others are kept, as transformers keeps them."""
    for name in names:
        if name not in OWN and get_close_matches(name, OWN, n=1, cutoff=0.85):
            raise unknown_name("config field", name, OWN)


OWN = tuple(name for name, hint in SympFormerConfig.__annotations__.items() if hint is not ClassVar)

__all__ = ["SympFormerConfig"]
