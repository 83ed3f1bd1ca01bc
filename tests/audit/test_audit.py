"""The audit finds every planted fault, passes models that are whole, and leaves the model alone."""

import json
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import sympformer as sf
from sympformer import cli
from sympformer.audit import AuditRow, assert_causal, audit_model, checks
from sympformer.audit.auditor import CHECKS, FUTURE
from sympformer.audit.report import MEANINGS
from sympformer.errors import InputError
from sympformer.models.foreign import logits_of, token_tables
from sympformer.nn import Encoder
from sympformer.opening import open_model
from tests.audit import toys

# linear attention has a second chunk after 16
SIZE: dict[str, Any] = {"n_layer": 2, "n_head": 2, "d_model": 16, "block_size": 18, "vocab_size": 50}
TEXT = torch.arange(12).unsqueeze(0)


def build(make: Callable[[], nn.Module] = toys.Causal) -> Any:
    torch.manual_seed(0)
    return make()


def faulty(fault: toys.Fault) -> Any:
    return build(lambda: toys.Causal(fault))


def small(name: str = "softmax-exp-euler", **options: Any) -> Any:
    return sf.build_model(sf.variant(name, **(SIZE | options)), seed=0)


def rows_of(model: nn.Module, **options: Any) -> dict[str, AuditRow]:
    return {row.check: row for row in audit_model(model, weights=("given",), **options).rows}


# --- whole audits


@pytest.mark.parametrize(
    ("name", "preset"), [("softmax-etd-ab2", "tuned"), ("linear-ab2", "paper"), ("softmax-yuriiformer", "modern")]
)
def test_our_models_pass(name: str, preset: str) -> None:
    report = audit_model(small(name, preset=preset))
    assert report.passed, report.worst.sentence
    assert (report.length, report.vocab_size, report.precision) == (18, 50, "float64")
    assert [(row.weights, row.check) for row in report.rows] == [(w, c) for w in ("given", "perturbed") for c in CHECKS]
    assert all(row.deviation is not None and row.note == "" for row in report.rows)


@pytest.mark.parametrize("fault", toys.FAULTS)
def test_faults_are_found_and_named(fault: str) -> None:
    make, checks_that_fail = toys.FAULTS[fault]
    report = audit_model(build(make), length=toys.LENGTH)
    for weights in ("given", "perturbed"):
        assert {row.check for row in report.failures if row.weights == weights} == checks_that_fail, weights
    assert report.passed == (not checks_that_fail) == report.worst.passed


def test_the_first_position_is_where_the_leak_is() -> None:
    late, early = (rows_of(faulty(fault), length=toys.LENGTH) for fault in (toys.late_leak, toys.mean_over_time))
    for check in ("causality", "prefix"):
        assert late[check].first_position == toys.LATE
        assert early[check].first_position == 0
    assert early["adversarial"].first_position == 0
    assert late["batch"].first_position is None


def test_tests_of_others_get_check_position_and_deviation() -> None:
    assert_causal(small())
    assert_causal(faulty(toys.late_leak), length=toys.LATE + 1)  # ends before the leak
    with pytest.raises(AssertionError) as caught:
        assert_causal(faulty(toys.late_leak), length=toys.LENGTH, weights=("given",))
    first, *lines = str(caught.value).splitlines()
    assert first == "Causal fails 2 of 6 checks:"
    assert [line.split()[0] for line in lines] == ["causality", "prefix"]
    assert all(f"first at position {toys.LATE}" in line and "by up to 0." in line for line in lines)


def test_a_fresh_start_can_hide_a_leak_and_perturbed_weights_show_it() -> None:
    model = faulty(toys.mean_over_time)
    nn.init.zeros_(model.head.weight)
    report = audit_model(model, length=toys.LENGTH)
    given = [row for row in report.rows if row.weights == "given"]
    assert all(row.passed for row in given)
    assert "proves nothing" in given[1].note
    assert {row.weights for row in report.failures} == {"perturbed"}


def test_what_is_not_tried_is_said() -> None:
    rows = rows_of(build(toys.OneHot), vocab_size=toys.VOCAB)
    for check, reason in (("adversarial", "no nn.Embedding"), ("cache", "no cache")):
        assert rows[check].passed
        assert rows[check].deviation is None
        assert reason in rows[check].note
        assert reason in rows[check].sentence
    assert rows["causality"].deviation is not None


