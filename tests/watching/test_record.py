"""The record of a model: its states are the layers' own, its lens is the model's, its rows are the kernels'."""

from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import sympformer as sf
from sympformer import ops
from sympformer.errors import InputError
from sympformer.models import LanguageModel
from sympformer.nn import State, perturb_
from sympformer.watching import Record, Stage, readout
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
    if model.cfg.has_momentum:
        assert seen.y is not None
        torch.testing.assert_close(seen.y, torch.stack([state.y for state in states]), **close)
    else:
        assert seen.y is None
    check_lens(seen, model(idx).logits, readout(model)(seen.x[-1]))


def check_lens(seen: Record, logits: Tensor, read: Tensor) -> None:
    """At the last stage the lens is the model's own distribution."""
    assert seen.lens is not None
    torch.testing.assert_close(read, logits, rtol=1e-9, atol=1e-10)
    best = logits.softmax(-1).topk(3)
    assert torch.equal(seen.lens.ids[-1], best.indices)
    torch.testing.assert_close(seen.lens.probabilities[-1], best.values, rtol=1e-6, atol=1e-9)


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
    model, idx = make("softmax-yuriiformer"), tokens(2, 6)
    lens = sf.watch(model, idx, lens=SIZE["vocab_size"]).lens
    assert lens is not None
    assert (lens.true_rank[..., -1] == 0).all()
    assert lens.true_probability[..., -1].isnan().all()
    for stage in range(len(lens.ids)):
        for b in range(2):
            for i in range(5):
                rank, true = int(lens.true_rank[stage, b, i]), idx[b, i + 1]
                assert lens.ids[stage, b, i, rank - 1] == true
                assert lens.probabilities[stage, b, i, rank - 1] == lens.true_probability[stage, b, i]
    for b in range(2):
        for i in range(6):
            best = lens.ids[:, b, i, 0].tolist()
            assert int(lens.reached[b, i]) == best.index(best[-1])


def test_the_lens_holds_few_logits_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    from sympformer.watching import record

    model, idx, sizes = make("softmax-exp-euler"), tokens(2, 5), list[int]()
    whole = sf.watch(model, idx, lens=2).lens
    monkeypatch.setattr(record, "LARGEST", 3 * SIZE["vocab_size"])
    guesses = record._guesses

    def counted(logits: Tensor, *rest: Any) -> Any:
        sizes.append(logits.numel())
        return guesses(logits, *rest)

    monkeypatch.setattr(record, "_guesses", counted)
    parts = sf.watch(model, idx, lens=2).lens
    assert whole is not None
    assert parts is not None
    assert torch.equal(parts.ids, whole.ids)
    assert max(sizes) == 3 * SIZE["vocab_size"]


# --- attention rows


def test_rows_are_kept_on_request_only() -> None:
    model, idx = make("softmax-baseline"), tokens(2, 8)
    assert sf.watch(model, idx).attention is None
    some = sf.watch(model, idx, attention=[6, 2])
    every = sf.watch(model, idx, attention=True)
    assert some.attention is not None
    assert every.attention is not None
    assert some.attention.shape == (SIZE["n_layer"], 2, SIZE["n_head"], 2, 8)
    assert torch.equal(some.attention, every.attention[..., [6, 2], :])


@pytest.mark.parametrize(
    "choice", ["gpt-dropout", "form-paper", "heads-multi-softmax", "value-tied-paper", "rotary-averaged"]
)
@pytest.mark.parametrize("causal", [True, False])
def test_softmax_rows_are_the_weights_of_the_values(choice: str, causal: bool) -> None:
    name, options = CHOICES[choice]
    model, idx = make(name, causal=causal, **options), tokens(2, 8)
    seen, layer = sf.watch(model, idx, attention=True), model.layers()[0]
    assert seen.attention is not None
    rows = seen.attention[0]
    torch.testing.assert_close(rows.sum(-1), torch.ones_like(rows[..., 0]))
    assert bool((rows.triu(1) == 0).all()) == causal
    view, state = view_of(model, idx), ahead(model, seen, 0)
    field: Any = layer.attend(state.x, view)
    torch.testing.assert_close(rows @ field.v, field.mean)


@pytest.mark.parametrize("causal", [True, False])
def test_linear_rows_are_means_of_scores(causal: bool) -> None:
    idx = tokens(2, 8)
    ours = make("linear-exp-euler", causal=causal, mu=0.0, start_momentum="embedded")
    seen, layer = sf.watch(ours, idx, attention=True), ours.layers()[0]
    assert seen.attention is not None
    view, (x, y, *_) = view_of(ours, idx), ahead(ours, seen, 0)
    velocity = layer.attend(x, view).velocity(y)
    torch.testing.assert_close(seen.attention[0, :, 0] @ y, velocity)
    baseline = make("linear-baseline", causal=causal)
    seen, layer = sf.watch(baseline, idx, attention=True), baseline.layers()[0]
    assert seen.attention is not None
    state = ahead(baseline, seen, 0)
    v = layer.attention.qk(layer.norm(state.x)).chunk(3, -1)[2].unflatten(-1, (SIZE["n_head"], -1)).transpose(1, 2)
    torch.testing.assert_close((seen.attention[0] @ v).transpose(1, 2).flatten(-2), F.linear(
        layer.attend(state.x, view).first_order(), torch.linalg.inv(layer.attention.out.weight)))  # fmt: skip


# --- a model is left as it was, wrong questions get an answer


def test_dropout_is_off_and_modes_come_back() -> None:
    model = make_choice("dropout").train()
    model.blocks[1].eval()
    first, second = (sf.watch(model, tokens(1, 6)).x for _ in range(2))
    assert torch.equal(first, second)
    assert model.training
    assert [block.training for block in model.blocks] == [True, False, True]
    assert not any(module._forward_hooks for module in model.modules())


def test_what_cannot_be_watched() -> None:
    model = make("softmax-baseline")
    for options, why in [
        ({"attention": [9]}, "the row of token 9 in a text of 4 tokens"),
        ({"lens": -1}, "lens is a number of guesses, got -1"),
    ]:
        with pytest.raises(InputError, match=why):
            sf.watch(model, tokens(1, 4), **options)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="exceed block_size = 24"):
        sf.watch(model, tokens(1, 25))
    with pytest.raises(InputError, match=r"Linear cannot be watched on \(1, 4\) tokens"):
        sf.watch(torch.nn.Linear(2, 2), tokens(1, 4))


def test_counts_do_not_disturb_each_other() -> None:
    model, idx = make("softmax-exp-euler"), tokens(1, 4)
    with ops.count_passes() as outer:
        with ops.count_passes() as inner:
            pass
        model(idx)
    assert (outer.passes, inner.passes) == (SIZE["n_layer"], 0)
