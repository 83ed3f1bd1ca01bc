"""Models for Hugging Face's transformers. Importing this package registers them:

import sympformer.hf
model = transformers.AutoModelForCausalLM.from_pretrained(folder)
"""

from importlib.util import find_spec

from sympformer.errors import missing_extra

if find_spec("transformers") is None:
    raise missing_extra("sympformer.hf", "transformers", "hf")

from transformers import AutoConfig, AutoModel, AutoModelForCausalLM

from sympformer.hf.adapters import lora_modules
from sympformer.hf.cache import SympFormerCache
from sympformer.hf.configuration_sympformer import SympFormerConfig
from sympformer.hf.modeling_sympformer import SympFormerForCausalLM, SympFormerModel
from sympformer.hf.optimizer import optimizer_groups

AutoConfig.register(SympFormerConfig.model_type, SympFormerConfig, exist_ok=True)
AutoModel.register(SympFormerConfig, SympFormerModel, exist_ok=True)
AutoModelForCausalLM.register(SympFormerConfig, SympFormerForCausalLM, exist_ok=True)

__all__ = [
    "SympFormerCache",
    "SympFormerConfig",
    "SympFormerForCausalLM",
    "SympFormerModel",
    "lora_modules",
    "optimizer_groups",
]
