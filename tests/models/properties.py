"""The properties of a causal language model, each as the largest deviation from it: the audit's own checks."""

import torch
from torch import Tensor

from sympformer.audit import checks
from sympformer.audit.auditor import chunked_logits
from sympformer.models import LanguageModel
from sympformer.models.foreign import Logits, logits_of
from tests.models.cases import tokens

ANY = 0.0  # the tests here have their own tolerances


def size_of(finding: checks.Finding) -> float:
    assert finding.deviation is not None
    return finding.deviation


def future_leak(logits: Logits, idx: Tensor, vocab: int) -> float:
    """The largest change of a logit when later tokens are edited."""
    return max(size_of(checks.causality(logits, text, vocab, ANY)) for text in idx.split(1))


@torch.no_grad()
def worst_deviation(model: LanguageModel) -> dict[str, float]:
    """All four properties of a model."""
    idx, logits = tokens(), logits_of(model)
    chunked = chunked_logits(model, idx[:1, :1])
    assert chunked is not None
    return {
        "causality": future_leak(logits, idx, model.cfg.vocab_size),
        "prefix": size_of(checks.prefix(logits, idx, ANY)),
        "batch": size_of(checks.batch(logits, idx, ANY)),
        "cache": size_of(checks.cache(chunked, logits, idx, ANY)),
    }
