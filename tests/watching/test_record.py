"""The record of a model: its states are the layers' own, its lens is the model's, its rows are the kernels'."""

from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import sympformer as sf
from sympformer import flows, ops, watching
from sympformer.errors import InputError
from sympformer.models import LanguageModel
from sympformer.nn import State, View, perturb_
from sympformer.watching import Record, Stage, clusters, effective_rank, readout, record
from tests.models.cases import CHOICES, SIZE, every_choice, every_model, make, make_choice, tokens

watch: Any = sf.watch


def view_of(model: LanguageModel, idx: Tensor) -> View:
    """What the tokens see, as the layers of the model are told."""
    views = []

    def call(layer: Any, state: State, view: View, own: Any, k: int) -> State:
        views.append(view)
        return layer(state, view, own)

    model.hidden(idx, call=call)
    return views[0]


def ahead(model: LanguageModel, seen: Record, k: int) -> State:
    """What the step of layer k starts from."""
    y = seen.x[2 * k] * 0 if seen.y is None else seen.y[2 * k]
    return model.layers()[k].ahead(State(seen.x[2 * k], y), view_of(model, seen.idx))


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
    seen, states = watch(model, idx, lens=3), states_by_loop(model, idx)
    close: dict[str, Any] = {"rtol": 1e-10, "atol": 1e-12}
    torch.testing.assert_close(seen.x, torch.stack([state.x for state in states]), **close)
    assert (seen.y is not None) == model.cfg.has_momentum
    if seen.y is not None:
        torch.testing.assert_close(seen.y, torch.stack([state.y for state in states]), **close)
    logits = model(idx).logits
    torch.testing.assert_close(readout(model)(seen.x[-1]), logits, rtol=1e-9, atol=1e-10)
    check_lens(seen, logits)


def check_lens(seen: Any, logits: Tensor, rtol: float = 1e-6) -> None:
    """At the last stage the lens is the model's own distribution."""
    best = logits.double().softmax(-1).topk(3)
    assert torch.equal(seen.lens.ids[-1], best.indices)
    torch.testing.assert_close(seen.lens.probabilities[-1].double(), best.values, rtol=rtol, atol=1e-8)


@every_model
def test_states_are_those_of_a_plain_loop(name: str, preset: str) -> None:
    check(make(name, preset))


@every_choice
def test_states_are_those_of_a_plain_loop_for_config_choices(choice: str) -> None:
    check(make_choice(choice))


def test_stages_have_names() -> None:
    seen = watch(make("softmax-exp-euler", n_layer=2), tokens(1, 3))
    names = ["embedding", "layer 1, attention", "layer 1, MLP", "layer 2, attention", "layer 2, MLP"]
    assert [stage.name for stage in seen.stages] == names
    bare = watch(make_choice("no-mlp"), tokens(1, 3))
    assert bare.stages == (Stage(0, "embedding"), *(Stage(k, "attention") for k in (1, 2, 3)))
    assert watch is watching.watch
    assert "watch" in dir(sf)


