"""`generate()` in all its ways gives what the model gives without a cache, without padding, one text at a time."""

from io import StringIO
from typing import Any

import pytest
import torch
from torch import Tensor

from sympformer.errors import InputError
from tests.hf.helpers import every_kind, every_variant, hf, left_padded, of_kind, right_padded, texts
from tests.models.cases import tokens

pytest.importorskip("transformers", reason="needs the extra hf")

import transformers

from sympformer.hf import SympFormerCache

NEW = 8


def greedy(model: Any, ids: Tensor, **options: Any) -> Any:
    return model.generate(ids, max_new_tokens=NEW, do_sample=False, **options)


@every_variant
def test_cached_is_uncached_is_native(name: str) -> None:
    model, ids = hf(name), tokens(3, 7)
    got = greedy(model, ids)
    assert torch.equal(got, greedy(model, ids, use_cache=False))
    native = model.to_language_model().generate(ids, max_new_tokens=NEW, temperature=0)
    assert torch.equal(got, native)
    assert len(got[:, 7:].unique()) > 3  # a text, not one token for ever


@every_variant
def test_left_padded_batch_is_one_text_at_a_time(name: str) -> None:
    model, rows = hf(name), texts(3, 8, 1, 8)
    ids, mask = left_padded(rows)
    got = greedy(model, ids, attention_mask=mask)
    for row, text in enumerate(rows):
        assert torch.equal(got[row, 8:], greedy(model, text[None])[0, len(text) :])


@every_kind
def test_beams(kind: str) -> None:
    model, (ids, mask) = of_kind(kind), left_padded(texts(3, 8, 5))
    options = {"num_beams": 4, "num_return_sequences": 2, "attention_mask": mask}
    got = greedy(model, ids, **options)
    assert torch.equal(got, greedy(model, ids, use_cache=False, **options))
    assert got.shape == (6, 8 + NEW)
    assert not torch.equal(got[::2], greedy(model, ids, attention_mask=mask))  # beams found something else


@every_kind
def test_sampling(kind: str) -> None:
    model, (ids, mask) = of_kind(kind), left_padded(texts(3, 8))
    texts_drawn = []
    for use_cache in (True, False):
        torch.manual_seed(0)
        options = {"do_sample": True, "top_k": 20, "top_p": 0.9, "num_return_sequences": 3, "use_cache": use_cache}
        texts_drawn.append(model.generate(ids, attention_mask=mask, max_new_tokens=NEW, **options))
    assert torch.equal(*texts_drawn)
    assert not torch.equal(texts_drawn[0][0], texts_drawn[0][1])


@every_variant
def test_assistant_model_changes_nothing(name: str) -> None:
    model, ids = hf(name), tokens(1, 7)
    # an assistant that is often right and often wrong: the same weights, shaken a little
    assistant = hf(name, seed=3)
    want = greedy(model, ids)
    steps = count_calls(model)
    assert torch.equal(greedy(model, ids, assistant_model=assistant), want)
    assert 1 < len(steps) <= NEW  # it ran, and guesses of both kinds occurred
    assert torch.equal(greedy(model, ids, assistant_model=hf("linear-ab2", seed=4)), want)


@every_kind
def test_prompt_lookup_changes_nothing(kind: str) -> None:
    model, ids = of_kind(kind), tokens(1, 7).repeat(1, 3)
    steps = count_calls(model)
    want = greedy(model, ids)
    plain = len(steps)
    assert torch.equal(greedy(model, ids, prompt_lookup_num_tokens=4), want)
    assert len(steps) > plain


def count_calls(model: Any) -> list[int]:
    """A list that grows by one with every forward pass."""
    calls: list[int] = []
    model.register_forward_pre_hook(lambda *_: calls.append(1))
    return calls


@every_kind
def test_prefill_in_chunks(kind: str) -> None:
    model, (ids, mask) = of_kind(kind), left_padded(texts(3, 11, 8))
    got = greedy(model, ids, attention_mask=mask, prefill_chunk_size=4)
    assert torch.equal(got, greedy(model, ids, attention_mask=mask))


@every_kind
def test_continue_from_a_cache(kind: str) -> None:
    model, (ids, mask) = of_kind(kind), left_padded(texts(3, 8))
    first = greedy(model, ids, attention_mask=mask, return_dict_in_generate=True)
    longer = torch.cat([mask, mask.new_ones(2, NEW)], 1)
    more = {"attention_mask": longer, "past_key_values": first.past_key_values}
    assert torch.equal(greedy(model, first.sequences, **more), greedy(model, first.sequences, attention_mask=longer))


@every_kind
def test_streaming(kind: str) -> None:
    class Letters:
        """Token i is the letter number i."""

        def decode(self, ids: list[int], **_: Any) -> str:
            return "".join(chr(65 + i) + " " for i in ids)

    model, ids, page = of_kind(kind), tokens(1, 7), StringIO()
    letters: Any = Letters()

    class Streamer(transformers.TextStreamer):
        def on_finalized_text(self, text: str, stream_end: bool = False) -> None:
            page.write(text)

    got = greedy(model, ids, streamer=Streamer(letters, skip_prompt=True))
    assert page.getvalue() == letters.decode(got[0, 7:].tolist())


