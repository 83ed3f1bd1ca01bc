"""Every scheme against its formulas written out; the accelerated model is the model until its scalars learn."""

import copy
import pickle
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor, nn

import sympformer as sf
from sympformer.errors import InputError
from sympformer.flows import ACCELERATED
from sympformer.inertia import DAMPINGS, KEY, InertiaConfig, inertia_scalars
from tests.hf.helpers import checkpoint
from tests.inertia.cases import FAMILIES, SIZES, Block, Plain, family, fast, given, plain, wake

every_scheme = pytest.mark.parametrize("scheme", ACCELERATED)

# the usual starts; equal gain and factor make plain_euler the heavy ball, y+ = a y + f, x+ = x + y+
m, h, a = 0.5, 1.0, 0.5
SIGMA, WEIGHT = float(torch.tensor(-m * h).exp()), (1 - float(torch.tensor(-m * h).exp())) / m


def written_out(scheme: str, model: Plain, x: Tensor, gains: list[float]) -> Tensor:
    """The accelerated stack in a loop, from the formulas of the six schemes at h = 1 and constant damping."""
    y, before = torch.zeros_like(x), None
    for block, gain in zip(model.blocks, gains, strict=True):
        f = block(x) - x
        old_y, old_slope = (y, f - m * y) if before is None else before
        match scheme:
            case "plain_euler":
                drift, y_next = y, a * y + f
            case "presymp_euler":
                drift, y_next = y, (1 - m) * y + f
            case "symplectic_euler":
                y_next = SIGMA * (y + f)
                drift = y_next
            case "exp_euler":
                drift, y_next = y, SIGMA * y + WEIGHT * f
            case "ab2":
                drift, y_next = 1.5 * y - 0.5 * old_y, y + 1.5 * (f - m * y) - 0.5 * old_slope
                before = y, f - m * y
            case _:
                old_force = f if before is None else old_slope
                drift, y_next = 1.5 * y - 0.5 * old_y, SIGMA * (y + 1.5 * f - 0.5 * old_force)
                before = y, SIGMA * f
        x, y = x + f + gain * drift, y_next
    return x


