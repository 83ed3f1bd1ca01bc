"""The parts of the audit: places, edits, chunks, comparisons, gradients."""

import pytest
import torch
from torch import Tensor

from sympformer.audit import checks
from sympformer.audit.gradients import adversarial, token_slopes
from sympformer.loading import logits_of, token_tables
from tests.audit import toys

TEXT = torch.arange(12).unsqueeze(0)


@pytest.mark.parametrize(("T", "at_most"), [(2, 6), (7, 6), (8, 6), (400, 24)])
def test_places_have_both_ends(T: int, at_most: int) -> None:
    places = checks.places(T, at_most, seed=0)
    assert places == sorted(set(places))
    assert len(places) == min(at_most, T - 1)
    assert places[0] == 1
    assert places[-1] == T - 1


def test_edits_change_the_future_and_nothing_before() -> None:
    edited = checks.edited_texts(TEXT, 50, seed=0)
    assert {t for t, _ in edited} == set(range(1, 12))
    for t, text in edited:
        assert torch.equal(text[:, :t], TEXT[:, :t])
    changed = [t for t, text in edited if not torch.equal(text[:, t:], TEXT[:, t:])]
    assert set(changed) == set(range(1, 12))
    assert max(changed.count(t) for t in range(1, 12)) == 4
    assert all(set(text[0].tolist()) <= set(range(50)) for _, text in edited)


@pytest.mark.parametrize("T", [2, 3, 17, 80])
def test_chunkings_cover_the_text(T: int) -> None:
    cuts = checks.chunkings(T, seed=0)
    assert all(sum(sizes) == T and min(sizes) >= 1 for sizes in cuts)
    assert [1] * T in cuts
    assert [T] in cuts


def test_difference_knows_infinities() -> None:
    inf, nan = torch.inf, torch.nan
    a = torch.tensor([1.0, -inf, -inf, nan, inf])
    b = torch.tensor([3.0, -inf, 0.0, nan, -inf])
    assert checks.difference(a, b).tolist() == [2.0, 0.0, inf, inf, inf]


def test_deviations_keep_the_largest_and_the_first() -> None:
    found = checks.Deviations(0.1)
    zeros = torch.zeros(2, 5, 3)
    late, early = zeros.clone(), zeros.clone()
    late[1, 4, 0], early[0, 2, 1], early[0, 0, 0] = 7.0, 0.5, 0.05
    found.compare(late, zeros)
    assert found.finding() == checks.Finding(7.0, 4)
    found.compare(early, zeros)
    assert found.finding() == checks.Finding(7.0, 2)


def test_rows_are_split_where_logits_are_large(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = []
    model = toys.LateLeak()

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


def test_token_tables_are_those_that_read_tokens() -> None:
    model = toys.Causal()
    assert token_tables(model) == [model.tokens]
    assert token_tables(toys.OneHot()) == []


def test_slopes_are_the_first_order_change() -> None:
    """On a model that is linear in its embeddings a replaced token changes the sum by exactly its slope."""

    class Linear(toys.Causal):
        def forward(self, idx: Tensor) -> Tensor:
            return self.head(self.tokens(idx).cumsum(1).flip(1))

    model = Linear().double()
    text = torch.randint(toys.VOCAB, (1, 6), generator=torch.Generator().manual_seed(0))
    logits, tables, rows = logits_of(model), token_tables(model), range(2)
    slopes = token_slopes(logits, tables, text, rows, toys.VOCAB, seed=4)
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
    """Training may take another way through the code: no edit shows this leak, the gradient does."""

    class FromThirdOn(toys.Causal):
        def fault(self, x: Tensor) -> Tensor:
            sees_all = (torch.arange(x.shape[1]) >= 3).unsqueeze(1) & torch.tensor(torch.is_grad_enabled())
            return x + sees_all * x.mean(1, keepdim=True)

    torch.manual_seed(0)
    model = FromThirdOn().double()
    text = torch.randint(toys.VOCAB, (1, toys.LENGTH), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        assert checks.causality(logits_of(model), text, toys.VOCAB, 1e-9).first_position is None
    found = adversarial(logits_of(model), token_tables(model), text, toys.VOCAB, 1e-9)
    assert found.deviation is not None
    assert found.deviation > 0.01
    assert found.first_position == 3
