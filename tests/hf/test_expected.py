"""What transformers and the tools around it expect of a model, beyond generating and training."""

import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from sympformer import ops
from sympformer.errors import InputError
from sympformer.models import LanguageModel
from sympformer.nn import Layer, Matrix, Scalars, State, View
from tests.hf.helpers import CHECKPOINTING, every_kind, hf, of_kind, right_padded, texts
from tests.models.cases import tokens

pytest.importorskip("transformers", reason="needs the extra hf")

import transformers

from sympformer.hf import SympFormerCache, SympFormerForCausalLM
from sympformer.hf.modeling_sympformer import SympFormerModel

NEW = 5


def alike(got: Tensor, want: Tensor, tolerance: float = 1e-9) -> bool:
    return got.shape == want.shape and bool((got - want).abs().max() < tolerance)


# --- caches


@every_kind
@torch.no_grad()
def test_a_decode_loop_before_anybody_called_eval(kind: str) -> None:
    model, ids = of_kind(kind).train(), tokens(2, 9)
    out = model(ids[:, :6])
    last = model(ids[:, 6:], past_key_values=out.past_key_values).logits
    assert alike(last, model(ids, use_cache=False).logits[:, 6:])


@every_kind
def test_a_dynamic_cache_that_is_handed_in(kind: str) -> None:
    """It goes on as the object that it was, in a loop and in `generate()`."""
    model, ids, cache = of_kind(kind), tokens(2, 9), transformers.DynamicCache()
    with torch.no_grad():
        model(ids[:, :6], past_key_values=cache)
        assert isinstance(cache, SympFormerCache)
        assert cache.get_seq_length() == 6
        assert alike(model(ids[:, 6:], past_key_values=cache).logits, model(ids, use_cache=False).logits[:, 6:])
    want = model.generate(ids, max_new_tokens=NEW, do_sample=False)
    got = model.generate(ids, max_new_tokens=NEW, do_sample=False, past_key_values=transformers.DynamicCache())
    assert torch.equal(got, want)


@every_kind
def test_models_and_caches_are_pickled(kind: str) -> None:
    model, ids = of_kind(kind), tokens(2, 9)
    with torch.no_grad():
        cache = model(ids[:, :6]).past_key_values
        again, thawed = pickle.loads(pickle.dumps((model, cache)))
        assert alike(again(ids[:, 6:], past_key_values=thawed).logits, model(ids[:, 6:], past_key_values=cache).logits)


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

    want = model.generate(ids, max_new_tokens=NEW, do_sample=False)
    for index, part in enumerate(parts):
        part.forward = counted(index, part.forward)
    model(ids)
    once = dict(calls)
    assert set(once.values()) == ({1, 2} if kind == "yurii" else {1})  # one norm for both halves
    calls.clear()
    assert torch.equal(model.generate(ids, max_new_tokens=NEW, do_sample=False), want)
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
    want = of_kind(kind).generate(ids, max_new_tokens=NEW, do_sample=False)
    for offloaded in (
        accelerate.cpu_offload(of_kind(kind), torch.device("cpu")),
        accelerate.disk_offload(of_kind(kind), tmp_path, torch.device("cpu")),
    ):
        assert all(p.is_meta for n, p in offloaded.named_parameters() if "blocks" in n)
        assert torch.equal(offloaded.generate(ids, max_new_tokens=NEW, do_sample=False), want)


# --- configs and folders


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


# --- what a forward pass takes and shows


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
    """Padded or not; momenta stand beside the positions."""
    model, ids = of_kind(kind), tokens(2, 8)
    for mask in (None, torch.tensor([[0, 0, 1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 1, 1, 1, 0]])):
        out = model(ids, attention_mask=mask, output_hidden_states=True, output_momenta=True)
        assert len(out.hidden_states) == len(out.momenta) == 3
        for state in out.hidden_states:
            state.retain_grad()
        out.logits[:, 5].sum().backward()
        assert all(state.grad.abs().max() > 0 for state in out.hidden_states)
        if mask is None:
            want = native_states(model.to_language_model(), ids)
            assert all(torch.equal(a, b.x) for a, b in zip(out.hidden_states, want, strict=False))
            assert all(torch.equal(a, b.y) for a, b in zip(out.momenta, want, strict=False))
        else:
            assert all(
                not a[0, :2].any() and not b[0, :2].any() for a, b in zip(out.hidden_states, out.momenta, strict=True)
            )


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


@pytest.mark.parametrize("name", ["softmax-etd-ab2", "linear-exp-euler"])
def test_checkpointing_without_options(name: str) -> None:
    model, ids = hf(name).train(), tokens(2, 8)
    model(ids, labels=ids).loss.backward()
    want = {n: p.grad.clone() for n, p in model.named_parameters()}
    model.zero_grad()
    getattr(model, f"{CHECKPOINTING}_enable")({})
    model(ids, labels=ids).loss.backward()
    assert all(alike(p.grad, want[n], 1e-12) for n, p in model.named_parameters())


# --- generation


@every_kind
def test_texts_padded_behind_are_continued(kind: str) -> None:
    model, rows = of_kind(kind), texts(3, 8, 6)
    ids, mask = right_padded(rows)
    for options in ({}, {"use_cache": False}, {"num_beams": 2}):
        got = model.generate(ids, attention_mask=mask, max_new_tokens=NEW, do_sample=False, **options)
        for row, text in enumerate(rows):
            alone = model.generate(text[None], max_new_tokens=NEW, do_sample=False, **options)
            assert torch.equal(got[row, ids.shape[1] :], alone[0, len(text) :])


@pytest.mark.parametrize("kind", ["softmax-own", "linear"])
def test_an_early_exit_changes_nothing(kind: str) -> None:
    model, ids = of_kind(kind, n_layer=3), tokens(1, 6)
    want = model.generate(ids, max_new_tokens=NEW, do_sample=False)
    assert torch.equal(model.generate(ids, max_new_tokens=NEW, do_sample=False, assistant_early_exit=1), want)
    assert model.config.num_hidden_layers == 3
    seen = model(ids, output_hidden_states=True).hidden_states
    model.config.num_hidden_layers = 1  # nothing of later layers, not what comes ahead of them either
    assert torch.equal(model.model(ids).last_hidden_state, model.model.body.norm(seen[1]))


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