@every_scheme
def test_every_scheme_is_its_formula(scheme: str) -> None:
    x = torch.randn(2, 5, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    model = wake(fast(plain(), scheme).double())
    gains = [part["gain"] for part in inertia_scalars(model).values()]
    want = written_out(scheme, plain(), x, gains)
    assert (want - plain()(x)).abs().max() > 0.1  # the momentum is felt
    assert torch.allclose(model(x), want, rtol=0, atol=1e-6)  # raw starts are kept in float32


class Descent(nn.Module):
    """x -> x - tau grad U, U = 1/2 x' K x."""

    def __init__(self, d: int) -> None:
        super().__init__()
        self.K = nn.Parameter(torch.linspace(0.2, 2.0, d, dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        return x - 0.05 * self.K * x


@every_scheme
@pytest.mark.parametrize("gain", [0.0, 0.05, 1.0])
def test_the_energy_falls(scheme: str, gain: float) -> None:
    """With f = -tau grad U and small steps, tau U + c/2 |y|^2 falls from block to block, whatever the gain c >= 0."""
    model = fast(Plain(Descent, depth=40), scheme, start={"h": 0.05})
    blocks, states = model.blocks, list[tuple[Tensor, Tensor]]()
    for block in blocks:
        nn.init.constant_(block.inertia.gain, gain)
        block.inertia.register_forward_hook(lambda _, args, out: states.append((out[0], out[1].y)))
    with torch.no_grad():
        model(torch.ones(1, 1, 6, dtype=torch.float64))
        energies = [float(0.05 * (blocks[0].K * x * x).sum() / 2 + gain * (y * y).sum() / 2) for x, y in states]
    assert len(energies) == 40
    assert all(later < earlier for earlier, later in pairwise(energies))


def wrapped() -> nn.Module:
    return nn.Sequential(nn.Sequential(Block(6), Block(6)))


@pytest.mark.parametrize(
    ("make", "where"),
    [(Plain, "body.blocks"), (Plain, lambda model: model.body["blocks"]), (lambda: wrapped()[0], ""), (wrapped, "0")],  # type: ignore[index]
)
def test_blocks_by_name_or_function_in_lists_and_sequentials(make: Callable[[], nn.Module], where: Any) -> None:
    x, model = torch.randn(2, 3, 6), make()
    before = model(x)
    assert torch.equal(fast(model, blocks=where)(x), before)
    assert not torch.equal(wake(model)(x), before)


def scalars_of(model: Any) -> dict[str, torch.nn.Parameter]:
    return {name: p for name, p in model.named_parameters() if ".inertia." in name}


@pytest.mark.parametrize(
    ("name", "scheme"), [*(("gpt2", scheme) for scheme in ACCELERATED), *((name, "ab2") for name in FAMILIES)]
)
@torch.no_grad()
def test_it_starts_as_the_model(name: str, scheme: str) -> None:
    """To the last bit, hidden states included; away from the start the momentum changes every layer but the first."""
    model, x = family(name), given(name)
    before = model(**x, output_hidden_states=True)
    assert sf.accelerate(model, scheme) is model
    after = model(**x, output_hidden_states=True)
    assert torch.equal(after.logits, before.logits)
    assert all(map(torch.equal, after.hidden_states, before.hidden_states))
    moved = wake(model)(**x, output_hidden_states=True)
    assert (moved.logits - before.logits).abs().max() > 1e-3
    same = [torch.equal(a, b) for a, b in zip(moved.hidden_states, before.hidden_states, strict=True)]
    assert same == ([True, False, False, False] if scheme == "symplectic_euler" else [True, True, False, False])


@every_scheme
def test_only_scalars_are_added(scheme: str) -> None:
    model = family("gpt2")
    names = set(dict(model.named_parameters()))
    added = {n: p for n, p in sf.accelerate(model, scheme).named_parameters() if n not in names}
    assert added == scalars_of(model)
    assert names <= set(dict(model.named_parameters()))
    assert sum(p.numel() for p in added.values()) <= 4 * 3  # gain, h, factor or c_lin, in three blocks
    per_channel = sf.accelerate(family("gpt2"), scheme, per_channel=True)
    assert {p.numel() for n, p in scalars_of(per_channel).items() if n.endswith("gain")} == {16}
    assert inertia_scalars(model)["transformer.h.1.inertia"]["gain"] == 0
    assert inertia_scalars(wake(model, -0.5))["transformer.h.0.inertia"]["gain"] == -0.5
    assert model.config.to_dict()[KEY]["integrator"] == scheme


DAMPED = [(scheme, damping) for scheme in ACCELERATED if scheme != "plain_euler" for damping in DAMPINGS]


@pytest.mark.parametrize(("scheme", "damping"), [("plain_euler", None), *DAMPED])
def test_the_scalars_can_leave_the_start(scheme: str, damping: str | None) -> None:
    """At the start the gains have a gradient; once they have moved, every scalar has."""
    torch.manual_seed(0)
    model = fast(None, scheme, damping=damping)
    x = torch.randn(2, 5, 6, dtype=torch.float64)
    model(x).square().sum().backward()
    gains = [float(p.grad.abs().max()) for n, p in scalars_of(model).items() if n.endswith("gain")]  # type: ignore[union-attr]
    assert [grad > 1e-6 for grad in gains] == [scheme == "symplectic_euler", True, True, True]  # others start at rest
    model.zero_grad()
    wake(model)(x).square().sum().backward()
    for name, parameter in scalars_of(model).items():
        assert parameter.grad is not None, name  # none is left over, which DDP would not like
        if "blocks.0." not in name:
            assert (parameter.grad.abs() > 1e-9).all(), name


def test_a_config_that_models_share_stays_as_it_is() -> None:
    model = family("llama")
    twin = type(model)(model.config)
    sf.accelerate(model)
    assert model.base_model.config is model.config
    assert KEY in model.config.to_dict()
    assert KEY not in twin.config.to_dict()
    assert sf.accelerate(twin, "ab2").config.to_dict()[KEY]["integrator"] == "ab2"


def test_gradient_checkpointing_changes_nothing() -> None:
    grads = []
    for checkpointed in (False, True):
        model, ids = wake(sf.accelerate(family("llama"), "ab2")).double().train(), given("llama")["input_ids"]
        if checkpointed:
            checkpoint(model)
        model(input_ids=ids, labels=ids, use_cache=False).loss.backward()
        grads.append({n: p.grad for n, p in model.named_parameters()})
    assert all(torch.allclose(grads[0][n], grads[1][n], rtol=0, atol=1e-12) for n in grads[0])


@torch.no_grad()
def test_copies_are_models_of_their_own() -> None:
    model, x = wake(fast(None, "ab2")), torch.randn(2, 3, 6, dtype=torch.float64)
    want = model(x)
    for twin in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert torch.equal(twin(x), want)
        for part in (block.inertia for block in twin.blocks):
            part.gain.zero_()
        assert torch.equal(sf.decelerate(twin)(x), plain()(x))
    assert torch.equal(model(x), want)


def test_bfloat16_weights_with_float32_scalars() -> None:
    model, ids = family("llama").to(torch.bfloat16), given("llama")["input_ids"]
    before = model(ids).logits
    model = sf.accelerate(model, per_channel=True)
    assert {p.dtype for p in scalars_of(model).values()} == {torch.float32}
    assert torch.equal(model(ids).logits, before)
    assert wake(model)(ids).logits.dtype == torch.bfloat16


@pytest.mark.parametrize("name", ["gpt2", "vit"])
@torch.no_grad()
def test_decelerate_gives_the_plain_model_back(name: str) -> None:
    model, x = family(name), given(name)
    keys, before = set(model.state_dict()), model(**x).logits
    slow = sf.decelerate(sf.accelerate(model, "exp_euler"))
    assert slow is model
    assert set(slow.state_dict()) == keys
    assert KEY not in slow.config.to_dict()
    assert torch.equal(slow(**x).logits, before)
    assert torch.equal(sf.accelerate(slow)(**x).logits, before)  # and again
    wake(slow)
    with pytest.raises(InputError, match=r"0\.inertia\.gain = 0\.3, .*1\.inertia\.gain = .* must be 0"):
        sf.decelerate(slow)


@torch.no_grad()
def test_a_pass_that_failed_leaves_nothing_behind() -> None:
    model, x = wake(fast()), torch.randn(2, 3, 6, dtype=torch.float64)
    want = model(x)
    with pytest.raises(RuntimeError):
        model(torch.randn(2, 3, 5, dtype=torch.float64))
    assert torch.equal(model(x), want)
    with pytest.raises(InputError, match=r"body\.blocks\.1 of an accelerated model ran alone"):
        model.blocks[1](x)


@torch.no_grad()
def test_torch_compile_sees_the_momentum() -> None:
    model, x = wake(fast(Plain(depth=2))), torch.randn(2, 3, 6)
    assert torch.allclose(torch.compile(model, backend="eager")(x), model(x), atol=1e-6)


# --- what cannot be accelerated is refused in one sentence, and stays as it was


def bert() -> Any:
    return transformers.BertModel(transformers.BertConfig(**SIZES, vocab_size=40))


def opt() -> Any:
    sizes: dict[str, Any] = {"vocab_size": 40, "hidden_size": 16, "num_hidden_layers": 1, "ffn_dim": 16}
    return transformers.OPTModel(transformers.OPTConfig(**sizes, num_attention_heads=2))


class PostNorm(Block):
    def forward(self, x: Tensor) -> Tensor:
        return self.norm(x + self.linear(x))


class InPlace(Block):
    def forward(self, x: Tensor) -> Tensor:
        x += self.linear(self.norm(x))
        return x


class Masked(Block):
    def forward(self, x: Tensor, mask: Tensor) -> Tensor:  # type: ignore[override]
        return x + mask * self.linear(self.norm(x))


class WithMask(Plain):
    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        for block in self.blocks:
            x = block(x=x, mask=torch.ones(()) if mask is None else mask)
        return x


def layers(norm_first: bool) -> Any:
    layer = nn.TransformerEncoderLayer(6, 2, 8, norm_first=norm_first, batch_first=True)
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)


X = torch.zeros(1, 4, 6)


@pytest.mark.parametrize(
    ("make", "options", "message"),
    [
        (bert, {}, r"bert normalises after it adds \(post-norm\)"),
        (bert, {"blocks": "encoder.layer"}, r"encoder\.layer\.0 does not carry its input on: .* \(post-norm\)"),
        (lambda: layers(False), {"blocks": "layers", "example": X}, r"layers\.0 does not carry its input on"),
        (lambda: Plain(PostNorm), {"example": X}, r"body\.blocks\.0 does not carry its input on"),
        (lambda: Plain(InPlace), {"example": X}, "changes its input in place"),
        (lambda: Plain(lambda d: nn.Linear(d, 3)), {"example": X}, r"shape of its input, \(1, 4, 6\) to"),
        (Plain, {}, "give example=, an input of Plain"),
        (Plain, {"blocks": None}, "Plain is not of a known family: say with blocks="),
        (Plain, {"blocks": "blocks"}, "Plain has no module 'blocks'"),
        (Plain, {"blocks": "body"}, r"blocks= must name a torch\.nn\.ModuleList"),
        (Plain, {"blocks": lambda model: Block(6)}, "not a module of Plain"),
        (Plain, {"example": torch.zeros(1, 7)}, "the model failed on the example"),
        (Plain, {"integrator": "rk4"}, "rk4 does not step on one evaluation of a block"),
        (Plain, {"integrator": "exp_eular"}, "did you mean 'exp_euler'"),
        (Plain, {"damping": "constant"}, "plain_euler has a momentum factor and no damping"),
        (Plain, {"integrator": "ab2", "damping": "x"}, "unknown damping 'x'"),
        (Plain, {"start": {"c_lin": 1.0}}, "unknown start of plain_euler: 'c_lin'"),
        (Plain, {"start": {"factor": 1.0}}, "start factor must be a positive number below 1,"),
        (Plain, {"start": {"h": -1.0}}, "start h must be a positive number"),
        (opt, {}, r"unknown family 'opt': choose one of gpt2, .*, any other with blocks="),
    ],
)
def test_one_sentence(make: Callable[[], Any], options: dict[str, Any], message: str) -> None:
    model = make()
    before, mode = set(model.state_dict()), model.training
    with pytest.raises(InputError, match=message) as caught:
        sf.accelerate(model, **({"blocks": "body.blocks"} if isinstance(model, Plain) else {}) | options)
    assert "\n" not in str(caught.value)
    assert set(model.state_dict()) == before
    assert model.training == mode
    assert not any(module._forward_hooks for module in model.modules())


def test_others_need_only_say_where_and_give_an_example() -> None:
    assert isinstance(sf.accelerate(opt(), blocks="decoder.layers"), nn.Module)  # pre-norm, as most OPT are
    x = torch.randn(1, 4, 6)
    for model, blocks, example in ((layers(True), "layers", x), (WithMask(Masked), "body.blocks", (x, X[0, 0, 0]))):
        before = model.eval()(x)
        with torch.no_grad():  # the encoder of torch has another way there
            assert torch.allclose(sf.accelerate(model, blocks=blocks, example=example)(x), before, atol=1e-6)


def test_twice_is_once_too_often() -> None:
    model = sf.accelerate(family("gpt2"))
    with pytest.raises(InputError, match="accelerated already"):
        sf.accelerate(model)
    with pytest.raises(InputError, match="Plain is not accelerated"):
        sf.decelerate(plain())


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([], "must hold named options"),
        ({"integrator": "ab2"}, "must name integrator and width"),
        ({"integrator": "ab2", "width": 0}, "width must be at least 1"),
        ({"integrator": "ab2", "width": "x"}, "width must be int"),
        ({"integrator": "ab2", "width": 4, "colour": 1}, "unknown option of sympformer_inertia 'colour'"),
        ({"integrator": "ab2", "width": 4, "start": {"h": "1"}}, "start must be {'h': 1.0}, got"),
        ({"integrator": "ab2", "width": 4, "start": {"h": True}}, "start.h must be float"),
    ],
)
def test_a_config_from_elsewhere_is_checked(values: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        InertiaConfig.from_dict(values)
