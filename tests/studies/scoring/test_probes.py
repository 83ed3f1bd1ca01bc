"""Scoring: the right and the wrong oracle, ties, a slow obvious twin, boundaries, cuts, and every variant."""

import math
from collections.abc import Callable
from itertools import accumulate

import pytest
import torch
from torch import Tensor

from sympformer.data.probes import KINDS, Probe, probe_set
from sympformer.errors import DivergenceError, InputError
from sympformer.models import VARIANTS, LanguageModel, build_model, variant
from sympformer.studies.scoring.probes import (
    credit,
    cut_note,
    encode_probe,
    log_likelihoods,
    score_probes,
    standard_error,
)

CHARACTERS, VOCABULARY = 128, 192
PAIRS = ("he", " a", "th", "er", "as", "re")  # `he` is one token, also inside `she`, so that choices share beginnings


def encode(text: str) -> list[int]:
    """A tokenizer of bytes and some pairs."""
    ids, at = [], 0
    while at < len(text):
        pair = text[at : at + 2]
        ids.append(CHARACTERS + PAIRS.index(pair) if pair in PAIRS else ord(text[at]))
        at += 2 if pair in PAIRS else 1
    return ids


def small_model(name: str = "softmax-exp-euler", block_size: int = 400) -> LanguageModel:
    cfg = variant(name, n_layer=2, n_head=2, d_model=16, block_size=block_size, vocab_size=VOCABULARY)
    model = build_model(cfg, seed=0).eval()
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator))
    return model


def uniform(idx: Tensor) -> Tensor:
    return torch.zeros(*idx.shape, VOCABULARY)


def prefixes(ids: list[int]) -> list[int]:
    """A number for every beginning of a text."""
    return list(accumulate(ids, lambda before, token: hash((before, token))))


def oracle(likes_right: bool) -> Callable[[Tensor], Tensor]:
    """Knows every probe by heart: likely is the next token of a right text, or of any wrong one."""
    following: dict[int, set[int]] = {}
    for probe in (probe for kind in KINDS for probe in probe_set(kind)):
        for i, text in enumerate(probe.texts):
            if (i == probe.answer) == likes_right:
                ids = encode(text)
                for prefix, token in zip(prefixes(ids), ids[1:], strict=False):
                    following.setdefault(prefix, set()).add(token)

    def logits(idx: Tensor) -> Tensor:
        out = uniform(idx)
        for row, ids in enumerate(idx.tolist()):
            known = [(place, t) for place, p in enumerate(prefixes(ids)) for t in following.get(p, ())]
            out[row, [place for place, _ in known], [token for _, token in known]] = 30.0
        return out

    return logits


@pytest.mark.parametrize(("likes_right", "accuracy"), [(True, 1.0), (False, 0.0)])
def test_oracles(likes_right: bool, accuracy: float) -> None:
    scores = score_probes(oracle(likes_right), encode, None)
    assert list(scores) == list(KINDS)
    for score in scores.values():
        assert score.accuracy == accuracy
        assert score.standard_error == 0.0
        assert (score.margin > 20) if likes_right else (score.margin < -20)
        assert {form.accuracy for form in score.forms.values()} == {accuracy}


def test_a_model_that_does_not_read_is_at_chance_exactly() -> None:
    """Whatever it likes, short or frequent words: every word is right as often as the others it stands beside."""
    likings = torch.randn(VOCABULARY, generator=torch.Generator().manual_seed(2))
    for logits in (uniform, lambda idx: likings.expand(*idx.shape, -1)):
        for score in score_probes(logits, encode, None).values():
            for one in (score, *score.forms.values()):
                assert one.accuracy == pytest.approx(one.chance, abs=1e-12)


@pytest.mark.parametrize(
    ("likelihoods", "answer", "points"),
    [([-1.0, -1.0, -2.0], 0, 0.5), ([-1.0, -1.0, -2.0], 2, 0.0), ([-3.0] * 4, 1, 0.25), ([-3.0, -1.0], 1, 1.0)],
)
def test_ties_share_the_point(likelihoods: list[float], answer: int, points: float) -> None:
    assert credit(likelihoods, answer) == points