@pytest.mark.parametrize("stepper", sf.nn.STEPPERS)
@pytest.mark.parametrize("share_layers", [False, True])
@torch.no_grad()
def test_encoders(stepper: str, share_layers: bool) -> None:
    encoder = sf.nn.Encoder(16, 2, 3, stepper, share_layers=share_layers).double().eval()
    perturb_(encoder)
    x = torch.randn(2, 5, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    seen = watch(encoder, x, attention=[4])
    _, states = encoder(x, return_states=True)
    torch.testing.assert_close(seen.x[2::2], torch.stack([state.x for state in states]))
    torch.testing.assert_close(seen.x[0], x)
    if encoder.cfg.has_momentum:
        torch.testing.assert_close(seen.y[2::2], torch.stack([state.y for state in states]))
    torch.testing.assert_close(seen.attention.sum(-1), torch.ones_like(seen.attention[..., 0]))
    assert (seen.attention > 0).all()  # every token sees all
    assert "advance" not in vars(encoder)
    with pytest.raises(InputError, match="watch with lens=0"):
        watch(encoder, x, lens=1)


# --- the lens


def test_lens_knows_the_token_that_came_next() -> None:
    idx = tokens(2, 6)
    lens = watch(make("softmax-yuriiformer"), idx, lens=SIZE["vocab_size"]).lens
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
    whole, guesses = watch(model, idx, lens=2).lens, record._guesses

    def counted(logits: Tensor, *rest: Any) -> Any:
        sizes.append(logits.numel())
        return guesses(logits, *rest)

    monkeypatch.setattr(record, "LARGEST", 3 * SIZE["vocab_size"])
    monkeypatch.setattr(record, "_guesses", counted)
    parts = watch(model, idx, lens=2).lens
    assert torch.equal(parts.ids, whole.ids)
    assert max(sizes) == 3 * SIZE["vocab_size"]


# --- attention rows


def rows_of(model: Any, idx: Tensor, attention: Any = True) -> Tensor:
    found: Tensor = watch(model, idx, attention=attention).attention
    return found


def test_rows_are_kept_on_request_only() -> None:
    model, idx = make("softmax-baseline"), tokens(2, 8)
    assert watch(model, idx).attention is None
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
    field: Any = model.layers()[0].attend(ahead(model, watch(model, idx), 0).x, view_of(model, idx))
    torch.testing.assert_close(rows @ field.v, field.mean)


@pytest.mark.parametrize("causal", [True, False])
def test_linear_rows_are_means_of_scores(causal: bool) -> None:
    idx = tokens(2, 8)
    ours = make("linear-exp-euler", causal=causal, mu=0.0, start_momentum="embedded")
    x, y, *_ = ahead(ours, watch(ours, idx), 0)
    torch.testing.assert_close(
        rows_of(ours, idx)[0, :, 0] @ y, ours.layers()[0].attend(x, view_of(ours, idx)).velocity(y)
    )
    baseline = make("linear-baseline", causal=causal)
    layer, x = baseline.layers()[0], ahead(baseline, watch(baseline, idx), 0).x
    v = layer.attention.qk(layer.norm(x)).chunk(3, -1)[2].unflatten(-1, (SIZE["n_head"], -1)).transpose(1, 2)
    mixed = (rows_of(baseline, idx)[0] @ v).transpose(1, 2).flatten(-2)
    whole = layer.attend(x, view_of(baseline, idx)).first_order()
    torch.testing.assert_close(mixed, F.linear(whole, torch.linalg.inv(layer.attention.out.weight)))


# --- a model is left as it was, wrong questions get an answer


def test_dropout_is_off_and_modes_come_back() -> None:
    model = make_choice("dropout").train()
    model.blocks[1].eval()
    first, second = (watch(model, tokens(1, 6)).x for _ in range(2))
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
        watch(make("softmax-baseline"), tokens(1, length), **options)
    with pytest.raises(InputError, match=r"Linear cannot be watched on \(1, 4\) tokens"):
        watch(nn.Linear(2, 2), tokens(1, 4))


# --- models of Hugging Face


@pytest.mark.parametrize("name", ["gpt2", "llama"])
@torch.no_grad()
def test_others_by_their_hidden_states(name: str) -> None:
    pytest.importorskip("transformers", reason="needs the hf extra")
    from tests.inertia.cases import family

    model, idx = family(name).double(), tokens(2, 6, vocab=40)
    kept = model.config._attn_implementation
    seen = watch(model, idx, attention=[1, 4], lens=3)
    assert model.config._attn_implementation == kept
    output = model(idx, output_hidden_states=True)
    assert [stage.name for stage in seen.stages] == ["embedding", "layer 1", "layer 2", "layer 3"]
    torch.testing.assert_close(seen.x[:3], torch.stack(output.hidden_states[:3]))
    norm = model.transformer.ln_f if name == "gpt2" else model.model.norm
    # kept from before the norm, which llama computes in float32
    torch.testing.assert_close(norm(seen.x[-1]), output.hidden_states[-1], rtol=1e-5, atol=1e-6)
    assert seen.y is None
    assert seen.physics.hamiltonian.startswith("No Hamiltonian")
    check_lens(seen, output.logits, rtol=1e-5)
    torch.testing.assert_close(seen.attention.sum(-1), torch.ones(3, 2, 2, 2, dtype=torch.float64))
    assert seen.attention.shape[-1] == 6
    assert not norm._forward_hooks
    # logits that are not norm and head alone have no lens
    model.register_forward_hook(lambda module, args, out: out.__class__(**{**out, "logits": 2 * out.logits}))
    assert len(watch(model, idx).x) == 4
    with pytest.raises(InputError, match="no logits that are its final norm and head applied to its states"):
        watch(model, idx, lens=1)


def test_ours_in_the_form_of_hugging_face_keeps_its_momenta() -> None:
    hf = pytest.importorskip("sympformer.hf", reason="needs the hf extra")
    model, idx = make("softmax-ab2"), tokens(1, 6)
    seen, twin = watch(model, idx), watch(hf.SympFormerForCausalLM.from_language_model(model), idx)
    assert torch.equal(seen.x, twin.x)
    assert torch.equal(seen.y, twin.y)
    assert seen.stages == twin.stages


# --- energies are those of the flows' Hamiltonians, forces their gradients; ranks and clusters are what they should be
TIED: dict[str, Any] = {"value": "tied", "mobility": "spd", "mu": 0.0, "start_momentum": "embedded"}


def positions(model: Any, seen: Record, k: int) -> tuple[Tensor, Tensor]:
    """What attention of layer k starts from: normalised positions, and momenta."""
    state = ahead(model, seen, k)
    return model.layers()[k].norm(state.x), state.y


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("form", ["own", "paper"])
def test_softmax_energies_are_those_of_the_flow(form: str, causal: bool) -> None:
    model, idx = make("softmax-exp-euler", form=form, causal=causal, **TIED), tokens(2, 6)
    seen = watch(model, idx)
    physics = seen.physics
    for k, layer in enumerate(model.layers()):
        A, B = (matrix.detach() for matrix in layer.attention.matrices())
        system = flows.SoftmaxAttention(A, B, causal=causal, form=form)  # type: ignore[arg-type]
        x, y = positions(model, seen, k)
        torch.testing.assert_close(physics.kinetic[k].sum(-1), system.kinetic(x, y))
        factor = 2 if form == "own" else 1  # a token's own potential is -z, its share of the sum's -z/2
        torch.testing.assert_close(physics.potential[k].sum(-1), factor * system.potential(x))
        torch.testing.assert_close(physics.potential[k], -physics.z[k, :, 0] / (1 if form == "own" else 2))
        if form == "own":
            total = physics.kinetic[k] + physics.potential[k]
            torch.testing.assert_close(total, system.own_hamiltonian(x, y))


def test_without_z_and_rho_the_energy_is_newtons() -> None:
    """x' = y and y' = force are the flow of |y|^2 / 2 - log z."""
    options = TIED | {"form": "newton", "mobility": "identity"}
    model, idx = make("softmax-exp-euler", **options), tokens(2, 6)
    seen = watch(model, idx)
    physics = seen.physics
    for k, layer in enumerate(model.layers()):
        x, y = (t.detach() for t in positions(model, seen, k))
        x.requires_grad_()
        A, _ = layer.attention.matrices()
        scores = (x @ A.detach() @ x.detach().mT).masked_fill(torch.ones(6, 6).triu(1).bool(), -torch.inf)
        log_z = scores.logsumexp(-1) - torch.arange(1, 7).log()
        torch.testing.assert_close(physics.z[k, :, 0].log(), log_z.detach())
        torch.testing.assert_close(physics.kinetic[k], y.square().sum(-1) / 2)
        torch.testing.assert_close(physics.potential[k], -log_z.detach())
        log_z.sum().backward()
        want = torch.cosine_similarity(y, x.grad, dim=-1)  # type: ignore[arg-type]
        torch.testing.assert_close(physics.cosine[k], want, rtol=1e-6, atol=1e-8)


def test_the_cosine_is_between_momentum_and_the_gradient_of_the_energy() -> None:
    model, idx = make("softmax-ab2", form="paper", causal=False, **TIED), tokens(2, 6)
    seen = watch(model, idx)
    for k, layer in enumerate(model.layers()):
        A, B = (matrix.detach() for matrix in layer.attention.matrices())
        x, y = (t.detach().requires_grad_() for t in positions(model, seen, k))
        flows.SoftmaxAttention(A, B, form="paper").hamiltonian(x, y).sum().backward()
        assert x.grad is not None
        expected = torch.cosine_similarity(y, -x.grad, dim=-1)
        torch.testing.assert_close(seen.physics.cosine[k], expected.detach(), rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("causal", [True, False])
def test_linear_energies_are_those_of_the_flow(causal: bool) -> None:
    options: dict[str, Any] = {"value": "spd", "mu": 0.0, "start_momentum": "embedded"}
    model, idx = make("linear-exp-euler", causal=causal, **options), tokens(2, 6)
    seen = watch(model, idx)
    for k, layer in enumerate(model.layers()):
        A, V = (matrix.detach() for matrix in layer.attention.matrices()[::2])
        system = flows.LinearAttention(A, V, causal=causal)
        x, y = positions(model, seen, k)
        torch.testing.assert_close(seen.physics.kinetic[k].sum(-1), system.kinetic(x, y))
        torch.testing.assert_close(seen.physics.potential[k].sum(-1), system.potential(x))
    assert seen.physics.z is None


SENTENCES: list[tuple[str, dict[str, Any], str]] = [
    ("softmax-baseline", {}, "No Hamiltonian: a gradient step"),
    ("softmax-yuriiformer", {}, "No Hamiltonian: a Nesterov step"),
    ("softmax-exp-euler", {}, "Free matrices, where a Hamiltonian needs A x and a symmetric B"),
    ("softmax-exp-euler", {"form": "newton"}, "Free matrices, where a Hamiltonian needs A x"),
    ("linear-exp-euler", {}, "Free matrices, where a Hamiltonian needs symmetric A and V"),
    ("softmax-exp-euler", {**TIED}, "The Hamiltonian of each token by itself"),
    ("softmax-exp-euler", {**TIED, "form": "paper"}, "The Hamiltonian of the softmax system, row by row"),
    ("softmax-exp-euler", {**TIED, "form": "paper", "causal": False}, "The Hamiltonian of the softmax system, with f"),
    ("linear-exp-euler", {"value": "spd"}, "The Hamiltonian of the linear system, row by row"),
]


@pytest.mark.parametrize(("name", "options", "start"), SENTENCES)
def test_whose_energies_they_are_is_said(name: str, options: dict[str, Any], start: str) -> None:
    physics = watch(make(name, **options), tokens(1, 4)).physics
    assert physics.hamiltonian.startswith(start)
    assert (physics.kinetic is None) == (physics.potential is None) == start.startswith("No Hamiltonian")


def test_without_momentum_there_is_no_cosine_and_at_rest_it_is_not_a_number() -> None:
    assert watch(make("softmax-baseline"), tokens(1, 4)).physics.cosine is None
    cosine = watch(make("softmax-yuriiformer"), tokens(1, 4)).physics.cosine
    assert cosine[0].isnan().all()  # the momentum starts at zero
    assert (cosine[1:].abs() <= 1).all()


def test_scalars_and_sizes_are_the_models_own() -> None:
    model = make("softmax-exp-euler")
    seen = watch(model, tokens(2, 5))
    assert list(seen.physics.scalars) == model.layer_scalars()
    assert {"h_x", "h_y", "alpha"} <= set(seen.physics.scalars[0])
    torch.testing.assert_close(seen.size_x, seen.x.norm(dim=-1) / SIZE["d_model"] ** 0.5)
    torch.testing.assert_close(seen.size_y, seen.y.norm(dim=-1) / SIZE["d_model"] ** 0.5)


def test_effective_rank_counts_equal_directions() -> None:
    axes = torch.eye(6, dtype=torch.float64)
    for rank in (1, 2, 5):
        both_ways = torch.cat([axes[:rank], -axes[:rank]]) + 3.0  # the mean is taken off
        torch.testing.assert_close(effective_rank(both_ways), torch.tensor(float(rank), dtype=torch.float64))
    assert effective_rank(torch.ones(2, 4, 3)).tolist() == [0.0, 0.0]


def test_clusters_by_a_plain_walk() -> None:
    x = torch.randn(3, 40, 3, generator=torch.Generator().manual_seed(0))
    for one, found in zip(x, clusters(x, 0.9), strict=True):
        left, count = set(range(40)), 0
        while left:
            count, front = count + 1, [left.pop()]
            while front:
                i = front.pop()
                near = {j for j in left if torch.cosine_similarity(one[i], one[j], dim=0) >= 0.9}
                left -= near
                front += near
        assert found == count
    assert clusters(torch.zeros(3, 2), 0.9).item() == 3  # no direction, no neighbours
