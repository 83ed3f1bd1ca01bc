"""Models for Hugging Face's transformers. Importing this package registers them:

import sympformer.hf
model = transformers.AutoModelForCausalLM.from_pretrained(folder)
"""

from importlib.util import find_spec

from sympformer.errors import missing_extra

if find_spec("transformers") is None:
    raise missing_extra("sympformer.hf", "transformers", "hf")

import transformers

from sympformer.hf.cache import SympFormerCache
from sympformer.hf.configuration_sympformer import SympFormerConfig
from sympformer.hf.modeling_sympformer import (
    SympFormerForCausalLM,
    SympFormerForQuestionAnswering,
    SympFormerForSequenceClassification,
    SympFormerForTokenClassification,
    SympFormerModel,
)
from sympformer.hf.peft import lora_modules, optimizer_groups, tell_peft

for auto, model in (
    (transformers.AutoModel, SympFormerModel),
    (transformers.AutoModelForCausalLM, SympFormerForCausalLM),
    (transformers.AutoModelForQuestionAnswering, SympFormerForQuestionAnswering),
    (transformers.AutoModelForSequenceClassification, SympFormerForSequenceClassification),
    (transformers.AutoModelForTokenClassification, SympFormerForTokenClassification),
):
    auto.register(SympFormerConfig, model, exist_ok=True)
transformers.AutoConfig.register(SympFormerConfig.model_type, SympFormerConfig, exist_ok=True)
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
