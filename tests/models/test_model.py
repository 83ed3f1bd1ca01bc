"""The model as a whole: config, variants, groups, stability, training steps, generation, description."""

import json
import math
from typing import Any

import pytest
import torch

import sympformer as sf
from sympformer.errors import InputError
from sympformer.models import PRESETS, VARIANTS, ModelConfig, perturb_
from sympformer.models.describe import oracle_calls, parameter_counts
from sympformer.models.scalars import LearnedScalars, ScalarSpec
from tests.models.cases import CHOICES, SIZE, every_choice, every_model, make, make_choice, tokens

# --- config and variants


def test_fourteen_variants() -> None:
    assert len(VARIANTS) == 14
    kinds = ("baseline", "yuriiformer", "plain-euler", "presymp-euler", "exp-euler", "ab2", "etd-ab2")
    assert set(VARIANTS) == {f"{a}-{k}" for a in ("softmax", "linear") for k in kinds}
    assert PRESETS == ("tuned", "paper")


def test_presets_hold_the_papers_and_our_starts() -> None:
    paper = sf.variant("softmax-plain-euler", preset="paper")
    assert (paper.h_x, paper.h_y, paper.c_log, paper.c_lin, paper.factor, paper.gamma) == (
        0.1,
        0.1,
        3.0,
        1e-4,
        0.9,
        1.0,
    )
    assert (paper.form, paper.momentum_gain, paper.heads) == ("paper", 1.0, "averaged")
    assert sf.variant("linear-baseline", preset="paper").h_x == 0.25
    assert sf.variant("linear-presymp-euler", preset="paper").h_x == 0.01
    yurii = sf.variant("softmax-yuriiformer", preset="paper")
    assert (yurii.mu, yurii.beta, yurii.gamma, yurii.momentum_gain) == (0.9, 0.9, 1.0, 1.0)
    tuned = sf.variant("softmax-exp-euler")
    assert (tuned.h_x, tuned.h_y, tuned.mu, tuned.momentum_gain) == (0.05, 1.0, 0.001, 0.03)
    assert (tuned.factor, tuned.beta, tuned.mlp_look_ahead) == (0.3, 0.3, 0.1)
    assert (tuned.form, tuned.value, tuned.mobility) == ("own", "free", "free")
    yurii = sf.variant("softmax-yuriiformer")
    assert (yurii.mu, yurii.beta, yurii.momentum_gain) == (0.1, 0.3, 0.03)


@every_choice
def test_config_round_trips(choice: str, tmp_path: Any) -> None:
    name, overrides = CHOICES[choice]
    cfg = sf.variant(name, **overrides)
    assert ModelConfig.from_text(cfg.to_json()) == ModelConfig.from_text(cfg.to_yaml()) == cfg
    for suffix in (".json", ".yaml"):
        cfg.save(tmp_path / f"model{suffix}")
        assert ModelConfig.load(tmp_path / f"model{suffix}") == cfg
    assert json.loads(cfg.to_json())["architecture"] == cfg.architecture


BAD_CONFIGS: dict[str, tuple[dict[str, Any], str]] = {
    "heads": ({"n_head": 3}, "n_head must divide d_model"),
    "layers": ({"n_layer": 0}, "n_layer must be at least 1"),
    "name": ({"n_layers": 4}, "did you mean 'n_layer'"),
    "choice": ({"form": "papr"}, "did you mean 'paper'"),
    "type": ({"d_model": "64"}, "d_model must be of type int"),
    "truth": ({"n_layer": True}, "n_layer must be of type int"),
    "fraction": ({"beta": 1.0}, "strictly between 0 and 1"),
    "step": ({"h_x": 0.0}, "h_x must be positive"),
    "infinite": ({"gamma": math.inf}, "positive and finite"),
    "dropout": ({"dropout": 1.0}, "dropout must lie"),
    "tied multi": ({"value": "tied", "heads": "multi"}, "needs heads = 'averaged'"),
    "derived free": ({"mobility": "derived"}, "needs value = 'tied'"),
    "linear form": ({"attention": "linear", "form": "paper"}, "belongs to softmax"),
    "linear symplectic": ({"attention": "linear", "integrator": "symplectic_euler"}, "second scan"),
    "rk4": ({"integrator": "rk4"}, "unknown integrator 'rk4'"),
}


