"""Models for Hugging Face's transformers. Importing this package registers them:

import sympformer.hf
model = transformers.AutoModelForCausalLM.from_pretrained(folder)
"""

from importlib.util import find_spec

from sympformer.errors import missing_extra

if find_spec("transformers") is None:
    raise missing_extra("sympformer.hf", "transformers", "hf")

from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForQuestionAnswering,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
)

from sympformer.hf.adapters import lora_modules, tell_peft
from sympformer.hf.cache import SympFormerCache
from sympformer.hf.configuration_sympformer import SympFormerConfig
from sympformer.hf.heads import (
    SympFormerForQuestionAnswering,
    SympFormerForSequenceClassification,
    SympFormerForTokenClassification,
)
from sympformer.hf.modeling_sympformer import SympFormerForCausalLM, SympFormerModel
from sympformer.hf.optimizer import optimizer_groups

AutoConfig.register(SympFormerConfig.model_type, SympFormerConfig, exist_ok=True)
AutoModel.register(SympFormerConfig, SympFormerModel, exist_ok=True)
AutoModelForCausalLM.register(SympFormerConfig, SympFormerForCausalLM, exist_ok=True)
AutoModelForQuestionAnswering.register(SympFormerConfig, SympFormerForQuestionAnswering, exist_ok=True)
AutoModelForSequenceClassification.register(SympFormerConfig, SympFormerForSequenceClassification, exist_ok=True)
AutoModelForTokenClassification.register(SympFormerConfig, SympFormerForTokenClassification, exist_ok=True)
tell_peft()

__all__ = [
    "SympFormerCache",
    "SympFormerConfig",
    "SympFormerForCausalLM",
    "SympFormerForQuestionAnswering",
    "SympFormerForSequenceClassification",
    "SympFormerForTokenClassification",
    "SympFormerModel",
    "lora_modules",
    "optimizer_groups",
]
