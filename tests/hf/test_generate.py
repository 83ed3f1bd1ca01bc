"""`generate()` in all its ways, and caches by hand, give what a model gives without cache and padding, alone."""

import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from sympformer import ops
from sympformer.errors import InputError
from tests.hf.helpers import (
    NEW,
    alike,
    every_kind,
    every_variant,
    greedy,
    hf,
    left_padded,
    of_kind,
    right_padded,
    texts,
)
from tests.models.cases import tokens

pytest.importorskip("transformers", reason="needs the extra hf")

import transformers

from sympformer.hf import SympFormerCache

# --- generate()


def count_calls(model: Any) -> list[int]:
    """A list that grows by one with every forward pass."""
    calls: list[int] = []
    model.register_forward_pre_hook(lambda *_: calls.append(1))
    return calls


@every_variant
def test_cached_is_uncached_is_native_and_assisted(name: str) -> None:
    model, ids = hf(name), tokens(3, 7)
    got = greedy(model, ids)
    assert torch.equal(got, greedy(model, ids, use_cache=False))
    assert torch.equal(got, model.to_language_model().generate(ids, max_new_tokens=NEW, temperature=0))
    assert len(got[:, 7:].unique()) > 3  # a text, not one token for ever
    # an assistant that is often right and often wrong: the same weights, shaken a little
    steps = count_calls(model)
    assert torch.equal(greedy(model, ids[:1], assistant_model=hf(name, seed=3)), got[:1])
    assert 1 < len(steps) <= NEW  # it ran, and guesses of both kinds occurred
    assert torch.equal(greedy(model, ids[:1], assistant_model=hf("linear-ab2", seed=4)), got[:1])


@every_kind
@pytest.mark.parametrize("padded", [left_padded, right_padded])
@pytest.mark.parametrize("options", [{}, {"use_cache": False}, {"num_beams": 2}], ids=str)
def test_a_padded_batch_is_one_text_at_a_time(kind: str, padded: Any, options: dict[str, Any]) -> None:
    model, rows = of_kind(kind), texts(3, 8, 1, 8)
    ids, mask = padded(rows)
    got = greedy(model, ids, attention_mask=mask, **options)
    for row, text in enumerate(rows):
        assert torch.equal(got[row, 8:], greedy(model, text[None], **options)[0, len(text) :])


@every_kind
def test_ways_that_change_nothing(kind: str) -> None:
    """Prompts in chunks, looked up, as embeddings; a cache of others that is handed in; an early exit's guesses."""
    model, (ids, mask) = of_kind(kind, n_layer=3), left_padded(texts(3, 11))
    want = greedy(model, ids, attention_mask=mask)
    assert torch.equal(greedy(model, ids, attention_mask=mask, prefill_chunk_size=4), want)
    assert torch.equal(greedy(model, ids, attention_mask=mask, past_key_values=transformers.DynamicCache()), want)
    embedded = model.get_input_embeddings()(ids)
    got = model.generate(inputs_embeds=embedded, attention_mask=mask, max_new_tokens=NEW, do_sample=False)
    assert torch.equal(got, want[:, 11:])
    page = Page()
    assert torch.equal(greedy(model, ids[1:], streamer=page), want[1:])
    assert page.seen == want[1].tolist()
    assert torch.equal(greedy(model, ids[1:], assistant_early_exit=1), want[1:])
    assert model.config.num_hidden_layers == 3
    repeated = tokens(1, 7).repeat(1, 3)
    plain, steps = greedy(model, repeated), count_calls(model)
    assert torch.equal(greedy(model, repeated, prompt_lookup_num_tokens=4), plain)
    assert len(steps) > 1


class Page(transformers.generation.BaseStreamer):
    """Notes all tokens that it is handed."""

    def __init__(self) -> None:
        self.seen: list[int] = []

    def put(self, value: Tensor) -> None:
        self.seen += value.flatten().tolist()

    def end(self) -> None:
        """Nothing more comes."""


def test_an_early_exit_has_nothing_of_later_layers() -> None:
    model, ids = hf("softmax-exp-euler", n_layer=3), tokens(1, 6)
    seen = model(ids, output_hidden_states=True).hidden_states
    model.config.num_hidden_layers = 1  # not what comes ahead of them either
    assert torch.equal(model.model(ids).last_hidden_state, model.model.body.norm(seen[1]))


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


@every_kind
def test_continue_from_a_cache(kind: str) -> None:
    model, (ids, mask) = of_kind(kind), left_padded(texts(3, 8))
    first = greedy(model, ids, attention_mask=mask, return_dict_in_generate=True)
    longer = torch.cat([mask, mask.new_ones(2, NEW)], 1)
    more = {"attention_mask": longer, "past_key_values": first.past_key_values}
    assert torch.equal(greedy(model, first.sequences, **more), greedy(model, first.sequences, attention_mask=longer))


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


