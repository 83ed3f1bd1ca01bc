"""A cache of a fixed size: the values and the gradients of the one that grows, for every model."""

from typing import Any

import pytest
import torch
from torch import Tensor

from sympformer.errors import InputError
from sympformer.models import Decoder, Given, LanguageModel
from sympformer.nn import fixed
from tests.models.cases import CHOICES, MODELS, make, tokens

CASES: dict[str, tuple[str, dict[str, Any]]] = {f"{n}-{p}": (n, {"preset": p}) for n, p in MODELS} | CHOICES
PADDING = torch.tensor([[1, 1, 0, 0, 0, 0, 0, 0], [0, 0, 0, 0, 1, 0, 0, 0]], dtype=torch.bool)
CHUNKS = (slice(0, 5), slice(5, 7), slice(7, 8))


def in_chunks(model: LanguageModel, ids: Tensor, room: int | None, decoder: Decoder | None = None) -> Tensor:
    """Hidden states, padding in front of one row and inside the other."""
    cache, run = model.new_cache(2, room=room), (decoder or model).hidden
    return torch.cat([run(ids[:, c], cache, Given(key_padding_mask=PADDING[:, c])) for c in CHUNKS], 1)


@pytest.mark.parametrize("case", CASES)
def test_it_is_the_growing_one(case: str) -> None:
    name, fields = CASES[case]
    model, ids = make(name, **fields), tokens(2, 8)
    with torch.no_grad():
        want = in_chunks(model, ids, None)
        assert (in_chunks(model, ids, 11) - want).abs().max() < 1e-10
        assert (in_chunks(model, ids, 11, Decoder(model)) - want).abs().max() < 1e-10


@pytest.mark.parametrize("name", ["softmax-ab2", "linear-exp-euler", "softmax-baseline"])
def test_gradients_flow_through_it(name: str) -> None:
    model, ids = make(name, preset="paper"), tokens(2, 8)
    gradients = []
    for room in (None, 8):
        in_chunks(model, ids, room).square().sum().backward()
        gradients.append({n: p.grad for n, p in model.named_parameters()})
        model.zero_grad()
    assert all((gradients[0][n] - g).abs().max() < 1e-9 for n, g in gradients[1].items())  # type: ignore[operator]


def test_steps_back_and_rows_that_move() -> None:
    model, ids = make("softmax-exp-euler"), tokens(2, 8)
    cache = model.new_cache(2, room=8)
    with torch.no_grad():
        want = model(ids).logits[:, 4:]
        model(torch.cat((ids[:, :4], ids[:, :2]), 1), cache=cache)
        cache.crop(4)
        cache.select(torch.tensor([1, 0]))
        assert (model(ids[:, 4:].flip(0), cache=cache).logits.flip(0) - want).abs().max() < 1e-12
    assert cache.nbytes == sum(layer.nbytes for layer in cache.layers) > 0


def test_what_does_not_fit_is_refused() -> None:
    model, seen = make("softmax-exp-euler"), torch.ones(1, 1, 3, 6, dtype=torch.bool)
    with pytest.raises(InputError, match="7 columns do not fit into a cache with room for 6"):
        model(tokens(1, 7), cache=model.new_cache(1, room=6))
    with pytest.raises(InputError, match="exceed block_size"):
        model(tokens(1, 99), cache=model.new_cache(1, room=99))
    with pytest.raises(InputError, match="no mask of what each token sees"):
        model(tokens(1, 3), cache=model.new_cache(1, room=6), mask=seen)
    with pytest.raises(InputError, match="as a whole"):
        model.new_cache(2, room=6).part(torch.tensor([0]))
    with pytest.raises(InputError, match="object has no form of a fixed size"):
        fixed(object(), 6)  # type: ignore[arg-type]
    linear = make("linear-exp-euler")
    linear(tokens(1, 3), cache=(cache := linear.new_cache(1, room=6)))
    with pytest.raises(InputError, match="cannot forget single tokens"):
        cache.crop(1)
