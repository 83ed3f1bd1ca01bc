"""Which modules of a model an adapter (PEFT's LoRA) can be attached to: those that multiply.

Matrices that are part of a formula (`nn.Matrix`: B of the softmax system, A where the value is tied to it) are no
`nn.Linear`, so that `target_modules="all-linear"` leaves them alone and PEFT refuses them by name. To train one, take
it whole: `modules_to_save=["factor"]`.
"""

import sys

import torch
from torch import nn

from sympformer.hf.configuration_sympformer import SympFormerConfig
from sympformer.models import build_model

# what `LoraConfig()` without names takes: every projection there may be
DEFAULT = ["qkv", "qk", "potential", "out", "up", "down"]


def lora_modules(config: SympFormerConfig) -> list[str]:
    """Names for LoraConfig(target_modules=...): every projection that the model calls."""
    with torch.device("meta"):
        blocks = build_model(config.to_model_config().replace(n_layer=1)).blocks
    names = [name.rpartition(".")[2] for name, module in blocks.named_modules() if isinstance(module, nn.Linear)]
    return list(dict.fromkeys(names))


def tell_peft() -> None:
    """Give PEFT the names it takes by default, once it is there. Importing it would take longer than all else here."""
    if (constants := sys.modules.get("peft.utils.constants")) is not None:
        mapping = constants.TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING
        mapping.setdefault(SympFormerConfig.model_type, DEFAULT)
