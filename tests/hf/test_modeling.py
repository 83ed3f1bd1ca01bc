"""The Hugging Face classes are the native models: same logits, saved and loaded, in every way of giving the input."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import sympformer as sf
from sympformer.errors import InputError
from tests.hf.helpers import (
    checkpoint,
    every_kind,
    every_variant,
    hf,
    left_padded,
    of_kind,
    right_padded,
    texts,
)
from tests.models.cases import SIZE, make, make_choice, tokens

pytest.importorskip("transformers", reason="needs the extra hf")

import transformers

from sympformer.hf import SympFormerCache, SympFormerConfig, SympFormerForCausalLM, SympFormerModel


def test_base_model(tmp_path: Path) -> None:
    native, ids = make("softmax-ab2", dtype=torch.float32), tokens()
    SympFormerForCausalLM.from_language_model(native).save_pretrained(tmp_path)
    bare = transformers.AutoModel.from_pretrained(tmp_path)
    assert isinstance(bare, SympFormerModel)
    with torch.no_grad():
        want = native(ids).hidden
        assert torch.equal(bare(ids, use_cache=False).last_hidden_state, want)
        as_tuple = bare(ids, use_cache=False, return_dict=False)
    assert isinstance(as_tuple, tuple)
    assert torch.equal(as_tuple[0], want)


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


@every_kind
def test_padding_behind_a_text_says_what_its_last_token_said(kind: str) -> None:
    model, (ids, mask) = of_kind(kind), right_padded(texts(5, 9))
    logits = model(ids, attention_mask=mask).logits[0]
    assert (logits[5:] - logits[4]).abs().max() < 1e-9


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


@every_kind
def test_hidden_states(kind: str) -> None:
    model, (ids, mask) = of_kind(kind), left_padded(texts(4, 7))
    out = model(ids, attention_mask=mask, output_hidden_states=True)
    cached = model(ids, attention_mask=mask, output_hidden_states=True, use_cache=True)
    assert len(out.hidden_states) == model.config.num_hidden_layers + 1
    assert (model.lm_head(out.hidden_states[-1]) - out.logits).abs().max() < 1e-12
    body = model.model.body
    embedded = body.embed(body.tokens(ids[1:]), ids[1:], torch.arange(ids.shape[1]))
    assert (out.hidden_states[0][1] - embedded.x[0]).abs().max() < 1e-12
    for a, b in zip(out.hidden_states, cached.hidden_states, strict=True):
        assert (a - b).abs().max() < 1e-9
    assert (out.hidden_states[1] - out.hidden_states[0]).abs().max() > 1e-3


@every_variant
def test_loss_is_the_shifted_cross_entropy(name: str) -> None:
    model, ids = hf(name), tokens(3, 11)
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


@every_variant
def test_gradient_checkpointing_changes_no_gradient(name: str) -> None:
    model, ids = hf(name, share_layers=name.endswith("ab2"), n_layer=3).train(), tokens(2, 11)
    model(ids, labels=ids).loss.backward()
    want = {n: p.grad.clone() for n, p in model.named_parameters()}
    model.zero_grad()
    calls: list[int] = []
    model.model.body.blocks[0].register_forward_pre_hook(lambda *_: calls.append(1))
    checkpoint(model, use_reentrant=name.startswith("linear"))
    model(ids, labels=ids).loss.backward()
    assert len(calls) == (6 if name.endswith("ab2") else 2)  # once more on the way back
    assert all(torch.allclose(p.grad, want[n], rtol=0, atol=1e-12) for n, p in model.named_parameters())
    assert model(ids).past_key_values is None
    with pytest.raises(InputError, match="use_cache = False"):
        model(ids, use_cache=True)


@every_variant
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


@every_kind
def test_bfloat16(kind: str, tmp_path: Path) -> None:
    model, ids = of_kind(kind, dtype=torch.float32), tokens(2, 12)
    model.save_pretrained(tmp_path)
    half = SympFormerForCausalLM.from_pretrained(tmp_path, dtype=torch.bfloat16)
    assert half.lm_head.weight.dtype == torch.bfloat16
    assert all(p.dtype == torch.float32 for n, p in half.named_parameters() if "scalars" in n)
    with torch.no_grad():
        want, got = model(ids, use_cache=False).logits, half(ids, use_cache=False).logits
        cached = half(ids, use_cache=True).logits
    assert got.dtype == torch.bfloat16
    scale = want.abs().max()
    assert (got - want).abs().max() < 0.1 * scale
    assert (cached - want).abs().max() < 0.1 * scale


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
    with torch.no_grad():
        body.second_tokens.weight[11] = body.second_tokens.weight[8]
    assert torch.equal(model(inputs_embeds=embedded).logits, want)  # nothing tells them apart


def test_never_unpickles(tmp_path: Path) -> None:
    model = hf("softmax-baseline")
    model.save_pretrained(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    torch.save(model.state_dict(), tmp_path / "pytorch_model.bin")
    with pytest.raises(OSError, match="safetensors"):
        SympFormerForCausalLM.from_pretrained(tmp_path)
    with pytest.raises(InputError, match="can run code"):
        SympFormerForCausalLM.from_pretrained(tmp_path, use_safetensors=False)


def test_light_imports_stay_light() -> None:
    code = (
        "import sys, sympformer, sympformer.cli; sympformer.cli.main(['--help']); print('transformers' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "False"


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


def test_cache_is_made_when_it_is_of_use() -> None:
    model, ids = hf("linear-exp-euler"), tokens(2, 6)
    for recorded in (True, False):
        with torch.set_grad_enabled(recorded):
            assert isinstance(model(ids).past_key_values, SympFormerCache)
    with torch.no_grad():
        assert model(ids, use_cache=False).past_key_values is None
        assert model(ids, labels=ids).past_key_values is None
