"""What the ladder of comparisons adds to models: transport, a second table, drift, switches."""

from typing import Any

import pytest
import torch

import sympformer as sf
from sympformer.errors import InputError
from sympformer.flows import LogLinear
from sympformer.models import LanguageModel
from sympformer.nn.layer import SHARE, WEIGHT
from sympformer.nn.scalars import ScalarSpec
from tests.models.cases import BARE, make, tokens

# --- under the norm on the momentum the Euler schemes are one family of functions; under "drift" they are not

EULER = ("plain_euler", "presymp_euler", "exp_euler")
START: dict[str, Any] = {"start_momentum": "embedded"}


def set_scalars(model: LanguageModel, k: int, **values: float) -> None:
    """Put learned scalars of layer k at these values."""
    with torch.no_grad():
        for name, value in values.items():
            spec = model.scalars.specs[name]
            place = model.scalars.names[spec.domain].index(name)
            model.scalars.get_parameter(spec.domain)[place, k] = ScalarSpec(value, spec.domain).raw()


def schemes_of_equal_weights(bound: str) -> list[LanguageModel]:
    """Models that differ in the scheme alone: weights are equal, and so is zeta_2 / zeta_1 of every layer."""
    models = [make("softmax-exp-euler", integrator=scheme, bound=bound, **START) for scheme in EULER]
    shared = {name: value for name, value in models[0].state_dict().items() if not name.startswith("scalars.")}
    for model in models:
        model.load_state_dict(shared, strict=False)
    h_x, c_log, c_lin = 0.3, 1.0, 0.2
    plain, presymp, exp = models
    for k in range(len(plain.blocks)):
        t, h_y = 1.0 + k * h_x, 0.2 + 0.1 * k
        damping = LogLinear(c_log, c_lin, 1.0)
        ratio = float(damping.weight(t, h_y) / damping.sigma(t, h_y))
        alpha = c_log / t + c_lin
        set_scalars(plain, k, h_x=h_x, factor=0.5, h_y=0.5 * ratio)
        set_scalars(presymp, k, h_x=h_x, c_log=c_log, c_lin=c_lin, h_y=ratio / (1 + alpha * ratio))  # h / (1 - alpha h)
        set_scalars(exp, k, h_x=h_x, c_log=c_log, c_lin=c_lin, h_y=h_y)
    return models


@torch.no_grad()
@pytest.mark.parametrize(("bound", "one"), [("momentum", True), ("drift", False)])
def test_the_euler_schemes_are_one_family_under_the_norm_and_three_under_drift(bound: str, one: bool) -> None:
    """LN(zeta_1 y + zeta_2 G) depends on zeta_2 / zeta_1 alone, so that the damping cannot be seen."""
    first, *others = (model(tokens()).logits for model in schemes_of_equal_weights(bound))
    spread = first.std()
    for other in others:
        difference = (other - first).abs().max() / spread
        assert difference < 1e-3 if one else difference > 0.1


@torch.no_grad()
def test_multistep_schemes_differ_under_drift_too() -> None:
    models = [make("softmax-exp-euler", integrator=scheme, bound="drift", **START) for scheme in
              ("exp_euler", "ab2", "etd_ab2")]  # fmt: skip
    for model in models[1:]:
        model.load_state_dict(models[0].state_dict())
    logits = [model(tokens()).logits for model in models]
    for i, j in ((0, 1), (0, 2), (1, 2)):
        assert (logits[i] - logits[j]).abs().max() > 1e-3 * logits[i].std()


@torch.no_grad()
def test_drift_keeps_the_momentum_raw_up_to_the_cap() -> None:
    """Its root mean square differs from token to token, where a norm would make all the same."""
    for name in ("softmax-exp-euler", "softmax-yuriiformer"):
        states: list[Any] = []

        def call(layer: Any, state: Any, view: Any, own: Any, k: int, states: list[Any] = states) -> Any:
            states.append(layer(state, view, own))
            return states[-1]

        make(name, bound="drift").hidden(tokens(), call=call)
        sizes = torch.stack([state.y.square().mean(-1).sqrt() for state in states])
        assert sizes.max() <= 1 + 1e-12
        assert sizes.std() > 1e-3


# --- transport and the second table


@pytest.mark.parametrize("name", sf.VARIANTS)
def test_the_presets_give_all_steppers_the_same(name: str) -> None:
    def ahead(preset: str, **options: Any) -> tuple[str, str | None]:
        cfg = sf.variant(name, preset, **options)
        return cfg.second_table, cfg.transport

    assert ahead("tuned") == ahead("modern") == ("every_layer", "positions")
    assert ahead("paper") == ahead("paper-spd") == ("none", "none")
    assert ahead("tuned", causal=False) == ("every_layer", None)  # upwind needs a direction
    tuned = sf.variant(name)
    assert tuned.tie_head
    assert tuned.bound == ("none" if tuned.stepper == "gradient" else "momentum")  # the classical block is the baseline


@pytest.mark.parametrize("stepper", sf.nn.STEPPERS)
def test_encoders_have_what_of_it_fits(stepper: str) -> None:
    full, causal = (sf.nn.Encoder(16, 2, 2, stepper, causal=causal) for causal in (False, True))
    assert (full.cfg.transport, causal.cfg.transport) == (None, "positions")
    for encoder in (full, causal):
        assert all((part.second, part.share_y) == (None, None) for part in encoder.layers())
        assert all((part.share_x is None) == (encoder is full) for part in encoder.layers())


@torch.no_grad()
def test_where_they_start() -> None:
    model = sf.build_model(
        sf.variant("softmax-exp-euler", transport="both", second_table="every_layer", n_layer=2, vocab_size=64), seed=0
    )
    for part in model.layers():
        assert torch.allclose(part.second(), torch.tensor(WEIGHT))
        for share in (part.share_x, part.share_y):
            assert torch.allclose(share(), torch.tensor(SHARE))


