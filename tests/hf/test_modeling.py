"""The Hugging Face classes are the native models, in every way of giving the input, and what tools around expect."""

import json
import re
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import Tensor, nn

import sympformer as sf
from sympformer.errors import InputError
from sympformer.models import VARIANTS, LanguageModel, variant
from sympformer.nn import Layer, Matrix, Scalars, State, View
from tests.hf.helpers import (
    CHECKPOINTING,
    NEW,
    alike,
    every_kind,
    greedy,
    hf,
    left_padded,
    of_kind,
    right_padded,
    texts,
)
from tests.models.cases import SIZE, make_choice, tokens

pytest.importorskip("transformers", reason="needs the extra hf")

import transformers

from sympformer.hf import SympFormerConfig, SympFormerForCausalLM, SympFormerModel

# --- the same model, in memory and in a folder


@every_kind
def test_a_folder_keeps_the_model(kind: str, tmp_path: Path) -> None:
    """That it keeps every logit of every model stands in tests/surfaces."""
    model, ids = of_kind(kind, dtype=torch.float32), tokens()
    native = model.to_language_model()
    model.save_pretrained(tmp_path)
    assert not any("pickle" in path.name or path.suffix in (".bin", ".pt") for path in tmp_path.iterdir())
    loaded: Any = transformers.AutoModelForCausalLM.from_pretrained(tmp_path)
    assert isinstance(loaded, SympFormerForCausalLM)
    again = loaded.to_language_model()
    assert loaded.config.to_model_config() == native.cfg == again.cfg
    assert again.tokens.weight is loaded.get_input_embeddings().weight  # one set of parameters
    with torch.no_grad():
        want = native(ids)
        assert torch.equal(loaded(ids, use_cache=False).logits, want.logits)
        assert torch.equal(again(ids).logits, want.logits)
        bare = transformers.AutoModel.from_pretrained(tmp_path)
        assert isinstance(bare, SympFormerModel)
        assert torch.equal(bare(ids, use_cache=False, return_dict=False)[0], want.hidden)
        half = SympFormerForCausalLM.from_pretrained(tmp_path, dtype=torch.bfloat16)
        assert all(p.dtype == torch.float32 for n, p in half.named_parameters() if "scalars" in n)
        for use_cache in (False, True):
            got = half(ids, use_cache=use_cache).logits
            assert got.dtype == torch.bfloat16
            assert (got - want.logits).abs().max() < 0.1 * want.logits.abs().max()


@pytest.mark.parametrize("name", VARIANTS)
def test_fresh_weights_start_as_the_native_ones(name: str) -> None:
    cfg = sf.variant(name, **(SIZE | {"n_layer": 2, "vocab_size": 300}))
    native, model = sf.build_model(cfg), SympFormerForCausalLM(SympFormerConfig.from_model_config(cfg))
    theirs = dict(native.named_parameters())
    for key, parameter in model.model.body.named_parameters():
        assert abs(parameter.std(correction=0) - theirs[key].std(correction=0)) < 0.01, key
        assert abs(parameter.mean() - theirs[key].mean()) < 0.01, key
        if "scalars" in key or "norm" in key or "bound" in key:
            assert torch.equal(parameter, theirs[key]), key


