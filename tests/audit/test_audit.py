"""The audit finds every planted fault, passes every model of ours, and leaves the model alone."""

import json
import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import sympformer as sf
from sympformer.audit import AuditReport, AuditRow, audit_model
from sympformer.audit.auditor import CHECKS, FUTURE
from sympformer.audit.report import MEANINGS
from sympformer.errors import InputError
from sympformer.nn import Encoder
from sympformer.testing import assert_causal
from tests.audit import toys
from tests.models.cases import every_model, make

SIZE: dict[str, Any] = {
    "n_layer": 2,
    "n_head": 2,
    "d_model": 16,
    "block_size": 18,
    "vocab_size": 50,
}  # linear attention has a second chunk after 16


def build(kind: type[nn.Module]) -> nn.Module:
    torch.manual_seed(0)
    return kind()


def small(name: str = "softmax-exp-euler", **options: Any) -> nn.Module:
    return sf.build_model(sf.variant(name, **(SIZE | options)), seed=0)


@every_model
def test_our_models_pass(name: str, preset: str) -> None:
    report = audit_model(small(name, preset=preset))
    assert report.passed, report.worst.sentence
    assert (report.length, report.vocab_size, report.precision) == (18, 50, "float64")
    assert [(row.weights, row.check) for row in report.rows] == [(w, c) for w in ("given", "perturbed") for c in CHECKS]
    assert all(row.tried and row.note == "" for row in report.rows)


@pytest.mark.parametrize("kind", toys.FAULTS, ids=lambda kind: kind.__name__)
def test_faults_are_found_and_named(kind: type[toys.Causal]) -> None:
    report = audit_model(build(kind), length=toys.LENGTH)
    for weights in ("given", "perturbed"):
        failed = {row.check for row in report.failures if row.weights == weights}
        assert failed == toys.FAULTS[kind], weights
    assert report.passed == (not toys.FAULTS[kind])
    assert report.worst.passed == report.passed


def rows_of(kind: type[nn.Module], **options: Any) -> dict[str, AuditRow]:
    report = audit_model(build(kind), weights=("given",), **options)
    return {row.check: row for row in report.rows}


def test_the_first_position_is_where_the_leak_is() -> None:
    late, early = (rows_of(kind, length=toys.LENGTH) for kind in (toys.LateLeak, toys.MeanOverTime))
    for check in ("causality", "prefix"):
        assert late[check].first_position == toys.LATE
        assert early[check].first_position == 0
    assert early["adversarial"].first_position == 0
    assert late["batch"].first_position is None


def test_a_cache_that_raises_fails_with_its_own_words() -> None:
    row = rows_of(toys.CacheBreaks, length=toys.LENGTH)["cache"]
    assert row.deviation == math.inf
    assert "RuntimeError: out of luck" in row.sentence


def test_full_visibility_fails() -> None:
    failed = {row.check for row in audit_model(small(causal=False)).failures}
    assert failed == {"causality", "adversarial", "prefix", "cache"}


def test_a_fresh_start_can_hide_a_leak_and_perturbed_weights_show_it() -> None:
    model = build(toys.MeanOverTime)
    nn.init.zeros_(model.head.weight)  # type: ignore[union-attr, arg-type]
    report = audit_model(model, length=toys.LENGTH)
    given = [row for row in report.rows if row.weights == "given"]
    assert all(row.passed for row in given)
    assert "proves nothing" in given[1].note
    assert {row.weights for row in report.failures} == {"perturbed"}


def test_what_is_not_tried_is_said() -> None:
    rows = rows_of(toys.OneHot, vocab_size=toys.VOCAB)
    for check, reason in (("adversarial", "no nn.Embedding"), ("cache", "no cache")):
        assert not rows[check].tried
        assert rows[check].passed
        assert reason in rows[check].note
        assert reason in rows[check].sentence
    assert rows["causality"].tried


@pytest.mark.parametrize(
    ("kind", "dtype", "precision"),
    [
        (toys.Causal, None, "float64"),
        (toys.Causal, torch.float32, "float32"),
        (toys.FloatInside, None, "float64, float32 inside"),
        (toys.FloatOnly, None, "float32"),
    ],
)
def test_precision_is_as_good_as_the_model_allows(
    kind: type[nn.Module], dtype: torch.dtype | None, precision: str
) -> None:
    report = audit_model(build(kind), length=toys.LENGTH, dtype=dtype)
    assert report.passed
    assert report.precision == precision
    exact = precision == "float64"
    assert all((row.tolerance < 1e-7) == exact for row in report.rows)


def test_the_model_stays_as_it_is() -> None:
    model = small(dropout=0.1).train()
    model.blocks[0].eval()  # type: ignore[index, union-attr]
    model(torch.ones(1, 4, dtype=torch.long), torch.ones(1, 4, dtype=torch.long)).loss.backward()
    weights = {name: value.clone() for name, value in model.state_dict().items()}
    grads = [None if p.grad is None else p.grad.clone() for p in model.parameters()]
    modes, state = [module.training for module in model.modules()], torch.get_rng_state()

    audit_model(model, weights=("given", "fresh", "perturbed"))

    assert torch.equal(torch.get_rng_state(), state)
    assert [module.training for module in model.modules()] == modes
    assert all(torch.equal(value, weights[name]) for name, value in model.state_dict().items())
    assert {value.dtype for value in model.state_dict().values()} == {torch.float32}
    for parameter, grad in zip(model.parameters(), grads, strict=True):
        assert (parameter.grad is None) == (grad is None)
        assert grad is None or torch.equal(grad, parameter.grad)  # type: ignore[arg-type]
    assert all(not module._forward_hooks for module in model.modules())