def test_precision_is_as_good_as_the_model_allows() -> None:
    faults: dict[str, toys.Fault] = {
        "float64": lambda x: x,
        "float64, float32 inside": lambda x: x.float().sin().to(x),
        "float32": lambda x: x @ torch.eye(toys.WIDTH, dtype=torch.float32),  # cannot be converted
    }
    for precision, fault in faults.items():
        report = audit_model(faulty(fault), length=toys.LENGTH)
        assert report.passed
        assert report.precision == precision
        assert all((row.tolerance < 1e-7) == (precision == "float64") for row in report.rows)


def test_the_model_and_the_random_state_stay_as_they_are() -> None:
    model = small(dropout=0.1).train()
    model.blocks[0].eval()
    model(torch.ones(1, 4, dtype=torch.long), torch.ones(1, 4, dtype=torch.long)).loss.backward()
    weights = {name: value.clone() for name, value in model.state_dict().items()}
    grads = [None if p.grad is None else p.grad.clone() for p in model.parameters()]
    modes, state = [module.training for module in model.modules()], torch.get_rng_state()

    audit_model(model, weights=("given", "fresh", "perturbed"))

    assert [module.training for module in model.modules()] == modes
    assert all(torch.equal(value, weights[name]) for name, value in model.state_dict().items())
    assert {value.dtype for value in model.state_dict().values()} == {torch.float32}
    for parameter, grad in zip(model.parameters(), grads, strict=True):
        assert (parameter.grad is None) == (grad is None)
        assert grad is None or torch.equal(grad, parameter.grad)
    assert all(not module._forward_hooks for module in model.modules())
    assert torch.equal(torch.get_rng_state(), state)
    drawing = faulty(toys.dropout_left_on)
    state = torch.get_rng_state()
    audit_model(drawing, length=8, weights=("given",))
    assert torch.equal(torch.get_rng_state(), state)


def test_equal_seeds_give_equal_reports_and_others_do_not() -> None:
    model = faulty(toys.mean_over_time)
    first, again, other = (audit_model(model, length=12, seed=seed) for seed in (1, 1, 2))
    assert first == again
    assert [row.deviation for row in first.rows] != [row.deviation for row in other.rows]


def test_logits_that_are_not_finite() -> None:
    with pytest.raises(InputError, match="given weights are not finite"):
        audit_model(faulty(lambda x: x / 0), length=8)
    report = audit_model(build(toys.BlowsUp), length=8)
    note = next(row.note for row in report.rows if row.weights == "perturbed" and row.check == "batch")
    assert note == "perturbed 2 times less, for finite logits"
    masked = audit_model(build(toys.SomeIdsMasked), length=8)
    assert masked.passed
    assert all(row.deviation is not None and row.deviation < 1e-12 for row in masked.rows if row.check != "cache")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"length": 1}, "length must lie between 2 and 1,048,576, got 1"),
        ({"length": 10**20}, "length must lie between 2"),
        ({"length": 19}, "length 19 exceeds the 18 tokens"),
        ({"vocab_size": 1}, "vocab_size must lie between 2 and"),
        ({"vocab_size": 10**20}, "vocab_size must lie between 2 and"),
        ({"seed": -1}, "seed must lie between 0"),
        ({"seed": 10**20}, "seed must lie between 0"),
        ({"vocab_size": 90}, "the model failed on 3 x 18 token ids: IndexError"),
        ({"weights": ("gvien",)}, "did you mean 'given'"),
        ({"weights": ()}, "at least one of given"),
    ],
)
def test_bad_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        audit_model(small(), **options)


def test_fresh_weights_need_a_model_of_ours() -> None:
    with pytest.raises(InputError, match="need a sympformer model, got Causal"):
        audit_model(build(), weights=("fresh",), length=8)


def test_length_is_found_where_the_model_does_not_tell() -> None:
    assert audit_model(build()).length == 16  # 80 and 32 are more than its 20 places
    assert audit_model(build(toys.OneHot), vocab_size=toys.VOCAB).length == 80


def test_a_cache_that_raises_fails_in_its_own_words_and_reports_are_plain_values() -> None:
    report = audit_model(build(lambda: toys.Cached(toys.breaks)), length=toys.LENGTH)
    row = next(row for row in report.rows if row.check == "cache")
    assert row.deviation == math.inf
    assert "RuntimeError: out of luck" in row.sentence
    plain = json.loads(json.dumps(report.to_dict(), allow_nan=False))
    assert plain["passed"] is False
    assert [float(r["deviation"]) for r in plain["rows"]] == [r.deviation for r in report.rows]
    assert [r["sentence"] for r in plain["rows"]] == [r.sentence for r in report.rows]
    assert set(MEANINGS) == set(CHECKS)


