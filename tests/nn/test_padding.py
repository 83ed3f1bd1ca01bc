"""Padding changes nothing: a row of a padded batch has the results, and the gradients, of its text alone."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from sympformer import ops
from sympformer.errors import InputError
from sympformer.models import LanguageModel
from sympformer.nn import View, same_text
from tests.models.cases import every_choice, every_model, make, make_choice, tokens
from tests.nn.rows import RAGGED, weights

both_visibilities = pytest.mark.parametrize("causal", [True, False], ids=["causal", "full"])


def gradients(module: nn.Module) -> dict[str, Tensor]:
    return {name: torch.zeros_like(p) if p.grad is None else p.grad for name, p in module.named_parameters()}


def check(module: nn.Module, run: Callable[[Any, Tensor | None], Tensor], inputs: Tensor, tolerance: float) -> None:
    """The padded batch against its rows alone: values at tokens, zeros at padding, gradients of all parameters."""
    w = weights(16)
    module.zero_grad()
    out = run(inputs, ~RAGGED)
    assert not out[~RAGGED].any()
    (w * out).sum().backward()
    padded = gradients(module)
    with ops.plain(), torch.no_grad():
        plain = run(inputs, ~RAGGED)
    module.zero_grad()
    for row, real in enumerate(RAGGED):
        alone = run(inputs[row : row + 1, real], None)[0]
        scale = max(1.0, alone.abs().max().item())
        assert (out[row, real] - alone).abs().max() <= tolerance * scale
        assert (plain[row, real] - alone).abs().max() <= tolerance * scale
        (w[row, real] * alone).sum().backward()
    for name, want in gradients(module).items():
        assert padded[name].isfinite().all(), name
        error = (padded[name] - want).abs().max().item()
        assert error <= tolerance * max(1.0, want.abs().max().item()), f"{name} is off by {error:.2e}"


def check_model(model: LanguageModel, tolerance: float = 1e-12) -> None:
    def run(ids: Tensor, mask: Tensor | None) -> Tensor:
        return model(ids, key_padding_mask=mask).hidden

    check(model, run, tokens(*RAGGED.shape), tolerance)


@both_visibilities
@every_model
def test_padding_changes_nothing(name: str, preset: str, causal: bool) -> None:
    check_model(make(name, preset, n_layer=2, causal=causal))


@both_visibilities
@every_choice
def test_padding_changes_nothing_for_config_choices(choice: str, causal: bool) -> None:
    check_model(make_choice(choice, n_layer=2, causal=causal), 1e-11)


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
@pytest.mark.parametrize("numbers", [True, False])
@torch.no_grad()
def test_ragged_rows_through_a_cache(kind: str, numbers: bool) -> None:
    """In chunks of any size, padding in any of them: what the rows give alone."""
    model, ids = of_kind(kind), tokens(5, 12)
    real = torch.cat((RAGGED, torch.ones(5, 5, dtype=torch.bool)), 1)
    cache, pieces = model.new_cache(5), []
    constants = model.constants(numbers=numbers)
    for chunk, present in zip(ids.split((2, 6, 1, 2, 1), 1), real.split((2, 6, 1, 2, 1), 1), strict=True):
        padding = None if present.all() else ~present
        pieces.append(model.hidden(chunk, cache, padding, constants=constants))
    out = torch.cat(pieces, 1)
    for row in range(5):
        alone = model(ids[row : row + 1, real[row]]).hidden[0]
        assert (out[row, real[row]] - alone).abs().max() <= 1e-12 * max(1.0, alone.abs().max().item())


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
def test_gradients_through_a_cache(kind: str) -> None:
    """A text in pieces, gradients on: those of the text in one."""
    model, ids = of_kind(kind), tokens(5, 7)
    grads = []
    for sizes in ((7,), (3, 1, 3)):
        model.zero_grad()
        cache = model.new_cache(5)
        pairs = zip(ids.split(sizes, 1), (~RAGGED).split(sizes, 1), strict=True)
        out = torch.cat([model(part, cache=cache, key_padding_mask=mask).hidden for part, mask in pairs], 1)
        (weights(16) * out).sum().backward()
        grads.append(gradients(model))
    for name, want in grads[0].items():
        assert (grads[1][name] - want).abs().max() <= 1e-12 * max(1.0, want.abs().max().item()), name


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
