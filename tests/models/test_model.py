"""The model as a whole: parameters and their groups, stability, bad inputs, description."""

import copy
import io
import math
import pickle
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
import torch

import sympformer as sf
from sympformer import ops
from sympformer.errors import DivergenceError, InputError
from sympformer.models import PRESETS, VARIANTS, LanguageModel
from sympformer.models.describe import kernel_passes, parameter_counts
from sympformer.nn import Scalars, ScalarSpec, View
from sympformer.nn.parts import merge_heads, split_heads
from tests.models.cases import SIZE, every_model, make, make_choice, tokens

# --- parameters


@every_model
def test_every_parameter_has_one_group(name: str, preset: str) -> None:
    model = make(name, preset)
    groups = model.parameter_groups()
    ids = [id(p) for group in groups.values() for p in group]
    assert sorted(ids) == sorted(id(p) for p in model.parameters())
    assert all(p.ndim == 2 for p in groups["matrix"] + groups["embedding"])
    assert all(p.ndim == 1 for p in groups["gain"])
    assert all(p.shape[1] == len(model.blocks) for p in groups["scalar"])
    assert sum(parameter_counts(model).values()) == sum(p.numel() for p in model.parameters())
    assert bool(groups["scalar"]) == (model.cfg.stepper != "gradient")


def test_scalars_start_where_told_and_stay_in_their_domain() -> None:
    specs = {
        "h": ScalarSpec(1e-4, "positive"),
        "a": ScalarSpec(0.3, "fraction"),
        "fixed": ScalarSpec(2.0, "positive", False),
    }
    scalars = Scalars(specs, 2).double()
    assert [list(row) for row in scalars.report()] == [["h", "a", "fixed"]] * 2
    for row in scalars.report():
        assert row == pytest.approx({"h": 1e-4, "a": 0.3, "fixed": 2.0}, rel=1e-5)
    assert isinstance(scalars()["fixed"], float)
    with torch.no_grad():
        for parameter in scalars.parameters():
            parameter.sub_(30.0)
    h, a = scalars()["h"], scalars()["a"]
    assert isinstance(h, torch.Tensor)
    assert isinstance(a, torch.Tensor)
    assert (h > 0).all()
    assert ((a > 0) & (a < 1)).all()


def test_every_learned_scalar_gets_a_gradient() -> None:
    for name in VARIANTS:
        model = make(name, n_layer=3)
        model(tokens(), targets=tokens(seed=9)).loss.backward()
        # the momentum factor of the first layer multiplies a momentum that is still zero; from the second on all count
        for scalars in model.parameter_groups()["scalar"]:
            assert scalars.grad is not None
            assert scalars.grad[:, 1:].all(), name


def test_seeded_start_is_repeatable_and_leaves_the_global_state_alone() -> None:
    cfg = sf.variant("softmax-ab2", **SIZE)
    state = torch.random.get_rng_state()
    a, b, c = sf.build_model(cfg, seed=5), sf.build_model(cfg, seed=5), sf.build_model(cfg, seed=6)
    assert torch.equal(state, torch.random.get_rng_state())
    assert all(torch.equal(p, q) for p, q in zip(a.parameters(), b.parameters(), strict=True))
    assert not torch.equal(a.tokens.weight, c.tokens.weight)


def test_fresh_models_start_near_uniform_guessing() -> None:
    for preset in PRESETS:
        for name in VARIANTS:
            model = sf.build_model(sf.variant(name, preset=preset, **SIZE), seed=0)
            loss = model(tokens(), targets=tokens(seed=9)).loss.item()
            assert abs(loss - math.log(SIZE["vocab_size"])) < 0.5, name


# --- stability

ADVERSARIAL: dict[str, torch.Tensor] = {
    "identical tokens": torch.zeros(2, 24, dtype=torch.long),
    "one token": torch.ones(1, 1, dtype=torch.long),
    "full block": tokens(),
}


@pytest.mark.parametrize("precision", ["float32", "bfloat16", "float16"])
@every_model
def test_no_nan_for_adversarial_inputs(name: str, preset: str, precision: str) -> None:
    for scale in (1.0, 30.0):
        model = sf.build_model(sf.variant(name, preset=preset, **SIZE), seed=1)
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.ndim == 2:
                    parameter.mul_(scale)
        for idx in ADVERSARIAL.values():
            model.zero_grad()
            with torch.autocast("cpu", dtype=getattr(torch, precision), enabled=precision != "float32"):
                loss = model(idx, targets=idx).loss
            loss.backward()
            assert torch.isfinite(loss)
            if precision != "float16" or scale == 1.0:  # float16 gradients need the loss scaling of a trainer
                assert all(torch.isfinite(p.grad).all() for p in model.parameters() if p.grad is not None)