@every_kind
@pytest.mark.parametrize("recording", [False, True])
def test_steps_back_are_exact(kind: str, recording: bool) -> None:
    model, ids = of_kind(kind), tokens(3, 30)
    cache = SympFormerCache(model.config)
    if recording:
        cache.activate_past_recording()
    place, logits = 0, []

    def feed(n: int) -> None:
        nonlocal place
        out = model(ids[:, place : place + n], past_key_values=cache)
        logits.append(out.logits)
        place += n

    def back(n: int) -> None:
        nonlocal place
        cache.crop(-n)
        place -= n
        whole = torch.cat(logits, 1)[:, :place]
        logits[:] = [whole]
        assert cache.get_seq_length() == place

    with torch.no_grad():
        for forth, backward in ((9, 0), (4, 3), (1, 0), (1, 0), (1, 2), (5, 7), (3, 0), (2, 12), (6, 1), (4, 0)):
            feed(forth)
            back(backward)
            if forth == 5:  # twice in a row, without a call between
                back(1)
        want = model(ids[:, :place], use_cache=False).logits
    assert place == 10
    assert (torch.cat(logits, 1) - want).abs().max() < 1e-9


@every_kind
def test_steps_back_into_padding(kind: str) -> None:
    model, rows = of_kind(kind), texts(2, 6)
    with torch.no_grad():
        for padded, keep in ((left_padded, 3), (right_padded, 2)):
            ids, mask = padded(rows)
            cache = model(ids, attention_mask=mask).past_key_values
            cache.crop(keep - 6)
            rest = {"attention_mask": torch.cat([mask[:, :keep], torch.ones(2, 3)], 1), "past_key_values": cache}
            got = model(tokens(2, 3), **rest).logits
            for row in range(2):
                kept = ids[row, :keep][mask[row, :keep] == 1]
                want = model(torch.cat([kept, tokens(2, 3)[row]])[None], use_cache=False).logits[0, -3:]
                assert (got[row] - want).abs().max() < 1e-9


@every_kind
def test_rows_of_a_cache_move(kind: str) -> None:
    model, rows = of_kind(kind), texts(3, 8, 8, 5)
    ids, mask = left_padded(rows)
    order = torch.tensor([3, 1, 1, 0, 2])
    new = tokens(10, 2)
    with torch.no_grad():
        cache = model(ids, attention_mask=mask).past_key_values
        cache.reorder_cache(order)
        cache.batch_repeat_interleave(2)
        got = model(new, past_key_values=cache).logits
        for row, old in enumerate(order.repeat_interleave(2).tolist()):
            want = model(torch.cat([rows[old], new[row]])[None], use_cache=False).logits[0, -2:]
            assert (got[row] - want).abs().max() < 1e-9
    assert cache.batch_size == 10
    cache.reset()
    assert (cache.batch_size, cache.get_seq_length()) == (-1, 0)


@every_kind
def test_padding_behind_a_text_that_goes_on(kind: str) -> None:
    """Texts padded on the right, then more tokens: padding inside a row is padding as any other."""
    model, rows = of_kind(kind), texts(3, 8)
    ids, mask = right_padded(rows)
    new = tokens(2, 3)
    with torch.no_grad():
        cache = model(ids, attention_mask=mask).past_key_values
        longer = torch.cat([mask, mask.new_ones(2, 3)], 1)
        got = model(new, attention_mask=longer, past_key_values=cache).logits
        whole = model(torch.cat([ids, new], 1), attention_mask=longer, use_cache=False).logits[:, -3:]
        for row, text in enumerate(rows):
            want = model(torch.cat([text, new[row]])[None], use_cache=False).logits[0, -3:]
            assert (got[row] - want).abs().max() < 1e-9
            assert (whole[row] - want).abs().max() < 1e-9


@every_kind
def test_a_prompt_of_embeddings(kind: str) -> None:
    model, (ids, mask) = of_kind(kind), left_padded(texts(3, 8))
    embedded = model.get_input_embeddings()(ids)
    got = model.generate(inputs_embeds=embedded, attention_mask=mask, max_new_tokens=NEW, do_sample=False)
    assert torch.equal(got, greedy(model, ids, attention_mask=mask)[:, 8:])


def test_what_cannot_end_well_is_refused_before_the_first_token() -> None:
    model, (ids, mask) = hf("softmax-exp-euler"), right_padded(texts(3, 8))
    calls = count_calls(model)
    bad: dict[str, dict[str, Any]] = {
        "padding_side = 'left'": {"attention_mask": mask, "prefill_chunk_size": 2},
        "cache_implementation = 'quantized' does not fit": {"cache_implementation": "quantized"},
    }
    for message, options in bad.items():
        with pytest.raises(InputError, match=message):
            model.generate(ids, **({"attention_mask": torch.ones_like(mask), "max_new_tokens": 3} | options))
    assert not calls
    full = model.generate(ids[1:], max_new_tokens=33, do_sample=False)  # the last token takes no place
    assert full.shape[1] == 41


def test_a_cache_refuses_what_it_cannot_hold() -> None:
    model, (ids, mask) = hf("linear-exp-euler"), right_padded(texts(3, 8))
    with torch.no_grad():
        cache = model(ids, attention_mask=mask).past_key_values
        before = repr(cache)
        with pytest.raises(InputError, match="hides other earlier tokens"):
            model(ids[:, :1], attention_mask=torch.ones(2, 9), past_key_values=cache)
        with pytest.raises(InputError, match="holds 2 rows, got 1"):
            model(ids[:1, :1], past_key_values=cache)
        with pytest.raises(InputError, match="with a minus"):
            cache.crop(3)
        with pytest.raises(InputError, match="cannot drop 9 columns"):
            cache.crop(-9)
        full = model(tokens(2, 40)).past_key_values
        with pytest.raises(InputError, match="41 tokens exceed max_position_embeddings = 40"):
            model(ids[:, :1], past_key_values=full)
    assert repr(cache) == before
    assert full.get_seq_length() == 40
