"""Other heads on the same body: texts, tokens and answers. All of each head is transformers' own."""

from typing import cast

from torch import nn
from transformers.modeling_layers import (
    GenericForQuestionAnswering,
    GenericForSequenceClassification,
    GenericForTokenClassification,
)

from sympformer.hf.modeling_sympformer import SympFormerPreTrainedModel


class SympFormerForSequenceClassification(GenericForSequenceClassification, SympFormerPreTrainedModel):
    """A class for every text, said at its last token."""


class SympFormerForTokenClassification(GenericForTokenClassification, SympFormerPreTrainedModel):
    """A class for every token."""


class SympFormerForQuestionAnswering(GenericForQuestionAnswering, SympFormerPreTrainedModel):
    """Where an answer begins and ends in a text."""

    def get_input_embeddings(self) -> nn.Module:
        return cast(SympFormerPreTrainedModel, self.base_model).get_input_embeddings()

    def set_input_embeddings(self, value: nn.Module) -> None:
        cast(SympFormerPreTrainedModel, self.base_model).set_input_embeddings(value)