@pytest.mark.parametrize("case", BAD_CONFIGS)
def test_bad_configs_say_what_is_wrong(case: str) -> None:
    values, message = BAD_CONFIGS[case]
    with pytest.raises(InputError, match=message):
        ModelConfig.from_dict(values)


def test_bad_names_and_files(tmp_path: Any) -> None:
    with pytest.raises(InputError, match="did you mean 'softmax-exp-euler'"):
        sf.variant("softmax-expeuler")
    with pytest.raises(InputError, match="unknown preset"):
        sf.variant("softmax-ab2", preset="best")
    with pytest.raises(InputError, match="cannot read the model config"):
        ModelConfig.load(tmp_path / "missing.json")
    with pytest.raises(InputError, match="neither JSON nor YAML"):
        ModelConfig.from_text("{a: [")
    with pytest.raises(InputError, match="must hold named fields"):
        ModelConfig.from_text("[1, 2]")
    with pytest.raises(InputError, match="did you mean 'n_head'"):
        sf.variant("softmax-ab2").replace(n_heads=2)


# --- parameters


@every_model
def test_every_parameter_has_one_group(name: str, preset: str) -> None:
    model = make(name, preset)
    groups = model.parameter_groups()
    ids = [id(p) for group in groups.values() for p in group]
    assert sorted(ids) == sorted(id(p) for p in model.parameters())
    assert all(p.ndim == 2 for p in groups["matrix"] + groups["embedding"])
    assert all(p.ndim == 1 for p in groups["gain"] + groups["scalar"])
    assert sum(parameter_counts(model).values()) == sum(p.numel() for p in model.parameters())
    has_scalars = model.cfg.architecture != "gpt" or model.cfg.learn_steps
    assert bool(groups["scalar"]) == has_scalars


def test_scalars_start_where_told_and_stay_in_their_domain() -> None:
    scalars = LearnedScalars(
        {
            "h": ScalarSpec(1e-4, "positive"),
            "a": ScalarSpec(0.3, "fraction"),
            "fixed": ScalarSpec(2.0, "positive", False),
        }
    ).double()
    assert scalars.report() == pytest.approx({"h": 1e-4, "a": 0.3, "fixed": 2.0}, rel=1e-5)
    assert isinstance(scalars().fixed, float)
    with torch.no_grad():
        for parameter in scalars.parameters():
            parameter.sub_(30.0)
    assert scalars().h > 0
    assert 0 < scalars().a < 1


def test_every_learned_scalar_gets_a_gradient() -> None:
    for name in VARIANTS:
        model = make(name, n_layer=3)
        model(tokens(), targets=tokens(seed=9)).loss.backward()
        for scalar in model.parameter_groups()["scalar"]:
            assert scalar.grad is not None
        # the momentum factor of the first layer multiplies a momentum that is still zero; from the second on all count
        for block in list(model.blocks)[1:]:
            for parameter in block.scalars.parameters():  # type: ignore[union-attr]
                assert torch.count_nonzero(parameter.grad) == parameter.numel(), name  # type: ignore[arg-type]


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


# --- loss and steps


@every_model
def test_loss_equals_cross_entropy_of_the_logits(name: str, preset: str) -> None:
    model, idx, targets = make(name, preset), tokens(), tokens(seed=9)
    targets[0, :5] = -100
    out = model(idx, targets=targets)
    want = torch.nn.functional.cross_entropy(out.logits.flatten(0, 1), targets.flatten(), ignore_index=-100)
    torch.testing.assert_close(out.loss, want, rtol=1e-9, atol=1e-9)


