"""The record of a model: its states are the layers' own, its lens is the model's, its rows are the kernels'."""

from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import sympformer as sf
from sympformer import ops, watching
from sympformer.errors import InputError
from sympformer.models import LanguageModel
from sympformer.nn import State, perturb_
from sympformer.watching import Record, Stage, readout, record
from tests.models.cases import CHOICES, SIZE, every_choice, every_model, make, make_choice, tokens
from tests.watching.targets import ahead, view_of


@torch.no_grad()
def states_by_loop(model: LanguageModel, idx: Tensor) -> list[State]:
    """A plain double loop over layers and halves, by the slow way."""
    view = view_of(model, idx)
    states = [model.embed(model.tokens(idx), idx, torch.arange(idx.shape[1]))]
    with ops.plain():
        for layer, (factors, _) in zip(model.layers(), model.constants(), strict=True):
            state = layer.ahead(states[-1], view)
            for half in range(len(factors)):
                force: Any = layer.mlp if half else partial(layer.attend, view=view)
                bound = layer.bounds[half % len(layer.bounds)]
                state = layer.stepper.step(half, state, force, factors[half], bound)
                states.append(state)
    return states


def check(model: LanguageModel) -> None:
    idx = tokens(2, 7)
    seen, states = sf.watch(model, idx, lens=3), states_by_loop(model, idx)
    close: dict[str, Any] = {"rtol": 1e-10, "atol": 1e-12}
    torch.testing.assert_close(seen.x, torch.stack([state.x for state in states]), **close)
    assert (seen.y is not None) == model.cfg.has_momentum
    if seen.y is not None:
        torch.testing.assert_close(seen.y, torch.stack([state.y for state in states]), **close)
    logits = model(idx).logits
    torch.testing.assert_close(readout(model)(seen.x[-1]), logits, rtol=1e-9, atol=1e-10)
    check_lens(seen, logits)


def check_lens(seen: Record, logits: Tensor) -> None:
    """At the last stage the lens is the model's own distribution."""
    best = logits.double().softmax(-1).topk(3)
    assert seen.lens is not None
    assert torch.equal(seen.lens.ids[-1], best.indices)
    torch.testing.assert_close(seen.lens.probabilities[-1].double(), best.values, rtol=1e-6, atol=1e-8)


@every_model
def test_states_are_those_of_a_plain_loop(name: str, preset: str) -> None:
    check(make(name, preset))


@every_choice
def test_states_are_those_of_a_plain_loop_for_config_choices(choice: str) -> None:
    check(make_choice(choice))


def test_stages_have_names() -> None:
    seen = sf.watch(make("softmax-exp-euler", n_layer=2), tokens(1, 3))
    names = ["embedding", "layer 1, attention", "layer 1, MLP", "layer 2, attention", "layer 2, MLP"]
    assert [stage.name for stage in seen.stages] == names
    bare = sf.watch(make_choice("no-mlp"), tokens(1, 3))
    assert bare.stages == (Stage(0, "embedding"), *(Stage(k, "attention") for k in (1, 2, 3)))
    assert sf.watch is watching.watch
    assert "watch" in dir(sf)