def scaled(name: str, preset: str, times: float, matrices_only: bool = False) -> LanguageModel:
    model = make(name, preset, torch.float32)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 2 or not matrices_only:
                parameter.mul_(times)
    return model


@pytest.mark.parametrize(("times", "matrices_only"), [(1000.0, True), (30.0, False)], ids=["matrices", "everything"])
@every_model
def test_weights_of_any_size_stay_finite(name: str, preset: str, times: float, matrices_only: bool) -> None:
    """Also where a step of size zero would be divided by: raw scalars are scaled too."""
    model = scaled(name, preset, times, matrices_only)
    loss = model(tokens(1), targets=tokens(1)).loss
    loss.backward()
    assert torch.isfinite(loss)
    assert all(torch.isfinite(p.grad).all() for p in model.parameters() if p.grad is not None)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("name", ["softmax-baseline", "softmax-exp-euler", "linear-presymp-euler"])
def test_what_float16_cannot_hold_is_refused(name: str, temperature: float) -> None:
    """No bound helps a product of matrices that leaves the numbers of its dtype: nothing is drawn from what is left."""
    model = scaled(name, "full", 1000.0, matrices_only=True)
    with torch.autocast("cpu", dtype=torch.float16), pytest.raises(DivergenceError, match="too large for float16"):
        model.generate(tokens(1, T=4), 2, temperature=temperature)
    (text,) = model.generate(tokens(1, T=4), 2, temperature=temperature)  # float32 holds it
    assert len(text) == 6


@every_model
def test_bfloat16_is_near_float32(name: str, preset: str) -> None:
    model = sf.build_model(sf.variant(name, preset=preset, **SIZE), seed=1)
    exact = model(tokens(), targets=tokens(seed=9)).loss
    with torch.autocast("cpu", dtype=torch.bfloat16):
        rough = model(tokens(), targets=tokens(seed=9)).loss
    assert abs(rough.item() - exact.item()) < 0.05


def test_bad_inputs_to_the_model() -> None:
    model = make("softmax-exp-euler")
    with pytest.raises(InputError, match="must have shape"):
        model(torch.zeros(4, dtype=torch.long))
    with pytest.raises(InputError, match="the cache holds 2 texts, got 1"):
        model(tokens(1, 3), cache=model.new_cache(2))
    with pytest.raises(InputError, match="batch_size must be at least 1"):
        model.new_cache(0)


# --- description


@every_model
def test_describe_tells_parameters_oracles_and_scalars(name: str, preset: str) -> None:
    model = make(name, preset)
    text = model.describe()
    total = sum(p.numel() for p in model.parameters())
    assert f"{total:,}" in text
    form = model.cfg.to_dict().get("form", "own")
    passes = (2 if form == "paper" else 1) * SIZE["n_layer"]
    passes -= name.startswith("linear") and model.cfg.stepper == "hamiltonian"  # its first layer, at rest
    assert kernel_passes(model) == passes
    assert f"{passes} a forward pass" in text
    rows = model.layer_scalars()
    assert len(rows) == SIZE["n_layer"]
    if model.cfg.stepper == "hamiltonian":
        assert model.cfg.h_x is not None
        assert rows[0]["h_x"] == pytest.approx(model.cfg.h_x, rel=1e-4)
        assert rows[2]["t"] == pytest.approx(1 + 2 * model.cfg.h_x, rel=1e-4)
        assert ("alpha" in rows[0]) == (model.cfg.integrator != "plain_euler")
        assert "h_x" in text


# --- kernel passes, counted where kernels are called


def passes_of(call: Callable[[], object]) -> int:
    with ops.count_passes() as count:
        call()
    return count.passes


@pytest.mark.parametrize("door", ["open", "shut"])
@every_model
def test_a_layer_makes_the_passes_that_are_stated(name: str, preset: str, door: str) -> None:
    """own 1, paper 2, linear 1, classical 1: in a full pass, in training, in any chunk of a cached one."""
    model, idx = make(name, preset), tokens()
    per_layer = 2 if model.cfg.to_dict().get("form") == "paper" else 1
    want, cache = per_layer * SIZE["n_layer"], model.new_cache(2)
    with ops.plain() if door == "shut" else nullcontext():
        assert passes_of(lambda: model(idx)) == want
        assert passes_of(lambda: model(idx, targets=idx).loss.backward()) == want
        for chunk in idx.split((5, 1, 18), 1):
            assert passes_of(lambda chunk=chunk: model.hidden(chunk, cache)) == want  # type: ignore[misc]