def step_lowers_the_loss(model: Any) -> None:
    model.train()
    idx, targets = tokens(4), tokens(4, seed=9)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    before = model(idx, targets=targets).loss
    before.backward()
    optimizer.step()
    model.eval()
    assert model(idx, targets=targets).loss < before


@every_model
def test_one_step_lowers_the_loss(name: str, preset: str) -> None:
    step_lowers_the_loss(sf.build_model(sf.variant(name, preset=preset, **SIZE), seed=1))


@every_choice
def test_one_step_lowers_the_loss_for_config_choices(choice: str) -> None:
    name, overrides = CHOICES[choice]
    step_lowers_the_loss(sf.build_model(sf.variant(name, **(SIZE | overrides | {"dropout": 0.0})), seed=1))


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


@every_model
def test_perturbed_and_scaled_weights_stay_finite(name: str, preset: str) -> None:
    model = perturb_(make(name, preset, torch.float32), std=6.0)
    assert torch.isfinite(model(tokens()).logits).all()


@every_model
def test_bfloat16_is_near_float32(name: str, preset: str) -> None:
    model = sf.build_model(sf.variant(name, preset=preset, **SIZE), seed=1)
    exact = model(tokens(), targets=tokens(seed=9)).loss
    with torch.autocast("cpu", dtype=torch.bfloat16):
        rough = model(tokens(), targets=tokens(seed=9)).loss
    assert abs(rough.item() - exact.item()) < 0.05


# --- generation


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


def test_prompts_of_different_lengths_equal_prompts_alone() -> None:
    for name in ("softmax-presymp-euler", "linear-exp-euler"):
        model = make(name, "paper")
        prompts = [tokens(1, n, seed=n)[0] for n in (2, 7, 4)]
        together = generate(model, prompts, temperature=0.0)
        assert [len(text) for text in together] == [10, 15, 12]
        for prompt, text in zip(prompts, together, strict=True):
            assert torch.equal(generate(model, [prompt], temperature=0.0)[0], text)


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


def test_bad_inputs_to_the_model() -> None:
    model = make("softmax-exp-euler")
    with pytest.raises(InputError, match="must have shape"):
        model(torch.zeros(4, dtype=torch.long))
    with pytest.raises(InputError, match="the cache holds 2 texts, got 1"):
        model(tokens(1, 3), cache=model.new_cache(2))
    with pytest.raises(InputError, match="batch_size must be at least 1"):
        model.new_cache(0)


def test_cache_rows_can_be_selected() -> None:
    for name in ("softmax-exp-euler", "linear-exp-euler"):
        model, idx = make(name, "paper"), tokens(3, 10)
        cache = model.new_cache(3)
        model(idx[:, :6], cache=cache)
        cache.select(torch.tensor([2, 0]))
        got = model(idx[[2, 0], 6:], cache=cache).logits
        torch.testing.assert_close(got, model(idx[[2, 0]]).logits[:, 6:], rtol=1e-9, atol=1e-9)


# --- description


@every_model
def test_describe_tells_parameters_oracles_and_scalars(name: str, preset: str) -> None:
    model = make(name, preset)
    text = model.describe()
    total = sum(p.numel() for p in model.parameters())
    assert f"{total:,}" in text
    assert oracle_calls(model) == SIZE["n_layer"]
    rows = model.layer_scalars()
    assert len(rows) == SIZE["n_layer"]
    if model.cfg.architecture == "sympformer":
        assert rows[0]["h_x"] == pytest.approx(model.cfg.h_x, rel=1e-4)
        assert rows[2]["t"] == pytest.approx(model.cfg.t0 + 2 * model.cfg.h_x, rel=1e-4)
        assert ("alpha" in rows[0]) == (model.cfg.integrator != "plain_euler")
        assert "h_x" in text


# --- torch.compile


COMPILED = [(name, "aot_eager") for name in VARIANTS] + [
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
