"""Generation: cached = uncached, seeds, prompts of any length, restrictions of the choice, the end of the context."""

from typing import Any

import pytest
import torch

from sympformer import ops
from sympformer.errors import InputError
from tests.models.cases import every_model, make, tokens


@every_model
def test_cached_generation_equals_uncached(name: str, preset: str) -> None:
    model = make(name, preset)
    for temperature in (0.0, 0.8):
        kwargs: dict[str, Any] = {"max_new_tokens": 12, "temperature": temperature, "top_k": 10, "seed": 7}
        cached, slow = (model.generate(tokens(2, 5), use_cache=flag, **kwargs) for flag in (True, False))
        assert torch.equal(cached, slow)  # type: ignore[arg-type]


def generate(model: Any, idx: Any, **kwargs: Any) -> Any:
    return model.generate(idx, **({"max_new_tokens": 8, "seed": 0} | kwargs))


def test_generation_keeps_the_prompt_and_the_seed() -> None:
    model = make("softmax-exp-euler")
    prompt = tokens(2, 5)
    a, b, c = generate(model, prompt), generate(model, prompt), generate(model, prompt, seed=1)
    assert a.shape == (2, 13)
    assert torch.equal(a[:, :5], prompt)
    assert torch.equal(a, b)
    assert not torch.equal(a, c)


@every_model
def test_prompts_of_different_lengths_equal_prompts_alone(name: str, preset: str) -> None:
    model = make(name, preset, n_layer=2)
    prompts = [tokens(1, n, seed=n)[0] for n in (2, 7, 1)]
    together = generate(model, prompts, temperature=0.0)
    assert [len(text) for text in together] == [10, 15, 9]
    for prompt, text in zip(prompts, together, strict=True):
        assert torch.equal(generate(model, [prompt], temperature=0.0)[0], text)


def test_rows_of_different_lengths_are_fed_together() -> None:
    """One pass for the prompts and one for each token after the first, however much the lengths differ."""
    model = make("softmax-exp-euler")
    with ops.count_passes() as count:
        generate(model, [[1] * n for n in (2, 15, 7)])
    assert count.passes == 3 * 8


def test_rows_of_different_lengths_slide_each_in_its_time() -> None:
    model = make("softmax-exp-euler", overflow="slide", block_size=8)
    prompts = [tokens(1, n, seed=n)[0] for n in (2, 7, 12)]
    for use_cache in (True, False):
        together = generate(model, prompts, temperature=0.0, max_new_tokens=14, use_cache=use_cache)
        for prompt, text in zip(prompts, together, strict=True):
            assert torch.equal(generate(model, [prompt], temperature=0.0, max_new_tokens=14)[0], text)


def test_stop_tokens_end_a_text() -> None:
    model = make("softmax-exp-euler")
    free = generate(model, tokens(2, 5), temperature=0.0, max_new_tokens=10)
    stop = int(free[0, 7])
    first = next(i for i in range(5, 15) if int(free[0, i]) == stop)
    (text,) = generate(model, [tokens(2, 5)[0]], temperature=0.0, max_new_tokens=10, stop_tokens=(stop,))
    assert text.tolist() == free[0, : first + 1].tolist()
    filled = generate(model, tokens(2, 5), temperature=0.0, max_new_tokens=10, stop_tokens=(stop,))
    assert (filled[0, first:] == stop).all()


def test_top_k_and_top_p_restrict_the_choice() -> None:
    model = make("softmax-exp-euler")
    greedy = generate(model, tokens(2, 5), temperature=0.0)
    assert torch.equal(generate(model, tokens(2, 5), top_k=1), greedy)
    assert torch.equal(generate(model, tokens(2, 5), top_p=1e-6), greedy)
    assert torch.equal(generate(model, tokens(2, 5), top_p=1.0, top_k=50), generate(model, tokens(2, 5)))


def test_top_p_keeps_the_smallest_set() -> None:
    from sympformer.models.generate import _keep_top_p

    logits = torch.tensor([[0.5, 0.3, 0.15, 0.05], [0.05, 0.15, 0.3, 0.5]]).log()
    kept = torch.isfinite(_keep_top_p(logits, 0.7))
    assert kept.tolist() == [[True, True, False, False], [False, False, True, True]]


def test_beyond_block_size_is_an_error_or_a_sliding_window() -> None:
    model = make("softmax-exp-euler")
    with pytest.raises(InputError, match="overflow = 'slide'"):
        generate(model, tokens(1, 20), max_new_tokens=6)
    assert generate(model, tokens(1, 20), max_new_tokens=5).shape == (1, 25)  # the last token needs no place
    with pytest.raises(InputError, match="exceed block_size = 24"):
        model(tokens(1, 25))
    sliding = make("softmax-exp-euler", overflow="slide")
    long = generate(sliding, tokens(1, 20), max_new_tokens=40, temperature=0.0)
    assert long.shape == (1, 60)
    assert torch.equal(long, generate(sliding, tokens(1, 20), max_new_tokens=40, temperature=0.0, use_cache=False))
    # the first token after a slide follows from the newer half of the context alone
    assert int(long[0, 25]) == int(sliding(long[:, 13:25]).logits[0, -1].argmax())


BAD_CALLS: dict[str, tuple[Any, dict[str, Any], str]] = {
    "empty": ([[]], {}, "prompt 0 is empty"),
    "none": ([], {}, "at least one sequence"),
    "shape": (torch.zeros(3, dtype=torch.long), {}, "must have shape"),
    "range": ([[1, 99]], {}, "prompt 0 holds token id 99"),
    "negative": ([[1, -1]], {}, "prompt 0 holds token id -1"),
    "temperature": ([[1]], {"temperature": -1.0}, "temperature"),
    "top_k": ([[1]], {"top_k": 0}, "top_k"),
    "top_p": ([[1]], {"top_p": 0.0}, "top_p"),
    "count": ([[1]], {"max_new_tokens": -1}, "max_new_tokens"),
}


@pytest.mark.parametrize("case", BAD_CALLS)
def test_bad_generation_calls(case: str) -> None:
    prompt, kwargs, message = BAD_CALLS[case]
    with pytest.raises(InputError, match=message):
        generate(make("softmax-exp-euler"), prompt, **kwargs)


def test_cache_rows_can_be_selected() -> None:
    for name in ("softmax-exp-euler", "linear-exp-euler"):
        model, idx = make(name, "paper"), tokens(3, 10)
        cache = model.new_cache(3)
        model(idx[:, :6], cache=cache)
        cache.select(torch.tensor([2, 0]))
        got = model(idx[[2, 0], 6:], cache=cache).logits
        torch.testing.assert_close(got, model(idx[[2, 0]]).logits[:, 6:], rtol=1e-9, atol=1e-9)