@pytest.mark.parametrize("causal", [True, False])
def test_an_encoder_may_see_the_future_where_it_is_asked_to(causal: bool) -> None:
    report = audit_model(Encoder(16, 2, 2, causal=causal), length=8)
    assert report.passed, report.worst
    verdicts = {row.check: row.verdict for row in report.rows if row.weights == "perturbed"}
    future = "holds" if causal else "sees the future, as asked"
    assert verdicts == dict.fromkeys(CHECKS, "holds") | dict.fromkeys(FUTURE, future) | {"cache": "not tried"}
    if not causal:
        assert report.worst.check not in FUTURE
        with pytest.raises(AssertionError, match=r"causality .perturbed weights.: sees the future, as asked"):
            assert_causal(Encoder(16, 2, 1), length=8)


def test_a_language_model_may_not() -> None:
    failed = {row.check for row in audit_model(small(causal=False)).failures}
    assert failed == {*FUTURE, "cache"}


# --- parts: places, edits, chunks, comparisons, gradients


@pytest.mark.parametrize(("T", "at_most"), [(2, 6), (7, 6), (8, 6), (400, 24)])
def test_places_have_both_ends(T: int, at_most: int) -> None:
    places = checks.places(T, at_most, seed=0)
    assert places == sorted(set(places))
    assert (len(places), places[0], places[-1]) == (min(at_most, T - 1), 1, T - 1)


def test_edits_change_the_future_and_nothing_before() -> None:
    edited = checks.edited_texts(TEXT, 50, seed=0)
    assert {t for t, _ in edited} == set(range(1, 12))
    assert all(torch.equal(text[:, :t], TEXT[:, :t]) for t, text in edited)
    assert all(set(text[0].tolist()) <= set(range(50)) for _, text in edited)
    changed = [t for t, text in edited if not torch.equal(text[:, t:], TEXT[:, t:])]
    assert set(changed) == set(range(1, 12))
    assert max(changed.count(t) for t in range(1, 12)) == 4


@pytest.mark.parametrize("T", [2, 3, 17, 80])
def test_chunkings_cover_the_text(T: int) -> None:
    cuts = checks.chunkings(T, seed=0)
    assert all(sum(sizes) == T and min(sizes) >= 1 for sizes in cuts)
    assert [1] * T in cuts
    assert [T] in cuts


def test_differences_know_infinities_and_keep_the_largest_and_the_first() -> None:
    inf, nan = torch.inf, torch.nan
    a, b = torch.tensor([1.0, -inf, -inf, nan, inf]), torch.tensor([3.0, -inf, 0.0, nan, -inf])
    assert checks.difference(a, b).tolist() == [2.0, 0.0, inf, inf, inf]
    zeros = torch.zeros(2, 5, 3)
    late, early = zeros.clone(), zeros.clone()
    late[1, 4, 0], early[0, 2, 1], early[0, 0, 0] = 7.0, 0.5, 0.05
    assert checks.agree([(late, zeros)], 0.1) == checks.Finding(7.0, 4)
    assert checks.agree([(late, zeros), (early, zeros)], 0.1) == checks.Finding(7.0, 2)