@pytest.mark.parametrize("stepper", sf.nn.STEPPERS)
@pytest.mark.parametrize("share_layers", [False, True])
@torch.no_grad()
def test_encoders(stepper: str, share_layers: bool) -> None:
    encoder = sf.nn.Encoder(16, 2, 3, stepper, share_layers=share_layers).double().eval()
    perturb_(encoder)
    x = torch.randn(2, 5, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    seen = sf.watch(encoder, x, attention=[4])
    _, states = encoder(x, return_states=True)
    torch.testing.assert_close(seen.x[2::2], torch.stack([state.x for state in states]))
    torch.testing.assert_close(seen.x[0], x)
    if encoder.cfg.has_momentum:
        assert seen.y is not None
        torch.testing.assert_close(seen.y[2::2], torch.stack([state.y for state in states]))
    assert seen.attention is not None
    torch.testing.assert_close(seen.attention.sum(-1), torch.ones_like(seen.attention[..., 0]))
    assert (seen.attention > 0).all()  # every token sees all
    assert "advance" not in vars(encoder)
    with pytest.raises(InputError, match="watch with lens=0"):
        sf.watch(encoder, x, lens=1)


# --- the lens


def test_lens_knows_the_token_that_came_next() -> None:
    idx = tokens(2, 6)
    lens = sf.watch(make("softmax-yuriiformer"), idx, lens=SIZE["vocab_size"]).lens
    assert lens is not None
    assert (lens.true_rank[..., -1] == 0).all()
    assert lens.true_probability[..., -1].isnan().all()
    place = (lens.true_rank[..., :-1] - 1).unsqueeze(-1)  # every id is among the guesses
    following = idx[:, 1:].expand(len(lens.ids), -1, -1)
    assert torch.equal(lens.ids[:, :, :-1].gather(-1, place).squeeze(-1), following)
    chances = lens.probabilities[:, :, :-1].gather(-1, place).squeeze(-1)
    assert torch.equal(chances, lens.true_probability[..., :-1])
    for b, i in torch.cartesian_prod(torch.arange(2), torch.arange(6)).tolist():
        best = lens.ids[:, b, i, 0].tolist()
        assert int(lens.reached[b, i]) == best.index(best[-1])


def test_the_lens_holds_few_logits_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    model, idx, sizes = make("softmax-exp-euler"), tokens(2, 5), list[int]()
    whole, guesses = sf.watch(model, idx, lens=2).lens, record._guesses

    def counted(logits: Tensor, *rest: Any) -> Any:
        sizes.append(logits.numel())
        return guesses(logits, *rest)

    monkeypatch.setattr(record, "LARGEST", 3 * SIZE["vocab_size"])
    monkeypatch.setattr(record, "_guesses", counted)
    parts = sf.watch(model, idx, lens=2).lens
    assert whole is not None
    assert parts is not None
    assert torch.equal(parts.ids, whole.ids)
    assert max(sizes) == 3 * SIZE["vocab_size"]


# --- attention rows


def rows_of(model: Any, idx: Tensor, attention: Any = True) -> Tensor:
    found = sf.watch(model, idx, attention=attention).attention
    assert found is not None
    return found


def test_rows_are_kept_on_request_only() -> None:
    model, idx = make("softmax-baseline"), tokens(2, 8)
    assert sf.watch(model, idx).attention is None
    some = rows_of(model, idx, [6, 2])
    assert some.shape == (SIZE["n_layer"], 2, SIZE["n_head"], 2, 8)
    assert torch.equal(some, rows_of(model, idx)[..., [6, 2], :])


@pytest.mark.parametrize(
    "choice", ["gpt-dropout", "form-paper", "heads-multi-softmax", "value-tied-paper", "rotary-averaged"]
)
@pytest.mark.parametrize("causal", [True, False])
def test_softmax_rows_are_the_weights_of_the_values(choice: str, causal: bool) -> None:
    name, options = CHOICES[choice]
    model, idx = make(name, causal=causal, **options), tokens(2, 8)
    rows = rows_of(model, idx)[0]
    torch.testing.assert_close(rows.sum(-1), torch.ones_like(rows[..., 0]))
    assert bool((rows.triu(1) == 0).all()) == causal
    field: Any = model.layers()[0].attend(ahead(model, sf.watch(model, idx), 0).x, view_of(model, idx))
    torch.testing.assert_close(rows @ field.v, field.mean)


@pytest.mark.parametrize("causal", [True, False])
def test_linear_rows_are_means_of_scores(causal: bool) -> None:
    idx = tokens(2, 8)
    ours = make("linear-exp-euler", causal=causal, mu=0.0, start_momentum="embedded")
    x, y, *_ = ahead(ours, sf.watch(ours, idx), 0)
    torch.testing.assert_close(
        rows_of(ours, idx)[0, :, 0] @ y, ours.layers()[0].attend(x, view_of(ours, idx)).velocity(y)
    )
    baseline = make("linear-baseline", causal=causal)
    layer, x = baseline.layers()[0], ahead(baseline, sf.watch(baseline, idx), 0).x
    v = layer.attention.qk(layer.norm(x)).chunk(3, -1)[2].unflatten(-1, (SIZE["n_head"], -1)).transpose(1, 2)
    mixed = (rows_of(baseline, idx)[0] @ v).transpose(1, 2).flatten(-2)
    whole = layer.attend(x, view_of(baseline, idx)).first_order()
    torch.testing.assert_close(mixed, F.linear(whole, torch.linalg.inv(layer.attention.out.weight)))


# --- a model is left as it was, wrong questions get an answer


def test_dropout_is_off_and_modes_come_back() -> None:
    model = make_choice("dropout").train()
    model.blocks[1].eval()
    first, second = (sf.watch(model, tokens(1, 6)).x for _ in range(2))
    assert torch.equal(first, second)
    assert model.training
    assert [block.training for block in model.blocks] == [True, False, True]
    assert not any(module._forward_hooks for module in model.modules())


@pytest.mark.parametrize(
    ("length", "options", "why"),
    [
        (4, {"attention": [9]}, "the row of token 9 in a text of 4 tokens"),
        (4, {"lens": -1}, "lens is a number of guesses, got -1"),
        (25, {}, "exceed block_size = 24"),
    ],
)
def test_what_cannot_be_watched(length: int, options: dict[str, Any], why: str) -> None:
    with pytest.raises(InputError, match=why):
        sf.watch(make("softmax-baseline"), tokens(1, length), **options)
    with pytest.raises(InputError, match=r"Linear cannot be watched on \(1, 4\) tokens"):
        sf.watch(nn.Linear(2, 2), tokens(1, 4))


# --- models of Hugging Face

SMALL: dict[str, Any] = {"vocab_size": 50, "bos_token_id": 0, "eos_token_id": 0}


def gpt2() -> Any:
    transformers = pytest.importorskip("transformers", reason="needs the hf extra")
    torch.manual_seed(0)
    config = transformers.GPT2Config(n_positions=24, n_embd=16, n_layer=2, n_head=2, **SMALL)
    return transformers.GPT2LMHeadModel(config).double().eval()


def llama() -> Any:
    transformers = pytest.importorskip("transformers", reason="needs the hf extra")
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**sizes, **SMALL)).double().eval()