def slow_nats(model: LanguageModel, text: str, others: tuple[str, ...]) -> float:
    """One text at a time, one token at a time, each after a prefix of its own."""
    ids = encode(text)
    shared = next(n for n in range(len(ids)) if any(encode(other)[n] != ids[n] for other in others))
    nats = 0.0
    for place in range(shared, len(ids)):
        after = model(torch.tensor([ids[:place]])).logits[0, -1]
        nats += math.log(float(after.double().softmax(-1)[ids[place]]))
    return nats


@pytest.mark.parametrize("name", VARIANTS)
def test_equal_to_a_slow_twin(name: str) -> None:
    model = small_model(name)
    probes = [probe_set(kind)[i] for kind in KINDS for i in (0, -1)]
    rows = [row for probe in probes for row in encode_probe(probe, encode, model.cfg.block_size)]
    with torch.no_grad():
        slow = [slow_nats(model, text, probe.texts) for probe in probes for text in probe.texts]
    for batch_size in (1, 5):
        assert log_likelihoods(lambda idx: model(idx).logits, rows, batch_size) == pytest.approx(slow, abs=1e-4)


def test_the_boundary_lies_where_the_choices_part() -> None:
    rows = encode_probe(Probe("x", "It was", (" hers.", " his.", " he."), 0, "y", 0), encode, None)
    assert [row.first for row in rows] == [6, 6, 6]  # I t _ w as _ | he r s .
    assert rows[0].ids[6:] == [CHARACTERS, ord("r"), ord("s"), ord(".")]
    joined = Probe("x", "It", (" as.", " an."), 0, "y", 0)  # " a" is one token: context and choice meet inside it
    assert encode_probe(joined, encode, None)[0].first == 3


def test_a_long_context_loses_its_beginning_and_is_counted() -> None:
    probe = probe_set("cloze")[0]
    whole, short = encode_probe(probe, encode, None), encode_probe(probe, encode, 20)
    longest = max(len(row.ids) for row in whole)
    assert [encode_probe(probe, encode, size)[0].cut for size in (longest - 1, longest - 2, 20)] == [False, True, True]
    assert max(len(row.ids) for row in short) == 21  # the last token is predicted, not read
    for long_row, short_row in zip(whole, short, strict=True):
        assert long_row.ids[long_row.first :] == short_row.ids[short_row.first :]
        assert long_row.ids[-len(short_row.ids) :] == short_row.ids
    scores = score_probes(uniform, encode, 40)
    assert scores["cloze"].cut == scores["cloze"].items
    assert 0 < scores["agreement"].cut < scores["agreement"].items
    assert f"{scores['agreement'].cut} of 240 agreement probes" in str(cut_note(scores, 40))
    assert "40 tokens" in str(cut_note(scores, 40))
    assert cut_note(score_probes(uniform, encode, None, ["agreement"]), None) is None


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda: score_probes(uniform, encode, 3), "a model that sees 3 tokens is too short for the probes"),
        (lambda: encode_probe(Probe("x", "", ("a.", "b."), 0, "y", 0), encode, None), "no common beginning"),
        (lambda: score_probes(uniform, encode, None, ["pronouns"]), "did you mean 'pronoun'"),
        (lambda: score_probes(lambda idx: uniform(idx) * math.nan, encode, None, ["agreement"]), "no finite likelih"),
    ],
)
def test_refusals(ask: Callable[[], object], message: str) -> None:
    with pytest.raises((InputError, DivergenceError), match=message):
        ask()


def test_the_standard_error_is_that_of_independent_groups() -> None:
    values, singles = [1.0, 0.0, 1.0, 1.0], [0, 1, 2, 3]
    expected = torch.tensor(values).std().item() / 2
    assert standard_error(values, singles) == pytest.approx(expected)
    assert standard_error(values * 2, singles * 2) == pytest.approx(expected)  # saying all twice proves nothing more
    assert standard_error([1.0, 0.0, 0.0, 1.0], [0, 0, 1, 1]) == 0.0
