"""An accelerated model is the model, until its scalars learn; and they can."""

import copy
import pickle
from typing import Any

import pytest
import torch

import sympformer as sf
from sympformer.errors import InputError
from sympformer.flows import ACCELERATED
from sympformer.hf import optimizer_groups
from sympformer.inertia import DAMPINGS, KEY, inertia_scalars
from tests.hf.helpers import checkpoint
from tests.inertia.cases import FAMILIES, Plain, family, given, plain, wake

every_family = pytest.mark.parametrize("name", FAMILIES)
every_scheme = pytest.mark.parametrize("scheme", ACCELERATED)


def scalars_of(model: Any) -> dict[str, torch.nn.Parameter]:
    return {name: p for name, p in model.named_parameters() if ".inertia." in name}


@every_scheme
@every_family
@torch.no_grad()
def test_it_starts_as_the_model(name: str, scheme: str) -> None:
    """To the last bit, hidden states included; away from the start the momentum changes every layer but the first."""
    model, x = family(name), given(name)
    before = model(**x, output_hidden_states=True)
    fast = sf.accelerate(model, scheme)
    after = fast(**x, output_hidden_states=True)
    assert fast is model
    assert torch.equal(after.logits, before.logits)
    assert all(map(torch.equal, after.hidden_states, before.hidden_states))
    moved = wake(fast)(**x, output_hidden_states=True)
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
    model = sf.accelerate(plain(), scheme, blocks="body.blocks", damping=damping)
    x = torch.randn(2, 5, 6, dtype=torch.float64)
    model(x).square().sum().backward()
    gains = [
        p.grad.abs().max().item() for n, p in scalars_of(model).items() if n.endswith("gain") and p.grad is not None
    ]
    assert len(gains) == 4
    assert all(abs(grad) > 1e-6 for grad in gains[1:])
    assert (abs(gains[0]) > 1e-6) == (scheme == "symplectic_euler")  # the first block of the others starts at rest
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


@pytest.mark.parametrize("options", [{}, {"integrator": "etd_ab2"}, {"per_channel": True}])
def test_training_lowers_the_loss_and_moves_the_gains(options: dict[str, Any]) -> None:
    model, ids = sf.accelerate(family("gpt2"), **options), given("gpt2")["input_ids"]
    groups = optimizer_groups(model, 1e-2)
    apart = {id(p) for group in groups if group["name"] == "scalar" for p in group["params"]}  # type: ignore[attr-defined]
    assert apart == {id(p) for p in scalars_of(model).values()}
    optimizer = torch.optim.AdamW(groups)
    losses = []
    for _ in range(5):
        optimizer.zero_grad()
        loss = model(input_ids=ids, labels=ids).loss
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] - 0.1
    assert all(abs(values["gain"]) > 1e-3 for values in list(inertia_scalars(model).values())[1:])


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
    model, x = wake(sf.accelerate(plain(), "ab2", blocks="body.blocks")), torch.randn(2, 3, 6, dtype=torch.float64)
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


@every_family
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
    model, x = wake(sf.accelerate(plain(), blocks="body.blocks")), torch.randn(2, 3, 6, dtype=torch.float64)
    want = model(x)
    with pytest.raises(RuntimeError):
        model(torch.randn(2, 3, 5, dtype=torch.float64))
    assert torch.equal(model(x), want)
    with pytest.raises(InputError, match=r"body\.blocks\.1 of an accelerated model ran alone"):
        model.blocks[1](x)


@torch.no_grad()
def test_torch_compile_sees_the_momentum() -> None:
    model, x = wake(sf.accelerate(Plain(depth=2), blocks="body.blocks")), torch.randn(2, 3, 6)
    assert torch.allclose(torch.compile(model, backend="eager")(x), model(x), atol=1e-6)