@pytest.mark.parametrize("build", [gpt2, llama])
@torch.no_grad()
def test_others_by_their_hidden_states(build: Any) -> None:
    model, idx = build(), tokens(2, 6)
    kept = model.config._attn_implementation
    seen = sf.watch(model, idx, attention=[1, 4], lens=3)
    assert model.config._attn_implementation == kept
    output = model(idx, output_hidden_states=True)
    assert [stage.name for stage in seen.stages] == ["embedding", "layer 1", "layer 2"]
    torch.testing.assert_close(seen.x[:2], torch.stack(output.hidden_states[:2]))
    norm = model.transformer.ln_f if build is gpt2 else model.model.norm
    torch.testing.assert_close(norm(seen.x[-1]), output.hidden_states[-1])  # kept from before the norm
    assert seen.y is None
    assert seen.physics.hamiltonian.startswith("No Hamiltonian")
    check_lens(seen, output.logits)
    assert seen.attention is not None
    torch.testing.assert_close(seen.attention.sum(-1), torch.ones(2, 2, 2, 2, dtype=torch.float64))
    assert seen.attention.shape[-1] == 6
    assert not norm._forward_hooks
    # logits that are not norm and head alone have no lens
    model.register_forward_hook(lambda module, args, out: out.__class__(**{**out, "logits": 2 * out.logits}))
    assert len(sf.watch(model, idx).x) == 3
    with pytest.raises(InputError, match="no logits that are its final norm and head applied to its states"):
        sf.watch(model, idx, lens=1)


def test_ours_in_the_form_of_hugging_face_keeps_its_momenta() -> None:
    hf = pytest.importorskip("sympformer.hf", reason="needs the hf extra")
    model, idx = make("softmax-ab2"), tokens(1, 6)
    seen, twin = sf.watch(model, idx), sf.watch(hf.SympFormerForCausalLM.from_language_model(model), idx)
    assert seen.y is not None
    assert twin.y is not None
    assert torch.equal(seen.x, twin.x)
    assert torch.equal(seen.y, twin.y)
    assert seen.stages == twin.stages