def test_a_model_that_draws_numbers_leaves_the_random_state_alone() -> None:
    model, state = build(toys.DropoutLeftOn), torch.get_rng_state()
    audit_model(model, length=8, weights=("given",))
    assert torch.equal(torch.get_rng_state(), state)


def test_equal_seeds_give_equal_reports_and_others_do_not() -> None:
    model = build(toys.MeanOverTime)
    first, again, other = (audit_model(model, length=12, seed=seed) for seed in (1, 1, 2))
    assert first == again
    assert [row.deviation for row in first.rows] != [row.deviation for row in other.rows]


class NotFinite(toys.Causal):
    def fault(self, x: Tensor) -> Tensor:
        return x / 0


class BlowsUp(toys.Causal):
    """Finite until its head is moved much."""

    def __init__(self) -> None:
        super().__init__()
        nn.init.zeros_(self.head.weight)

    def fault(self, x: Tensor) -> Tensor:
        return x if self.head.weight.abs().max() < 0.5 else x * torch.nan


class SomeIdsMasked(toys.Causal):
    def forward(self, idx: Tensor) -> Tensor:
        hidden = super().forward(idx)
        return hidden.masked_fill(torch.arange(toys.VOCAB) > 30, -torch.inf)


def test_logits_that_are_not_finite() -> None:
    with pytest.raises(InputError, match="given weights are not finite"):
        audit_model(build(NotFinite), length=8)
    report = audit_model(build(BlowsUp), length=8)
    assert {row.note for row in report.rows if row.weights == "perturbed" and row.check == "batch"} == {
        "perturbed 2 times less, for finite logits"
    }
    masked = audit_model(build(SomeIdsMasked), length=8)
    assert masked.passed
    assert all(row.deviation is not None and row.deviation < 1e-12 for row in masked.rows if row.check != "cache")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"length": 1}, "length must be at least 2"),
        ({"length": 19}, "length 19 exceeds the 18 tokens"),
        ({"vocab_size": 1}, "vocab_size must be at least 2"),
        ({"vocab_size": 10**20}, r"vocab_size must be at least 2, and below 2\^31"),
        ({"length": 10**20}, "length must be at least 2 tokens, and at most 1,048,576"),
        ({"seed": 10**20}, r"seed must lie between 0 and 2\^63 - 1"),
        ({"seed": -1}, "seed must lie between 0"),
        ({"vocab_size": 90}, "the model failed on 3 x 18 token ids: IndexError"),
        ({"weights": ("gvien",)}, "did you mean 'given'"),
        ({"weights": ()}, "at least one of given"),
        ({"dtype": torch.int8}, "dtype must be float64"),
    ],
)
def test_bad_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        audit_model(small(), **options)


def test_fresh_weights_need_a_model_of_ours() -> None:
    with pytest.raises(InputError, match="need a sympformer model, got Causal"):
        audit_model(build(toys.Causal), weights=("fresh",), length=8)


def test_length_is_found_where_the_model_does_not_tell() -> None:
    assert audit_model(build(toys.Causal)).length == 16  # 80 and 32 are more than its 20 places
    assert audit_model(build(toys.OneHot), vocab_size=toys.VOCAB).length == 80


def test_reports_round_trip_through_json() -> None:
    report = audit_model(build(toys.CacheBreaks), length=toys.LENGTH)
    text = json.dumps(report.to_dict(), allow_nan=False)
    again = AuditReport.from_dict(json.loads(text))
    assert again == report
    assert json.loads(text)["passed"] is False
    assert any(row.deviation == math.inf for row in again.rows)


def test_every_check_can_be_explained() -> None:
    assert set(MEANINGS) == set(CHECKS)


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("dynamics", ["sympformer", "gpt"])
def test_an_encoder_sees_the_future_where_it_is_asked_to(dynamics: str, causal: bool) -> None:
    report = audit_model(Encoder(16, 2, 2, dynamics=dynamics, causal=causal), length=8)
    assert report.passed, report.worst
    verdicts = {row.check: row.verdict for row in report.rows if row.weights == "perturbed"}
    future = "holds" if causal else "sees the future, as asked"
    assert verdicts == {
        "repeat": "holds", "causality": future, "adversarial": future, "prefix": future, "batch": "holds",
        "cache": "not tried",
    }  # fmt: skip


def test_only_an_encoder_may_be_asked_to_see_the_future() -> None:
    report = audit_model(Encoder(16, 2, 1), length=8, weights=("perturbed",))
    (row,) = (row for row in report.rows if row.check == "causality")
    assert row.sentence == "causality (perturbed weights): sees the future, as asked"
    assert report.worst.check not in FUTURE
    assert AuditReport.from_dict(report.to_dict()) == report
    with pytest.raises(AssertionError, match="sees the future, as asked"):
        assert_causal(Encoder(16, 2, 1), length=8)
    assert not audit_model(make("softmax-exp-euler", causal=False), length=8, weights=("given",)).passed
