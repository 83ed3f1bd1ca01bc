"""The audit: does a language model look into the future, mix texts, or answer differently from its cache?

from sympformer.audit import assert_causal, audit_model

report = audit_model(model)            # any torch model from (batch, tokens) ids to logits
assert report.passed, report.worst
"""

from sympformer.audit.auditor import assert_causal, audit_model
from sympformer.audit.report import AuditReport, AuditRow

__all__ = ["AuditReport", "AuditRow", "assert_causal", "audit_model"]
