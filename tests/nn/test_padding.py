"""Padding changes nothing: a row of a padded batch has the results, and the gradients, of its text alone."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from sympformer.errors import InputError
from sympformer.models import LanguageModel
from sympformer.nn import View, same_text
from tests.models.cases import make, tokens
from tests.nn.rows import RAGGED

both_visibilities = pytest.mark.parametrize("causal", [True, False], ids=["causal", "full"])


def gradients(module: nn.Module) -> dict[str, Tensor]:
    return {name: torch.zeros_like(p) if p.grad is None else p.grad for name, p in module.named_parameters()}


# one model of each kind of memory and of each dynamics
KINDS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "own": ("softmax-exp-euler", "full", {}),
    "tuned": ("softmax-exp-euler", "tuned", {}),
    "paper": ("softmax-etd-ab2", "paper", {}),
    "linear": ("linear-exp-euler", "tuned", {}),
    "gpt": ("softmax-baseline", "tuned", {}),
    "gpt-linear": ("linear-baseline", "tuned", {}),
    "yurii": ("softmax-yuriiformer", "paper", {}),
    "transport": ("softmax-exp-euler", "full", {"transport": "both"}),
    "transport-table": ("linear-baseline", "tuned", {"transport": "positions", "second_table": "every_layer"}),
    "parallel": ("softmax-ab2", "full", {"splitting": "parallel", "bound": "drift"}),
}
every_kind = pytest.mark.parametrize("kind", KINDS)


def of_kind(kind: str, **overrides: Any) -> LanguageModel:
    name, preset, options = KINDS[kind]
    return make(name, preset, n_layer=2, **options, **overrides)


@every_kind
def test_no_padding_is_the_plain_way_bit_for_bit(kind: str) -> None:
    model, ids = of_kind(kind), tokens(3, 6)
    nothing = torch.zeros(3, 6, dtype=torch.bool)
    assert torch.equal(model(ids, key_padding_mask=nothing).hidden, model(ids).hidden)
    places = torch.arange(6).expand(3, 6)
    assert torch.equal(model(ids, position_ids=places).hidden, model(ids).hidden)


@every_kind
@both_visibilities
def test_texts_packed_into_one_row_do_not_see_each_other(kind: str, causal: bool) -> None:
    model, lengths = of_kind(kind, causal=causal), (3, 1, 5)
    ids = tokens(2, sum(lengths))
    places = torch.cat([torch.arange(n) for n in lengths]).expand(2, -1)
    with torch.no_grad():
        out = model(ids, position_ids=places, mask=same_text(places)).hidden
        alone = [model(text).hidden for text in ids.split(lengths, 1)]
    assert (out - torch.cat(alone, 1)).abs().max() < 1e-12


@every_kind
def test_rows_of_a_ragged_cache_are_selected_and_forgotten(kind: str) -> None:
    model, ids = of_kind(kind), tokens(5, 10)
    order = torch.tensor([3, 0, 2])
    with torch.no_grad():
        cache = model.new_cache(5)
        model(ids[:, :7], cache=cache, key_padding_mask=~RAGGED)
        part = cache.part(order)
        if part.layers[0].croppable:
            part.crop(5)
        kept = RAGGED[order, : part.length]
        got = model(ids[order, 7:], cache=part).hidden
        for row, place in enumerate(order.tolist()):
            text = torch.cat((ids[place, : part.length - 3][kept[row]], ids[place, 7:]))
            want = model(text[None]).hidden[0, -3:]
            assert (got[row] - want).abs().max() <= 1e-12 * max(1.0, want.abs().max().item())
    assert cache.length == 7


@every_kind
def test_embeddings_in_place_of_ids(kind: str) -> None:
    model, ids = of_kind(kind), tokens(2, 6)
    assert torch.equal(model(ids, inputs_embeds=model.tokens(ids)).hidden, model(ids).hidden)


def test_input_that_does_not_fit_is_one_sentence() -> None:
    model, ids = of_kind("own"), tokens(2, 6)
    linear = of_kind("linear")
    cache = linear.new_cache(2)
    mask = torch.ones(2, 1, 6, 6, dtype=torch.bool)
    bad: dict[str, Callable[[], Any]] = {
        "must be boolean, True at padding, got torch.float32": lambda: model(ids, key_padding_mask=torch.zeros(2, 6)),
        r"shape \(batch, tokens\) = \(2, 6\)": lambda: model(ids, key_padding_mask=mask[:, 0, 0, 1:]),
        "give token ids or inputs_embeds": lambda: model(None),
        r"d_model = 16\), at least one token, got \(2, 6, 3\)": lambda: model(ids, inputs_embeds=torch.zeros(2, 6, 3)),
        r"position_ids must be integers of shape \(2, 6\)": lambda: model(ids, position_ids=ids[:, 1:]),
        "25 tokens exceed block_size = 24": lambda: model(ids, position_ids=torch.full((2, 6), 24)),
        r"of shape \(2, 1, 6, 6\); got torch.bool \(2, 1, 5, 6\)": lambda: model(ids, mask=mask[:, :, 1:]),
        "cannot hide some of them later": lambda: linear(ids, mask=mask, cache=cache),
    }
    for message, call in bad.items():
        with pytest.raises(InputError, match=message) as caught:
            call()
        assert "\n" not in str(caught.value)


def test_the_numbers_of_seen_tokens() -> None:
    view = View.of(True, 0, 7, RAGGED.device, torch.float64, RAGGED)
    assert view.n[:, 0, :, 0].tolist() == RAGGED.cumsum(1).clamp_min(1).tolist()
    view = View.of(False, 0, 7, RAGGED.device, torch.float64, RAGGED)
    assert view.n[:, 0, 0, 0].tolist() == [4, 5, 4, 1, 7]
