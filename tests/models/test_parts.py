"""Newer parts beside their slow twins, and whole models beside those of transformers."""

import math
import re
from pathlib import Path
from typing import Any, get_args

import pytest
import torch
from torch import Tensor

import sympformer as sf
from sympformer.errors import InputError
from sympformer.flows import LogLinear
from sympformer.models import LanguageModel, perturb_
from sympformer.nn import ATTENTIONS, MLPS, NORMS, POSITIONS, STEPPERS, Rotation, StackConfig, View
from sympformer.nn.layer import SHARE
from sympformer.nn.options import BoundKind, Form, Heads, Splitting
from sympformer.nn.parts import RMSNorm, mlp
from sympformer.nn.positions import positions
from sympformer.nn.scalars import ScalarSpec
from tests.models.cases import BARE, PARTS, SIZE, make, make_choice, tokens

# --- rotary positions


def turned_by_loops(t: Tensor, places: Tensor, c: int) -> Tensor:
    """Every pair of columns of every head at every place, one after the other. t (B, T, n c), places (B, T)."""
    out = t.clone()
    for b, i in torch.cartesian_prod(*map(torch.arange, t.shape[:2])).tolist():
        for first in range(0, t.shape[-1], c):
            for j in range(c // 2):
                angle = float(places[b, i]) / 10_000 ** (2 * j / c)
                u, v = t[b, i, first + j], t[b, i, first + j + c // 2]
                out[b, i, first + j] = math.cos(angle) * u - math.sin(angle) * v
                out[b, i, first + j + c // 2] = math.sin(angle) * u + math.cos(angle) * v
    return out


@pytest.mark.parametrize("c", [2, 6])
def test_turns_are_the_double_loop_and_can_be_undone(c: int) -> None:
    t = torch.randn(2, 4, 2 * c, dtype=torch.float64, requires_grad=True)
    weights = torch.randn_like(t)
    for places in (torch.arange(3, 7), torch.tensor([[0, 1, 2, 3], [9, 0, 5, 700]])):
        rotation = Rotation.at(places, c, torch.float64)
        got, want = rotation.turn(t), turned_by_loops(t, places.expand(2, 4), c)
        torch.testing.assert_close(got, want, rtol=1e-13, atol=1e-13)
        torch.testing.assert_close(rotation.back().turn(got), t, rtol=1e-13, atol=1e-13)
        slopes = [torch.autograd.grad((weights * out).sum(), t)[0] for out in (got, want)]
        torch.testing.assert_close(*slopes, rtol=1e-13, atol=1e-13)


def test_turns_are_worked_out_in_float32_at_least() -> None:
    """In bfloat16 the places 256 and 257 are one."""
    rough = Rotation.at(torch.arange(256, 260), 4, torch.bfloat16)
    assert rough.cos.dtype == torch.float32
    t = torch.ones(1, 4, 4, dtype=torch.bfloat16)
    assert rough.turn(t).dtype == torch.bfloat16
    assert not torch.equal(rough.turn(t)[:, 0], rough.turn(t)[:, 1])


@pytest.mark.parametrize("part", [part for part, (_, options) in PARTS.items() if options.get("positions") == "rotary"])
def test_only_distances_matter(part: str) -> None:
    """A text that begins at place 50 is treated as one that begins at place 0; one that is stretched is not."""
    model = make_choice(part, second_table="none")
    ids, T = tokens(2, 9), 9
    state = model.embed(model.tokens(ids), ids, torch.arange(T))

    def last(places: Tensor) -> Tensor:
        view = View.of(True, 0, T, torch.device("cpu"), torch.float64)
        return model.advance(state, view._replace(rotation=model.positions.rotation(places, torch.float64))).x

    start = last(torch.arange(T))
    torch.testing.assert_close(last(50 + torch.arange(T)), start, rtol=1e-10, atol=1e-10)
    assert (last(2 * torch.arange(T)) - start).abs().max() > 1e-3


@pytest.mark.parametrize("name", ["softmax-exp-euler", "linear-exp-euler"])
def test_averaged_heads_average_the_turned_scores(name: str) -> None:
    """One kernel of width d is still the mean of the heads' scores, each turned in its own columns."""
    cfg = sf.variant(name, **(SIZE | {"n_head": 4, "positions": "rotary", "qk_norm": True}))
    one: Any = perturb_(ATTENTIONS[cfg.attention](cfg), seed=4).double()
    x = torch.randn(2, 7, 16, dtype=torch.float64)
    rotation = positions(cfg).rotation(torch.arange(7), torch.float64)
    projected = one.query_keys((one.qkv if cfg.attention == "softmax" else one.qk)(x), rotation)
    q, k = (projected[..., 16 * i : 16 * (i + 1)] for i in range(2))
    whole = one.scale * q @ k.mT
    heads = [a @ b.mT / math.sqrt(4) for a, b in zip(q.split(4, -1), k.split(4, -1), strict=True)]
    torch.testing.assert_close(whole, torch.stack(heads).mean(0), rtol=1e-12, atol=1e-12)


def test_layers_by_themselves_have_no_table_of_places() -> None:
    assert positions(StackConfig())(torch.arange(3)) is None
    with pytest.raises(InputError, match="a table of block_size places"):
        positions(StackConfig(positions="learned"))


# --- norms, MLPs, heads, starts


def test_rms_norm_is_its_formula() -> None:
    norm, x = RMSNorm(6, gain=0.3).double(), torch.randn(2, 3, 6, dtype=torch.float64, requires_grad=True)
    want = 0.3 * x / torch.sqrt((x * x).sum(-1, keepdim=True) / 6 + 1e-5)
    torch.testing.assert_close(norm(x), want.to(torch.float64), rtol=1e-6, atol=1e-7)  # 0.3 is a float32
    slopes = [torch.autograd.grad(out.sin().sum(), x)[0] for out in (norm(x), norm.weight * want / 0.3)]
    torch.testing.assert_close(*slopes, rtol=1e-12, atol=1e-12)
    assert torch.equal(norm(torch.zeros(1, 6, dtype=torch.float64)), torch.zeros(1, 6, dtype=torch.float64))


@pytest.mark.parametrize(("d", "most"), [(64, 0.02), (96, 0.0), (768, 0.0)])
def test_swiglu_has_as_many_parameters(d: int, most: float) -> None:
    counts = {}
    for kind in ("gelu", "relu2", "swiglu"):
        part = mlp(StackConfig(d_model=d, mlp=kind))
        assert part is not None
        counts[kind] = sum(p.numel() for p in part.parameters())
    assert counts["relu2"] == counts["gelu"]
    assert abs(counts["swiglu"] / counts["gelu"] - 1) <= most


@pytest.mark.parametrize("part", [part for part in PARTS if part.startswith("grouped")])
def test_grouped_heads_are_heads_with_equal_keys(part: str) -> None:
    """The same model with a key and value matrix for every head, those of a group alike; and its cache is larger."""
    grouped = make_choice(part)
    name, options = PARTS[part]
    apart = make(name, **(options | {"n_kv_head": 0}))
    apart.load_state_dict(grouped.state_dict() | {key: _repeated(grouped, key) for key in _key_matrices(grouped)})
    for cached in (False, True):
        pair = [m(tokens(2, 9), cache=m.new_cache(2) if cached else None) for m in (grouped, apart)]
        torch.testing.assert_close(pair[0].logits, pair[1].logits, rtol=1e-11, atol=1e-11)
    small, large = (out.cache.nbytes for out in pair)
    assert small < large if grouped.cfg.attention == "softmax" else small == large  # a state has the heads of queries


def _key_matrices(model: LanguageModel) -> list[str]:
    return [key for key in model.state_dict() if key.endswith((".qkv.weight", ".qk.weight"))]


def _repeated(model: LanguageModel, key: str) -> Tensor:
    """A projection's matrix with the rows of grouped keys, and values, once for every query head of the group."""
    cfg, weight = model.cfg, model.state_dict()[key]
    heads = weight.split(cfg.d_query)
    grouped = [head for head in heads[cfg.n_head :] for _ in range(cfg.n_head // cfg.n_key_head)]
    return torch.cat([*heads[: cfg.n_head], *grouped])


@pytest.mark.parametrize("attention", ["softmax", "linear"])
@pytest.mark.parametrize("kind", ["baseline", "yuriiformer", "exp-euler"])
def test_a_zero_started_model_does_nothing_yet(kind: str, attention: str) -> None:
    """At every depth the tokens are what they were, momenta zero, and the gradient stays of the loss's size."""
    sizes = SIZE | {"n_layer": 12}
    bare, whole = (
        sf.build_model(sf.variant(f"{attention}-{kind}", "modern", **options), seed=1)
        for options in (sizes | BARE, sizes)
    )
    torch.testing.assert_close(bare(tokens()).hidden, bare.norm(bare.tokens(tokens())), rtol=0, atol=0)
    for model in (bare, whole):
        model(tokens(), targets=tokens(seed=9)).loss.backward()
        assert max(p.grad.abs().max().item() for p in model.parameters() if p.grad is not None) < 10
        moving = [p for p in model.parameter_groups()["matrix"] if p.grad is not None and p.grad.abs().max() > 0]
        assert len(moving) >= 2 * 12  # what writes learns at once, the rest from the second step on


def test_the_page_of_layers_names_every_row(capsys: pytest.CaptureFixture[str]) -> None:
    page = (Path(__file__).parents[2] / "docs" / "layers.md").read_text()
    code = re.findall(r"```python\n(.*?)```", page, re.DOTALL)[0]
    exec(compile(code, "docs/layers.md", "exec"), {})
    assert "gradient, softmax attention, norm rmsnorm, mlp swiglu, positions rotary" in capsys.readouterr().out
    choices = [str(value) for kind in (Heads, BoundKind, Form, Splitting) for value in get_args(kind)]
    for row in (*NORMS, *MLPS, *POSITIONS, *STEPPERS, *choices):
        assert f"`{row}`" in page


def test_an_untied_head_is_no_matrix_for_muon() -> None:
    model = make_choice("untied-head")
    assert any(p is model.head.weight for p in model.parameter_groups()["embedding"])  # type: ignore[union-attr]


# --- whole models of transformers


def llama_weights(model: LanguageModel) -> dict[str, Tensor]:
    """A model's weights under the names of Llama's."""
    cfg, own = model.cfg, model.state_dict()
    c, width = cfg.d_head, own["blocks.0.mlp.down.weight"].shape[1]
    rows = cfg.n_head * c, cfg.n_key_head * c, cfg.n_key_head * c
    named = {"model.embed_tokens.weight": own["tokens.weight"], "model.norm.weight": own["norm.weight"]}
    named["lm_head.weight"] = own["head.weight"]
    for k in range(cfg.n_layer):
        block = {
            key.removeprefix(f"blocks.{k}."): value for key, value in own.items() if key.startswith(f"blocks.{k}.")
        }
        q, key, v = block["attention.qkv.weight"].split(rows)
        gate, up = block["mlp.up.weight"].split(width)
        theirs = {
            "input_layernorm": block["norm.weight"],
            "post_attention_layernorm": block["mlp.norm.weight"],
            "self_attn.q_proj": q,
            "self_attn.k_proj": key,
            "self_attn.v_proj": v,
            "self_attn.o_proj": block["attention.out.weight"],
            "mlp.gate_proj": gate,
            "mlp.up_proj": up,
            "mlp.down_proj": block["mlp.down.weight"],
        }
        if cfg.qk_norm:
            theirs["self_attn.q_norm"] = block["attention.query_keys.norm_q.weight"]
            theirs["self_attn.k_norm"] = block["attention.query_keys.norm_k.weight"]
        named |= {f"model.layers.{k}.{name}.weight": value for name, value in theirs.items()}
    return named


@pytest.mark.parametrize("kind", ["Llama", "Qwen3"])
@torch.no_grad()
def test_gpt_of_newer_parts_is_llama_and_qwen(kind: str) -> None:
    transformers = pytest.importorskip("transformers", reason="needs the hf extra: pip install 'sympformer[hf]'")
    name, options = PARTS["llama"]
    model = make(name, dtype=torch.float32, **options, **BARE, qk_norm=kind == "Qwen3")
    for gain in model.parameter_groups()["gain"]:
        gain.copy_(torch.linspace(0.5, 1.5, len(gain)))
    cfg = model.cfg
    theirs = getattr(transformers, f"{kind}ForCausalLM")(
        getattr(transformers, f"{kind}Config")(
            vocab_size=cfg.vocab_size, hidden_size=cfg.d_model, num_hidden_layers=cfg.n_layer, head_dim=cfg.d_head,
            num_attention_heads=cfg.n_head, num_key_value_heads=cfg.n_kv_head, max_position_embeddings=cfg.block_size,
            intermediate_size=model.state_dict()["blocks.0.mlp.down.weight"].shape[1], rms_norm_eps=1e-5,
            tie_word_embeddings=False, bos_token_id=0, eos_token_id=0, pad_token_id=0,
        )
    ).eval()  # fmt: skip
    theirs.load_state_dict(llama_weights(model))
    want = theirs(tokens()).logits
    assert want.abs().max() > 0.5
    assert (model(tokens()).logits - want).abs().max() < 1e-5
    assert not model.parameter_groups()["scalar"]


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
    assert torch.allclose(causal.layers()[0].share_x(), torch.tensor(SHARE))


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
