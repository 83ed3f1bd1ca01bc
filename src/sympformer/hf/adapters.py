"""Which matrices of a model an adapter (PEFT's LoRA) can be attached to, and a check that it was attached there.

An adapter works on a module that the model calls. Some matrices are read instead, as mathematics: B of the softmax
system, A when the value is tied to it, V of linear attention under kernel "spd". An adapter there would be trained to
no effect; train the matrix itself (PEFT's `modules_to_save`).
"""

import torch
from torch import nn

from sympformer.errors import InputError
from sympformer.hf.configuration_sympformer import SympFormerConfig
from sympformer.models import build_model


def lora_modules(config: SympFormerConfig) -> list[str]:
    """Names for LoraConfig(target_modules=...): every projection that the model calls."""
    with torch.device("meta"):
        blocks = build_model(config.to_model_config().replace(n_layer=1)).blocks
    parents = [module for module in blocks.modules() if not isinstance(module, nn.Linear)]
    called = [n for p in parents for n, c in p.named_children() if isinstance(c, nn.Linear) and n not in _read(p)]
    return list(dict.fromkeys(called))


def check_adapters(model: nn.Module) -> None:
    """Refuse an adapter on a module that is read and not called: it would be trained to no effect."""
    for name, module in model.named_modules():
        for part in _read(module):
            if hasattr(getattr(module, part), "base_layer"):  # PEFT's name for what an adapter stands in front of
                raise InputError(
                    f"an adapter on {name}.{part} would do nothing, as the model reads that matrix and never calls it;"
                    " take target_modules from sympformer.hf.lora_modules(model.config), or modules_to_save"
                )


def _read(module: nn.Module) -> tuple[str, ...]:
    """The names of a module's matrices that are read, as it declares them."""
    return getattr(module, "read_matrices", ())