def test_an_added_pass_is_seen() -> None:
    """A layer that asks for its kernel twice would be counted twice."""
    model = make("softmax-plain-euler")
    block: Any = model.blocks[0]

    def ask_again(module: object, args: object, bar: torch.Tensor) -> None:
        block.attention(bar, View.of(True, 0, bar.shape[1], bar.device, bar.dtype), block.attention.matrices())

    block.norm.register_forward_hook(ask_again)
    assert passes_of(lambda: model(tokens())) == SIZE["n_layer"] + 1


# --- models are plain objects


@every_model
def test_models_can_be_pickled_copied_and_saved(name: str, preset: str) -> None:
    model = make(name, preset)
    want, file = model(tokens()).logits, io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    saved = torch.load(file, weights_only=False)
    for twin in (pickle.loads(pickle.dumps(model)), copy.deepcopy(model), saved):
        assert torch.equal(twin(tokens()).logits, want)
        ours, copies = (m.generate(tokens(1, 4), 3, seed=1) for m in (model, twin))
        assert torch.equal(ours, copies)  # type: ignore[arg-type]


def test_a_linear_flow_at_rest_has_no_attention_in_its_first_layer() -> None:
    """Its velocity is a sum of momenta and its pull a product of them: that pass is not counted."""
    last = tokens(1)
    edited = last.clone()
    edited[0, 0] = (last[0, 0] + 1) % SIZE["vocab_size"]
    for start, passes in (("zero", 0), ("embedded", 1)):
        model = make("linear-exp-euler", n_layer=1, transport="none", start_momentum=start)
        moved = (model(edited).logits - model(last).logits)[0, 1:].abs().max()
        assert (kernel_passes(model), bool(moved > 1e-6)) == (passes, bool(passes))


def test_merge_heads_undoes_split_heads() -> None:
    x = torch.randn(2, 5, 12)
    assert torch.equal(merge_heads(split_heads(x, 3)), x)


@every_model
def test_loss_equals_cross_entropy_of_the_logits(name: str, preset: str) -> None:
    model, idx, targets = make(name, preset), tokens(), tokens(seed=9)
    targets[0, :5] = -100
    out = model(idx, targets=targets)
    want = torch.nn.functional.cross_entropy(out.logits.flatten(0, 1), targets.flatten(), ignore_index=-100)
    torch.testing.assert_close(out.loss, want, rtol=1e-9, atol=1e-9)


def test_dropout_acts_in_training_only() -> None:
    model = make_choice("dropout")
    idx = tokens()
    assert torch.equal(model(idx).logits, model(idx).logits)
    model.train()
    assert not torch.equal(model(idx).logits, model(idx).logits)


def test_shared_layers_have_one_set_of_weights() -> None:
    shared, apart = make_choice("shared"), make("softmax-etd-ab2")
    assert len(shared.blocks) == 1
    assert len(shared.layer_scalars()) == len(apart.layer_scalars()) == SIZE["n_layer"]
    assert sum(parameter_counts(shared).values()) < sum(parameter_counts(apart).values())


# --- torch.compile


COMPILED = [(name, "eager") for name in VARIANTS] + [
    # code generation takes half a minute each: one of every kind
    (name, "inductor")
    for name in ("softmax-baseline", "softmax-yuriiformer", "softmax-exp-euler", "linear-etd-ab2")
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "backend"), COMPILED)
def test_compiled_equals_eager_and_trains(name: str, backend: str) -> None:
    import warnings

    import torch._dynamo as dynamo

    model = make(name, dtype=torch.float32, n_layer=2).train()
    idx, targets = tokens(4), tokens(4, seed=9)
    eager = model(idx, targets=targets)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the compiler's own deprecations
        dynamo.reset()  # else the models of earlier tests use up the recompilation limit, and all runs eagerly
        dynamo.utils.counters.clear()
        compiled = torch.compile(model, backend=backend)
        out = compiled(idx, targets=targets)
        assert dynamo.utils.counters["frames"]["ok"] > 0
        assert not dynamo.utils.counters["graph_break"], "the forward pass must be one graph"
        torch.testing.assert_close(out.loss, eager.loss, rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(out.logits, eager.logits, rtol=1e-3, atol=1e-4)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        losses = []
        for _ in range(3):
            optimizer.zero_grad()
            loss = compiled(idx, targets=targets).loss
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    assert losses[2] < losses[0]
