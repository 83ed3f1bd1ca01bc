"""Helpers for the tests of other packages. Works with pytest and without.

from sympformer.testing import assert_causal

def test_my_model_is_causal():
    assert_causal(MyModel())
"""

from typing import Any

from torch import nn

from sympformer.audit import audit_model


def assert_causal(model: nn.Module, **options: Any) -> None:
    """Raise an AssertionError that names check, position and deviation, unless the model passes the audit.

    options: those of `sympformer.audit.audit_model`, such as vocab_size, length, seed.
    """
    report = audit_model(model, **options)
    lines = [row.sentence for row in report.rows if not row.passed or row.asked]
    if lines:
        found = "\n  ".join(lines)
        raise AssertionError(f"{type(model).__name__} fails {len(lines)} of {len(report.rows)} checks:\n  {found}")