def test_a_second_table_has_as_many_parameters_as_an_untied_head() -> None:
    def parameters(**options: Any) -> int:
        cfg = sf.variant("softmax-baseline", **BARE | options)
        return sum(p.numel() for p in sf.build_model(cfg).parameters())

    plain = parameters()
    table, head = parameters(second_table="every_layer") - plain, parameters(tie_head=False) - plain
    assert table == head + 4 * 64  # and a weight for every layer and channel


@torch.no_grad()
@pytest.mark.parametrize(("name", "tokens_kept"), [("softmax-exp-euler", 64), ("linear-exp-euler", 1)])
def test_a_memory_of_constant_size_stays_one(name: str, tokens_kept: int) -> None:
    """Softmax attention keeps rows of all tokens, in buffers of 64 at first, and so does transport; else one token."""
    both = [make(name, transport=transport) for transport in ("both", "none")]
    cache, plain = (model.new_cache(2) for model in both)
    for model, memory in zip(both, (cache, plain), strict=True):
        model.hidden(tokens(T=12), memory)
    one_token = 2 * 2 * 16 * 8  # x and y of two rows in float64
    assert cache.nbytes == plain.nbytes + 3 * tokens_kept * one_token
    assert cache.layers[0].croppable == plain.layers[0].croppable == (tokens_kept > 1)


@torch.no_grad()
@pytest.mark.parametrize("transport", ["positions", "both"])
def test_tokens_are_forgotten_one_by_one(transport: str) -> None:
    model, ids = make("softmax-exp-euler", transport=transport), tokens(T=12)
    cache = model.new_cache(2)
    want = model(ids).logits
    model(torch.cat((ids[:, :7], ids[:, :4]), 1), cache=cache)  # four guesses that are wrong
    for length in (7, 11, 1, 0):
        cache.crop(length)
        assert (model(ids[:, length:], cache=cache).logits - want[:, length:]).abs().max() < 1e-12


@torch.no_grad()
def test_the_last_token_alone_cannot_be_forgotten() -> None:
    model = make("linear-exp-euler", transport="positions")
    cache = model.new_cache(2)
    cache.crop(0)  # there is nothing yet
    model(tokens(T=6), cache=cache)
    with pytest.raises(InputError, match="cannot forget single tokens"):
        cache.crop(3)


@torch.no_grad()
@pytest.mark.parametrize("padded", [False, True])
def test_a_mask_of_what_tokens_see_goes_with_a_cache(padded: bool) -> None:
    """Three endings of one remembered text: each has the text's last token before it, not the ending beside it."""
    model, text, ends = make("softmax-exp-euler", transport="both"), tokens(T=6), tokens(T=3, seed=8)
    real = torch.ones(2, 6, dtype=torch.bool)
    real[0, 4:] = real[1, 0] = not padded
    cache = model.new_cache(2)
    model(text, cache=cache, key_padding_mask=~real if padded else None)
    seen = torch.cat((torch.ones(3, 6, dtype=torch.bool), torch.eye(3, dtype=torch.bool)), 1).expand(2, 1, 3, 9)
    places = real.sum(1, keepdim=True).expand(2, 3)
    got = model(ends, cache=cache, mask=seen, position_ids=places).hidden
    for row in range(2):
        for i in range(3):
            alone = model(torch.cat((text[row, real[row]], ends[row, i : i + 1]))[None]).hidden
            assert (got[row, i] - alone[0, -1]).abs().max() < 1e-12


@torch.no_grad()
def test_a_text_goes_on_behind_masked_padding() -> None:
    model, ids = make("softmax-exp-euler", transport="both"), tokens(1, 7)
    padding = torch.tensor([[False, False, False, True]])
    cache = model.new_cache(1)
    out = model(ids[:, :4], cache=cache, key_padding_mask=padding, mask=torch.ones(1, 1, 4, 4, dtype=torch.bool))
    assert not out.hidden[padding].any()
    got = model(ids[:, 4:], cache=cache).hidden
    want = model(torch.cat((ids[:, :3], ids[:, 4:]), 1)).hidden[:, 3:]
    assert (got - want).abs().max() < 1e-12


@torch.no_grad()
def test_a_mask_of_what_tokens_see_does_not_go_with_a_memory_of_sums() -> None:
    model, ids = make("linear-exp-euler", transport="positions"), tokens(T=6)
    seen, cache = torch.ones(2, 1, 6, 6, dtype=torch.bool), model.new_cache(2)
    with pytest.raises(InputError, match="cannot hide some of them later"):
        model(ids, cache=cache, mask=seen)
    assert cache.nbytes == 0
    assert (model(ids, mask=seen).hidden - model(ids).hidden).abs().max() < 1e-12


@torch.no_grad()
def test_tables_are_asked_by_id_beside_embeddings() -> None:
    model = make("softmax-exp-euler", second_table="every_layer", start_momentum="embedded")
    ids = tokens(T=7)
    vectors = model.tokens(ids)
    assert torch.equal(model(ids, inputs_embeds=vectors).hidden, model(ids).hidden)
    with pytest.raises(InputError, match="give the token ids beside inputs_embeds"):
        model(None, inputs_embeds=vectors)
    ids[1, 3] = -1  # no token: tables say nothing of it
    changed = model(ids, inputs_embeds=vectors).hidden
    assert torch.equal(changed[1, :3], model(tokens(T=7)).hidden[1, :3])
    assert not torch.equal(changed[1, 3], model(tokens(T=7)).hidden[1, 3])