def test_rows_are_split_where_logits_are_large(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = []
    model = toys.Causal(toys.late_leak)

    def logits(idx: Tensor) -> Tensor:
        sizes.append(idx.shape[0])
        return model(idx)

    text = torch.randint(toys.VOCAB, (1, toys.LENGTH))
    with torch.no_grad():
        whole = checks.causality(logits, text, toys.VOCAB, 1e-5)
        assert max(sizes) > 20
        sizes.clear()
        monkeypatch.setattr(checks, "LOGITS_AT_ONCE", 3 * toys.LENGTH * toys.VOCAB)
        assert checks.causality(logits, text, toys.VOCAB, 1e-5) == pytest.approx(whole)
    assert max(sizes) == 3


def test_slopes_are_the_first_order_change() -> None:
    """On a model that is linear in its embeddings a replaced token changes the sum by exactly its slope."""
    model = build(toys.LinearInItsTokens).double()
    text = torch.randint(toys.VOCAB, (1, 6), generator=torch.Generator().manual_seed(0))
    logits, tables = logits_of(model), token_tables(model)
    slopes = checks.token_slopes(logits, tables, text, range(2), toys.VOCAB, seed=4)
    assert slopes is not None
    weights = torch.randn(2, toys.VOCAB, generator=torch.Generator().manual_seed(4)).double()
    for place, token in ((3, 11), (5, 2)):
        edited = text.clone()
        edited[0, place] = token
        with torch.no_grad():
            change = (weights * (logits(edited) - logits(text))[0, :2]).sum()
        torch.testing.assert_close(slopes[place, token], change)
    assert slopes.gather(1, text[0].unsqueeze(1)).abs().max() == 0  # a token replaced by itself


def test_a_leak_on_the_way_with_gradients_only_is_found_where_it_begins() -> None:
    model = faulty(toys.leak_in_training).double()
    text = torch.randint(toys.VOCAB, (1, toys.LENGTH), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        assert checks.causality(logits_of(model), text, toys.VOCAB, 1e-9).first_position is None
    found = checks.adversarial(logits_of(model), token_tables(model), text, toys.VOCAB, 1e-9)
    assert found.deviation is not None
    assert found.deviation > 0.01
    assert found.first_position == 3


# --- the command
ROOT = Path(__file__).parents[2]
LEAKING = "docs/examples/leaking_model.py"
PAGE = (ROOT / "docs" / "audit.md").read_text()


@pytest.fixture(autouse=True)
def place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    monkeypatch.chdir(ROOT)


def table_rows(text: str) -> dict[tuple[str, str], list[str]]:
    """(check, weights) -> the other cells."""
    lines = [[cell.strip() for cell in line.split("│")[1:-1]] for line in text.splitlines() if line.startswith("│")]
    return {(line[0], line[1]): line[2:] for line in lines}


@pytest.mark.parametrize("target", [LEAKING, "docs.examples.leaking_model:build"])
def test_the_leaking_example_is_caught(target: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["audit", target, "--length", "10"]) == 1
    text = capsys.readouterr().out
    rows = table_rows(text)
    for weights in ("fresh", "perturbed"):
        assert {check for check, w in rows if w == weights and rows[check, w][-1] == "FAILS"} == set(FUTURE)
        assert rows["causality", weights][2] == "0"
        assert float(rows["causality", weights][0]) > 0.01
        assert rows["cache", weights] == ["", rows["batch", weights][1], "", "not tried"]
    assert re.search(r"FAILS causality \(fresh weights\): logits change .* first at position 0\n", text)
    assert "cache: not tried: the model has no cache" in text
    assert "passes" not in text


def test_the_leaking_example_can_be_trained() -> None:
    """It is a model that one could have written: it has gradients, and learns."""
    model = open_model(LEAKING).model.train()
    idx = torch.arange(12).unsqueeze(0)
    torch.nn.functional.cross_entropy(model(idx)[0, :-1], idx[0, 1:]).backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())


def test_a_variant_passes(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["audit", "linear-ab2", "--length", "8"]) == 0
    text = capsys.readouterr().out
    rows = table_rows(text)
    assert {weights for _, weights in rows} == {"fresh", "perturbed"}
    assert {cells[-1] for cells in rows.values()} == {"holds"}
    assert "linear-ab2 passes" in text
    assert "8 tokens of 256, float64" in text


def test_a_run_is_audited_trained_fresh_and_perturbed(tiny_run: str, tmp_path: Path, capsys: Any) -> None:
    file = tmp_path / "report.json"
    assert cli.main(["audit", tiny_run, "--json", str(file), "--seed", "3"]) == 0
    assert {weights for _, weights in table_rows(capsys.readouterr().out)} == {"trained", "fresh", "perturbed"}
    written = json.loads(file.read_text())
    assert (written["kind"], written["target"]) == ("run", tiny_run)
    assert written["passed"] is True
    assert (written["length"], written["seed"], len(written["rows"])) == (16, 3, 18)


def test_the_page_runs_as_it_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    blocks = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert len(blocks) == 2
    names: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, "docs/audit.md", "exec"), names)
    names["test_my_model_is_causal"]()  # type: ignore[operator]
    assert capsys.readouterr().out.startswith("True ")
    assert set(re.findall(r"^\| (\w+) \|", PAGE, re.MULTILINE)) - {"check"} == set(CHECKS)
    assert "(examples/leaking_model.py)" in PAGE