def test_lengths(caplog: pytest.LogCaptureFixture) -> None:
    """No length: to the end of the context, in silence. One that is too long: to the end, and a warning."""
    model, ids = hf("softmax-exp-euler"), tokens(1, 6)
    with ops.plain(), caplog.at_level("WARNING"):
        transformers.utils.logging.enable_propagation()
        assert model.generate(ids, do_sample=False).shape[1] == 41
        assert model.generate(ids, do_sample=False, max_new_tokens=NEW).shape[1] == 6 + NEW
        assert "max_length" not in caplog.text
        assert "max_new_tokens" not in caplog.text
        assert model.generate(ids, do_sample=False, max_new_tokens=256).shape[1] == 41
    assert "need 261 places and the model has max_position_embeddings = 40: texts end there" in caplog.text
    transformers.utils.logging.disable_propagation()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with a tokenizer of whole words beside it."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = [f"w{i}" for i in range(49)]
    tokenizer = Tokenizer(models.WordLevel({"<pad>": 0} | {word: i + 1 for i, word in enumerate(words)}, "<pad>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    fast = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<pad>", model_input_names=["input_ids", "attention_mask"]
    )
    place = tmp_path_factory.mktemp("model")
    fast.save_pretrained(place)
    hf("linear-exp-euler", dtype=torch.float32).save_pretrained(place)
    return place


def words(writer: Any, prompts: list[str], **options: Any) -> list[list[str]]:
    rows = writer(prompts, max_new_tokens=6, do_sample=False, return_full_text=False, **options)
    return [row[0]["generated_text"].split() for row in rows]


def test_pipeline(folder: Path) -> None:
    writer: Any = transformers.pipeline("text-generation", model=str(folder), device="cpu")
    prompts = ["w3 w1", "w4 w1 w5 w9 w2", "w7"]
    one_by_one = words(writer, prompts)
    native = writer.model.to_language_model()
    for prompt, got in zip(prompts, one_by_one, strict=True):
        ids = writer.tokenizer(prompt, return_tensors="pt").input_ids
        new = native.generate(ids, max_new_tokens=6, temperature=0)[0, ids.shape[1] :]
        assert got == writer.tokenizer.decode(new, skip_special_tokens=True).split()
    assert one_by_one[0] != one_by_one[2]
    writer.tokenizer.padding_side = "left"
    assert words(writer, prompts, batch_size=3) == one_by_one


# --- caches by hand


@every_kind
@torch.no_grad()
def test_a_cache_goes_on(kind: str) -> None:
    """As the object that it was, pickled with its model, and made before anybody called eval."""
    model, ids, cache = of_kind(kind), tokens(2, 9), transformers.DynamicCache()
    want = model(ids, use_cache=False).logits[:, 6:]
    model(ids[:, :6], past_key_values=cache)
    assert isinstance(cache, SympFormerCache)
    assert cache.get_seq_length() == 6
    again, thawed = pickle.loads(pickle.dumps((model, cache)))
    assert alike(model(ids[:, 6:], past_key_values=cache).logits, want)
    assert alike(again(ids[:, 6:], past_key_values=thawed).logits, want)
    own = model.train()(ids[:, :6]).past_key_values
    assert alike(model(ids[:, 6:], past_key_values=own).logits, want)


def test_cache_is_made_when_it_is_of_use() -> None:
    model, ids = hf("linear-exp-euler"), tokens(2, 6)
    for recorded in (True, False):
        with torch.set_grad_enabled(recorded):
            assert isinstance(model(ids).past_key_values, SympFormerCache)
    with torch.no_grad():
        assert model(ids, use_cache=False).past_key_values is None
        assert model(ids, labels=ids).past_key_values is None


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


def test_a_cache_refuses_what_it_cannot_hold() -> None:
    model, (ids, mask) = hf("linear-exp-euler"), right_padded(texts(3, 8))
    with torch.no_grad():
        cache = model(ids, attention_mask=mask).past_key_values
        full, before = model(tokens(2, 40)).past_key_values, repr(cache)
    asked: dict[str, Any] = {
        "hides other earlier tokens": lambda: model(ids[:, :1], attention_mask=torch.ones(2, 9), past_key_values=cache),
        "holds 2 rows, got 1": lambda: model(ids[:1, :1], past_key_values=cache),
        "with a minus": lambda: cache.crop(3),
        "cannot drop 9 columns": lambda: cache.crop(-9),
        "41 tokens exceed max_position_embeddings = 40": lambda: model(ids[:, :1], past_key_values=full),
    }
    for message, ask in asked.items():
        with torch.no_grad(), pytest.raises(InputError, match=message):
            ask()
    assert repr(cache) == before
    assert full.get_seq_length() == 40