def test_missing_weights_are_started_not_left_as_garbage(tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    model = hf("softmax-exp-euler", dtype=torch.float32)
    model.save_pretrained(tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    kept = {k: w for k, w in weights.items() if "blocks.1." not in k}
    assert len(kept) < len(weights)
    save_file(kept, tmp_path / "model.safetensors", {"format": "pt"})
    loaded = SympFormerForCausalLM.from_pretrained(tmp_path)
    fresh = SympFormerForCausalLM(model.config)
    for key, parameter in loaded.named_parameters():
        assert parameter.device.type == "cpu"
        if key in kept:
            assert torch.equal(parameter, kept[key]), key
        elif any(part in key for part in ("scalars", "norm", "bound", "share", "second")):
            assert torch.equal(parameter, fresh.get_parameter(key)), key
        else:
            assert 0 < parameter.std() < 0.3, key


@pytest.mark.parametrize("choice", ["start-embedded", "untied-head", "dropout"])
def test_resizing_the_vocabulary(choice: str, tmp_path: Path) -> None:
    model, ids = SympFormerForCausalLM.from_language_model(make_choice(choice, dtype=torch.float32)), tokens(2, 8)
    before = model(ids).logits
    model.resize_token_embeddings(57, mean_resizing=False)
    after = model(ids).logits
    assert after.shape[-1] == 57
    assert torch.equal(after[..., :50], before)
    new = torch.full((1, 3), 56)
    assert model(new).logits.isfinite().all()
    assert model.to_language_model().cfg.vocab_size == 57
    model.save_pretrained(tmp_path)
    assert torch.equal(SympFormerForCausalLM.from_pretrained(tmp_path)(new).logits, model(new).logits)


@pytest.mark.parametrize("choice", ["start-embedded", "rotary-linear"])
def test_resizing_the_context(choice: str, tmp_path: Path) -> None:
    model, ids = SympFormerForCausalLM.from_language_model(make_choice(choice, dtype=torch.float32)), tokens(2, 8)
    before, room = model(ids).logits, model.config.max_position_embeddings
    model.resize_position_embeddings(room + 5)
    assert torch.equal(model(ids).logits, before)
    model.save_pretrained(tmp_path)
    longer = tokens(1, room + 5)
    assert torch.equal(SympFormerForCausalLM.from_pretrained(tmp_path)(longer).logits, model(longer).logits)
    model.resize_position_embeddings(8)
    assert torch.equal(model(ids).logits, before)
    with pytest.raises(InputError, match="9 tokens exceed"):
        model(tokens(1, 9))
    if choice == "rotary-linear":
        with pytest.raises(InputError, match="only positions = 'learned' have a table"):
            model.get_position_embeddings()
    else:
        assert len(model.get_position_embeddings().weight) == 8


def test_never_unpickles(tmp_path: Path) -> None:
    model = hf("softmax-baseline")
    model.save_pretrained(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    torch.save(model.state_dict(), tmp_path / "pytorch_model.bin")
    with pytest.raises(OSError, match="safetensors"):
        SympFormerForCausalLM.from_pretrained(tmp_path)
    with pytest.raises(InputError, match="can run code"):
        SympFormerForCausalLM.from_pretrained(tmp_path, use_safetensors=False)


def test_config_refuses_what_it_does_not_know(tmp_path: Path) -> None:
    SympFormerConfig.from_model_config(sf.variant("linear-ab2")).save_pretrained(tmp_path)
    file = tmp_path / "config.json"
    good = json.loads(file.read_text())
    bad = {
        "did you mean 'hidden_size'": {"hiden_size": 3},
        "did you mean 'integrator'": {"model_options": {"integrater": "ab2"}},
        "unknown integrator 'ab3'": {"model_options": {"integrator": "ab3"}},
        "belongs to attention softmax, not to linear": {"model_options": {"attention": "linear", "form": "paper"}},
        "belongs to the config field 'num_hidden_layers'": {"model_options": {"n_layer": 2}},
        "n_head must divide d_model": {"num_attention_heads": 7},
    }
    for message, change in bad.items():
        file.write_text(json.dumps(good | change))
        with pytest.raises(InputError, match=message) as caught:
            transformers.AutoConfig.from_pretrained(tmp_path)
        assert "\n" not in str(caught.value)


def test_a_config_keeps_what_transformers_keeps(tmp_path: Path) -> None:
    model = hf("linear-exp-euler")
    model.config.pretraining_tp = 1
    model.save_pretrained(tmp_path)
    assert SympFormerForCausalLM.from_pretrained(tmp_path).config.pretraining_tp == 1
    model.config.hiden_size = 3
    with pytest.raises(InputError, match="did you mean 'hidden_size'"):  # before anything is written
        model.save_pretrained(tmp_path / "slip")
    assert not list(tmp_path.glob("slip/*.json"))


def test_attention_implementations(tmp_path: Path) -> None:
    hf("softmax-exp-euler").save_pretrained(tmp_path)
    ids = tokens(2, 6)
    models = [
        SympFormerForCausalLM.from_pretrained(tmp_path, attn_implementation=name) for name in ("sdpa", "eager", None)
    ]
    assert all(torch.equal(model(ids).logits, models[0](ids).logits) for model in models)


@pytest.mark.parametrize("task", ["SequenceClassification", "TokenClassification", "QuestionAnswering"])
@pytest.mark.parametrize("name", ["softmax-exp-euler", "linear-baseline"])
def test_other_heads(task: str, name: str, tmp_path: Path) -> None:
    """On the body of a language model; padding behind or before a text changes nothing; they learn."""
    hf(name, dtype=torch.float32).save_pretrained(tmp_path)
    auto = getattr(transformers, f"AutoModelFor{task}")
    model = auto.from_pretrained(tmp_path, num_labels=3, pad_token_id=0).eval()
    body = SympFormerModel.from_pretrained(tmp_path)
    assert torch.equal(model.model.body.blocks[0].norm.weight, body.body.blocks[0].norm.weight)
    (ids, mask), rows = right_padded(texts(3, 7)), texts(3, 7)
    with torch.no_grad():
        out = model(ids, attention_mask=mask)
        for row, text in enumerate(rows):
            alone = model(text[None])
            for key in ("logits", "start_logits", "end_logits"):
                if key in out:
                    got = out[key][row] if task.startswith("Seq") else out[key][row, : len(text)]
                    assert alike(got, alone[key][0], 1e-5)
    one = torch.tensor([1, 2])
    labels: dict[str, Any] = {
        "SequenceClassification": {"labels": one},
        "TokenClassification": {"labels": ids.clamp_max(2)},
        "QuestionAnswering": {"start_positions": one, "end_positions": one},
    }[task]
    model.train()(ids, attention_mask=mask, **labels).loss.backward()
    assert model.get_input_embeddings().weight.grad.abs().max() > 0


# --- what a forward pass takes


@every_kind
def test_padding_behind_a_text_says_what_its_last_token_said(kind: str) -> None:
    model, (ids, mask) = of_kind(kind), right_padded(texts(5, 9))
    logits = model(ids, attention_mask=mask).logits[0]
    assert (logits[5:] - logits[4]).abs().max() < 1e-9


@every_kind
def test_packed_texts_are_texts_alone(kind: str) -> None:
    """As the flattening collator has it: one row, places that start again, no mask."""
    model, rows = of_kind(kind), texts(4, 1, 6)
    places = torch.cat([torch.arange(len(row)) for row in rows])[None]
    with torch.no_grad():
        out = model(torch.cat(rows)[None], position_ids=places)
        alone = torch.cat([model(row[None], use_cache=False).logits[0] for row in rows])
    assert out.past_key_values is None
    assert (out.logits[0] - alone).abs().max() < 1e-9


def test_padding_where_every_token_sees_all() -> None:
    model, rows = hf("softmax-exp-euler", causal=False), texts(5, 9, 5)
    ids, mask = left_padded(rows)
    logits = model(ids, attention_mask=mask).logits
    for row, text in enumerate(rows):
        assert (logits[row, -len(text) :] - model(text[None]).logits[0]).abs().max() < 1e-9
    with pytest.raises(InputError, match="full visibility"):
        model(ids, use_cache=True)
    with pytest.raises(InputError, match="full visibility"):
        model.generate(ids[1:2], max_new_tokens=2)


@pytest.mark.parametrize("fields", [{}, {"start_momentum": "embedded"}, {"second_table": "none"}])
def test_embeddings_in_place_of_ids(fields: dict[str, Any], caplog: pytest.LogCaptureFixture) -> None:
    """Tables that are asked by id hear of the tokens that vectors are; a soft prompt's has no row there."""
    model, ids = hf("softmax-exp-euler", **fields), tokens(2, 6)
    native, embedded = model.to_language_model(), model.get_input_embeddings()(ids).detach()
    assert torch.equal(model(inputs_embeds=embedded).logits, model(ids).logits)
    embedded[0, 0] += 0.1
    soft = ids.clone()
    soft[0, 0] = -1
    transformers.utils.logging.enable_propagation()
    for _ in range(2):
        got = model(inputs_embeds=embedded, use_cache=False).logits
    transformers.utils.logging.disable_propagation()
    assert torch.equal(got, native(soft, inputs_embeds=embedded).logits)
    beside = model(ids, inputs_embeds=embedded, use_cache=False).logits
    assert torch.equal(beside, native(ids, inputs_embeds=embedded).logits)
    by_id = fields.get("second_table") != "none"
    assert caplog.text.count("no token's embedding") <= by_id
    assert torch.equal(beside, got) != by_id


def test_a_vector_that_is_two_tokens() -> None:
    model, ids = hf("softmax-exp-euler"), torch.tensor([[7, 8, 9]])
    body = model.model.body
    with torch.no_grad():
        body.tokens.weight[11] = body.tokens.weight[8]
    embedded = model.get_input_embeddings()(ids)
    with pytest.raises(InputError, match=r"embedding of several tokens, which other tables .* give input_ids beside"):
        model(inputs_embeds=embedded)
    want = model(ids).logits
    assert torch.equal(model(ids, inputs_embeds=embedded).logits, want)
    assert torch.equal(greedy(model, ids, inputs_embeds=embedded), greedy(model, ids))
    with torch.no_grad():
        body.second_tokens.weight[11] = body.second_tokens.weight[8]
    assert torch.equal(model(inputs_embeds=embedded).logits, want)  # nothing tells them apart


def test_input_that_cannot_be_honoured() -> None:
    model, ids = hf("softmax-exp-euler"), tokens(2, 6)
    hole = torch.tensor([[1, 1, 1, 1, 1, 1], [1, 1, 0, 1, 1, 1]])
    filled = transformers.DynamicCache()
    filled.update(torch.zeros(2, 2, 3, 8), torch.zeros(2, 2, 3, 8), 0)
    bad: dict[str, dict[str, Any]] = {
        "or inputs_embeds in their place": {"input_ids": None},
        r"inputs_embeds must have shape \(batch, tokens, d_model = 16\)": {"inputs_embeds": torch.zeros(2, 6, 15)},
        r"position_ids must be integers of shape \(2, 6\)": {"position_ids": ids[:, 1:]},
        "token_type_ids are not supported": {"token_type_ids": ids},
        "cu_seq_lens_q comes with position_ids": {"cu_seq_lens_q": ids},
        "must hold 0 where a token is seen": {"attention_mask": torch.ones(2, 1, 6, 6)},
        "did you mean 'labels'": {"lables": ids},
        "must cover all columns": {"attention_mask": hole[:, 1:]},
        "an empty DynamicCache, got DynamicCache with 3": {"past_key_values": filled},
        "labels must have the shape": {"labels": ids[:, 1:]},
        r"at least one token, got \(2, 0\)": {"input_ids": ids[:, :0]},
    }
    for message, change in bad.items():
        with pytest.raises(InputError, match=message):
            model(**({"input_ids": ids} | change))


def test_what_asks_for_nothing_is_taken() -> None:
    model, ids = hf("softmax-exp-euler"), tokens(2, 6)
    want = model(ids, labels=ids)
    none: dict[str, Any] = {"whatever": None, "cache_position": torch.arange(6), "token_type_ids": ids * 0}
    assert torch.equal(model(ids, **none).logits, want.logits)
    shifted = nn.functional.pad(ids[:, 1:], (0, 1), value=-100)
    assert torch.equal(model(ids, shift_labels=shifted).loss, want.loss)
    places = torch.arange(6).expand(2, -1)
    assert torch.equal(model(ids, position_ids=places).logits, want.logits)


@every_kind
def test_masks_of_what_every_token_sees(kind: str) -> None:
    """Three endings of one text in a row: each sees the text and itself, at the place behind the text."""
    model, text, ends = of_kind(kind), tokens(1, 5), tokens(1, 3, seed=3)
    seen = torch.eye(8, dtype=torch.bool)
    seen[:, :5] = torch.ones(8, 5).tril().bool()
    places = torch.tensor([[0, 1, 2, 3, 4, 5, 5, 5]])
    row = torch.cat([text, ends], 1)
    numbers = torch.zeros(8, 8, dtype=torch.float64).masked_fill(~seen, torch.finfo(torch.float64).min)
    for mask in (seen, numbers):
        got = model(row, attention_mask=mask[None, None], position_ids=places).logits[0, 5:]
        want = [model(torch.cat([text, ends[:, i : i + 1]], 1), use_cache=False).logits[0, -1] for i in range(3)]
        assert alike(got, torch.stack(want))


# --- what it shows, and the loss


@every_kind
def test_kernels_on_request(kind: str) -> None:
    """The kernel of every layer, by argument or config, whole, padded and from a cache; nothing else changes."""
    model, ids = of_kind(kind), tokens(2, 8)
    n_head = model.config.num_attention_heads
    out, plain = model(ids, output_attentions=True), model(ids, use_cache=False)
    assert plain.attentions is None
    assert alike(out.logits, plain.logits)
    assert [tuple(rows.shape) for rows in out.attentions] == [(2, n_head, 8, 8)] * 2
    assert all(not rows.triu(1).any() for rows in out.attentions)
    if "linear" not in kind:
        assert all(alike(rows.sum(-1), torch.ones(2, n_head, 8).double()) for rows in out.attentions)
    with torch.no_grad():
        start = model(ids[:, :5], output_attentions=True)
        rest = model(ids[:, 5:], output_attentions=True, past_key_values=start.past_key_values)
        assert all(alike(a, b[:, :, 5:]) for a, b in zip(rest.attentions, out.attentions, strict=True))
        mask = torch.tensor([[0, 0, 1, 1, 1, 1, 1, 1]] * 2)
        padded = model(ids, attention_mask=mask, output_attentions=True).attentions
        alone = model(ids[:, 2:], output_attentions=True).attentions
        assert all(alike(a[:, :, 2:, 2:], b) for a, b in zip(padded, alone, strict=True))
    for rows in out.attentions:
        rows.retain_grad()
    out.logits[:, -1].sum().backward()
    # at rest the velocity of a linear first layer is nothing times its kernel
    assert all(rows.grad is not None for rows in out.attentions)
    assert out.attentions[-1].grad.abs().max() > 0
    model.config._attn_implementation = "eager"
    model.config.output_attentions = True
    assert model(ids).attentions is not None


def test_a_kernel_that_was_not_looked_at() -> None:
    model, ids = hf("linear-exp-euler"), tokens(2, 8)
    cache = model(ids[:, :5]).past_key_values
    with pytest.raises(InputError, match="asked for from the first call on"):
        model(ids[:, 5:], past_key_values=cache, output_attentions=True)


def native_states(model: LanguageModel, ids: Tensor) -> list[State]:
    """Before every layer."""
    states: list[State] = []

    def call(layer: Layer, state: State, view: View, own: Any, k: int) -> State:
        states.append(state)
        return layer(state, view, own)

    model.hidden(ids, call=call)
    return states


@every_kind
def test_states_are_in_the_graph(kind: str) -> None:
    """Padded or not, cached or not; momenta stand beside the positions; the head makes logits of the last."""
    model, ids = of_kind(kind), tokens(2, 8)
    for mask in (None, torch.tensor([[0, 0, 1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 1, 1, 1, 0]])):
        asked: dict[str, Any] = {"attention_mask": mask, "output_hidden_states": True, "output_momenta": True}
        out, plain = model(ids, **asked), model(ids, use_cache=False, **asked)
        pairs = list(zip(out.hidden_states, out.momenta, strict=True))
        assert len(pairs) == 3
        assert all(alike(a, b) for a, b in zip(out.hidden_states, plain.hidden_states, strict=True))
        for state in out.hidden_states:
            state.retain_grad()
        out.logits[:, 5].sum().backward()
        assert all(state.grad.abs().max() > 0 for state in out.hidden_states)
        if mask is None:
            assert alike(model.lm_head(out.hidden_states[-1]), out.logits, 1e-12)
            want = native_states(model.to_language_model(), ids)
            assert all(torch.equal(x, w.x) and torch.equal(y, w.y) for (x, y), w in zip(pairs, want, strict=False))
        else:
            assert all(not x[0, :2].any() and not y[0, :2].any() for x, y in pairs)


@every_kind
def test_loss_is_the_shifted_cross_entropy(kind: str) -> None:
    model, ids = of_kind(kind), tokens(3, 11)
    labels = ids.clone()
    labels[0, 4:7] = -100
    out = model(ids, labels=labels)
    want = torch.nn.functional.cross_entropy(out.logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten())
    assert abs(out.loss - want) < 1e-9
    assert out.past_key_values is None
    model.train()
    lean = model(ids, labels=labels)
    assert lean.logits is None
    assert abs(lean.loss - want) < 1e-9
    assert model(ids, labels=labels, logits_to_keep=0).logits.shape == (3, 11, 50)
    assert model(ids, labels=labels, logits_to_keep=2).logits.shape == (3, 2, 50)


def test_loss_over_several_batches_is_that_of_one() -> None:
    model, ids = hf("softmax-exp-euler").train(), tokens(4, 11)
    labels = ids.clone()
    labels[0, 3:] = -100
    labels[3] = -100  # a batch of its own in which nothing counts
    count = (labels[:, 1:] != -100).sum()
    model(ids, labels=labels).loss.backward()
    whole = model.model.body.tokens.weight.grad.clone()
    model.zero_grad()
    for part in ((0, 2), (2, 3), (3, 4)):
        rows = slice(*part)
        model(ids[rows], labels=labels[rows], num_items_in_batch=count).loss.backward()
    assert (model.model.body.tokens.weight.grad - whole).abs().max() < 1e-12


def test_padding_predicts_nothing() -> None:
    model, (ids, mask) = hf("softmax-exp-euler"), left_padded(texts(4, 7))
    labels = ids.masked_fill(mask == 0, -100)
    loss = model(ids, attention_mask=mask, labels=labels).loss
    alone = [model(ids[r : r + 1, -n:], labels=ids[r : r + 1, -n:]).loss * (n - 1) for r, n in ((0, 4), (1, 7))]
    assert abs(loss - sum(alone) / 9) < 1e-9


@pytest.mark.parametrize("how", [None, {}, {"use_reentrant": True}, {"use_reentrant": False}], ids=str)
@every_kind
def test_gradient_checkpointing_changes_no_gradient(kind: str, how: dict[str, Any] | None) -> None:
    model, ids = of_kind(kind, share_layers=kind == "linear", n_layer=3).train(), tokens(2, 11)
    model(ids, labels=ids).loss.backward()
    want = {n: p.grad.clone() for n, p in model.named_parameters()}
    model.zero_grad()
    calls: list[int] = []
    model.model.body.blocks[0].register_forward_pre_hook(lambda *_: calls.append(1))
    getattr(model, f"{CHECKPOINTING}_enable")(*(() if how is None else (how,)))
    model(ids, labels=ids).loss.backward()
    assert len(calls) == (6 if kind == "linear" else 2)  # once more on the way back
    assert all(alike(p.grad, want[n], 1e-12) for n, p in model.named_parameters())
    assert model(ids).past_key_values is None
    with pytest.raises(InputError, match="use_cache = False"):
        model(ids, use_cache=True)


# --- modules that are not exactly ours


@every_kind
def test_a_replaced_forward_is_called(kind: str) -> None:
    """In a plain forward pass, in training and in `generate()`: every module's, not only some."""
    model, ids = of_kind(kind), tokens(1, 6)
    parts = [m for m in model.model.body.modules() if not any(m.children())] + [model.lm_head]
    parts = [m for m in parts if any(True for _ in m.parameters())]
    calls: dict[int, int] = {}

    def counted(index: int, forward: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            calls[index] = calls.get(index, 0) + 1
            return forward(*args, **kwargs)

        return call

    want = greedy(model, ids)
    for index, part in enumerate(parts):
        part.forward = counted(index, part.forward)
    model(ids)
    once = dict(calls)
    assert set(once.values()) == ({1, 2} if kind == "yurii" else {1})  # one norm for both halves
    calls.clear()
    assert torch.equal(greedy(model, ids), want)
    # what depends on weights alone is worked out once a text
    constant = {i for i, part in enumerate(parts) if isinstance(part, Scalars | Matrix)}
    assert calls == {i: n if i in constant else NEW * n for i, n in once.items()}
    assert len(calls) == len(parts)
    for training in (True, False):
        calls.clear()
        model.train(training)(ids, labels=ids)
        assert len(calls) == len(parts)


@pytest.mark.filterwarnings("ignore:You are calling .generate")  # transformers before 5.23 warns of the device
@every_kind
def test_weights_that_are_brought_in_when_needed(kind: str, tmp_path: Path) -> None:
    accelerate = pytest.importorskip("accelerate", reason="needs the extra hf")
    ids = tokens(1, 6)
    want = greedy(of_kind(kind), ids)
    for offloaded in (
        accelerate.cpu_offload(of_kind(kind), torch.device("cpu")),
        accelerate.disk_offload(of_kind(kind), tmp_path, torch.device("cpu")),
    ):
        assert all(p.is_meta for n, p in offloaded.named_parameters() if "blocks" in n)
        assert torch.equal(greedy(offloaded, ids), want)


@pytest.mark.filterwarnings("ignore")  # the compiler's own deprecations
@pytest.mark.parametrize("name", ["softmax-exp-euler", "linear-baseline"])
def test_compiled_whole(name: str) -> None:
    """With a mask, in one graph."""
    model, ids = hf(name, dtype=torch.float32, n_layer=1), tokens(2, 8)
    mask = torch.tensor([[0, 0, 1, 1, 1, 1, 1, 1], [1] * 8])
    torch.compiler.reset()
    with torch.no_grad():
        got = torch.compile(model, fullgraph=True, backend="eager")(ids, attention_mask=mask, use_cache=False).logits
        assert alike(got, model(ids, attention_mask=mask, use_cache=False).logits, 1e-5)


# --- the house around


def test_without_transformers_one_sentence() -> None:
    code = (
        "import sys; sys.modules['transformers'] = None\ntry:\n import sympformer.hf\nexcept ImportError as e: print(e)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "sympformer.hf needs transformers: " in done.stdout
    assert "pip install '.[hf]'" in done.stdout


def test_structure_conventions() -> None:
    mlinter = pytest.importorskip("mlinter", reason="needs transformers-mlinter")
    folder = Path(sf.__file__).parent / "hf"
    command = [sys.executable, "-m", mlinter.__name__, str(folder), "--no-cache", "--no-progress"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


PAGE = Path(__file__).parents[2] / "docs" / "huggingface.md"
SECTIONS = ("Loading and saving", "The forward pass", "Generation", "Trainer", "Adapters (PEFT)")


def test_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    for title in SECTIONS:
        section = re.split(r"^## ", PAGE.read_text().split(f"## {title}\n", 1)[1], maxsplit=1, flags=re.MULTILINE)[0]
        blocks = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
        assert blocks, title
        for block in blocks:
            exec(block, names)
    assert (tmp_path / "my-model" / "model.safetensors").exists()
    shapes = {"rows": (2, 2, 5, 5), "more": (2, 9), "last": (1, 2, 300), "says": (2, 3), "b": (2, 13)}
    assert {name: names[name].shape for name in shapes} == shapes
    assert any("lora_" in name for name, _ in names["adapted"].named_parameters())


# --- shared by two processes
NAMES = ("softmax-exp-euler", "linear-baseline")


def compare(rank: int, port: int, folder: str) -> None:
    """Logits, loss and gradients of the shared model beside those of the whole one; a text where matrices are split."""
    from transformers.distributed import DistributedConfig

    torch.set_num_threads(1)
    dist.init_process_group("gloo", f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
    for name in NAMES:
        for how in ("tp_size", "fsdp_size"):
            whole = SympFormerForCausalLM.from_pretrained(f"{folder}/{name}")
            split = DistributedConfig(**{how: 2})  # type: ignore[arg-type]
            shared = SympFormerForCausalLM.from_pretrained(f"{folder}/{name}", distributed_config=split)
            up = shared.model.body.blocks[0].mlp.up.weight
            assert up.to_local().shape[0] * 2 == whole.model.body.blocks[0].mlp.up.weight.shape[0]
            check(shared, whole, generates=how == "tp_size")
    dist.destroy_process_group()


def check(shared: Any, whole: Any, generates: bool) -> None:
    ids = tokens(2, 8)
    with torch.no_grad():
        assert (shared(ids).logits - whole(ids).logits).abs().max() < 1e-5
    if generates:
        assert torch.equal(*(m.generate(ids, max_new_tokens=6, do_sample=False) for m in (shared, whole)))
    losses = [m(ids, labels=ids).loss for m in (shared, whole)]
    assert (losses[0] - losses[1]).abs() < 1e-6
    for loss in losses:
        loss.backward()
    for (n, a), b in zip(shared.named_parameters(), whole.parameters(), strict=True):
        got = a.grad.full_tensor() if hasattr(a.grad, "full_tensor") else a.grad
        assert (got - b.grad).abs().max() < 1e-5, n


def test_a_plan_for_several_devices(tmp_path: Path) -> None:
    for name in NAMES:
        hf(name, dtype=torch.float32).save_pretrained(tmp_path / name)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    mp.spawn(compare, (port, str(tmp_path)), nprocs=2)


def test_what_is_not_split_has_no_plan() -> None:
    """A gated MLP keeps two halves in one matrix, and would be cut across them."""
    for mlp, planned in {"gelu": True, "relu2": True, "swiglu": False, "none": False}.items():
        config = SympFormerConfig.from_model_config(variant("softmax-exp-euler", mlp=mlp))
        assert (config.base_model_tp_plan is not None) == planned
        assert "base_model_tp_plan" not in config.to_dict()
