"""Which matrices of a model an adapter (PEFT's LoRA) can be attached to, and a check that it was attached there.

An adapter works on a module that the model calls. Some matrices are read instead, as mathematics: B of the softmax
system, A when the value is tied to it, V of linear attention under kernel "spd". An adapter there would be trained to
no effect; train the matrix itself (PEFT's `modules_to_save`).
"""

from torch import nn

from sympformer.errors import InputError
from sympformer.hf.configuration_sympformer import SympFormerConfig
from sympformer.nn.attention.linear import LinearOracle
from sympformer.nn.attention.softmax import Mobility, SoftmaxOracle


def lora_modules(config: SympFormerConfig) -> list[str]:
    """Names for LoraConfig(target_modules=...): every projection that the model calls."""
    cfg = config.to_model_config()
    if cfg.architecture != "sympformer":
        attention = ["qkv", "out"]
    elif cfg.attention == "softmax":
        attention = ["qkv"] if cfg.value == "free" else []
    else:
        attention = ["qk", "potential"] if cfg.value == "free" else ["potential"] if cfg.kernel == "free" else []
    return attention + (["up", "down"] if cfg.mlp == "gelu" else [])


def check_adapters(model: nn.Module) -> None:
    """Refuse an adapter on a module that is read and not called: it would be trained to no effect."""
    for name, module in model.named_modules():
        for part in _read(module):
            if hasattr(getattr(module, part), "base_layer"):  # PEFT's name for what an adapter stands in front of
                raise InputError(
                    f"an adapter on {name}.{part} would do nothing, as the model reads that matrix and never calls it;"
                    " take target_modules from sympformer.hf.lora_modules(model.config), or modules_to_save"
                )


def _read(module: nn.Module) -> list[str]:
    """The names of a module's matrices that are read."""
    if isinstance(module, Mobility):
        return ["factor"]
    if isinstance(module, SoftmaxOracle):
        return ["qkv"] if module.tied else []
    if isinstance(module, LinearOracle):
        tied = ["qk"] if module.pull is None else []
        return ["pull", *tied, *(["potential"] if module.spd else [])]
    return []
