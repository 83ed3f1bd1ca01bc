"""Training with the tools of others: which modules an adapter can be attached to, and the optimizer groups.

Adapters (PEFT's LoRA) go to modules that multiply. Matrices that are part of a formula (`nn.Matrix`: B of the softmax
system, A where the value is tied to it) are no `nn.Linear`, so that `target_modules="all-linear"` leaves them alone and
PEFT refuses them by name. To train one, take it whole: `modules_to_save=["factor"]`.
"""

import sys

import torch
from torch import nn

from sympformer.errors import InputError
from sympformer.hf.configuration_sympformer import SympFormerConfig
from sympformer.models import build_model
from sympformer.nn import DECAYED, grouped_parameters

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


def optimizer_groups(
    model: nn.Module, lr: float, weight_decay: float = 0.1, scalar_lr_factor: float = 5.0
) -> list[dict[str, object]]:
    """Parameter groups for torch.optim: matrices and embeddings decay, gains and scalars do not, scalars learn faster.

    Every parameter that learns comes once; an adapter's count as matrices. A scheduler that scales each group's
    own rate, as those of transformers do, keeps the factor.
    """
    for name, value in (("lr", lr), ("weight_decay", weight_decay), ("scalar_lr_factor", scalar_lr_factor)):
        if not value >= 0:
            raise InputError(f"{name} must not be negative, got {value}")
    learning = {n: [p for p in ps if p.requires_grad] for n, ps in grouped_parameters(model).items()}
    return [
        {
            "name": name,
            "params": parameters,
            "lr": lr * scalar_lr_factor if name == "scalar" else lr,
            "weight_decay": weight_decay if name in DECAYED else 0.0,
        }
        for name, parameters in learning.items()
        if parameters
    ]
