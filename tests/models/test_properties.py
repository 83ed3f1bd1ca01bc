"""Causality, prefix invariance, batch independence and cache = full pass: one test over all models."""

from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor

from sympformer import ops
from sympformer.flows import Field
from sympformer.models import LanguageModel
from sympformer.nn import View
from sympformer.nn.attention import SoftmaxOracle
from sympformer.nn.parts import merge_heads, split_heads
from tests.models.cases import every_choice, every_model, make, make_choice, tokens
from tests.models.properties import future_leak, worst_deviation


def check(model: LanguageModel, tolerance: float) -> None:
    scale = model(tokens()).logits.abs().max().item()
    assert scale > 0.1, "logits this small prove nothing"
    for name, deviation in worst_deviation(model).items():
        assert deviation <= tolerance * max(1.0, scale), f"{name}: {deviation:.3g}"


@pytest.fixture(params=["open", "shut"])
def door(request: pytest.FixtureRequest) -> Iterator[None]:
    """The fast ways, and the equations as they stand."""
    with ops.plain() if request.param == "shut" else nullcontext():
        yield


@pytest.mark.usefixtures("door")
@every_model
def test_properties_in_float64(name: str, preset: str) -> None:
    check(make(name, preset), 1e-12)


@every_model
def test_causality_in_float32(name: str, preset: str) -> None:
    """Editing later tokens changes no earlier logit: exactly, or below 1e-6."""
    model = make(name, preset, torch.float32)
    with torch.no_grad():
        assert future_leak(lambda ids: model(ids).logits, tokens(), model.cfg.vocab_size) < 1e-6


@pytest.mark.usefixtures("door")
@every_choice
def test_properties_of_config_choices(choice: str) -> None:
    check(make_choice(choice), 1e-11)


def results(model: LanguageModel) -> dict[str, Tensor]:
    """Logits, loss and all gradients."""
    model.zero_grad()
    out = model(tokens(), targets=tokens(seed=9))
    assert out.loss is not None
    out.loss.backward()
    # a parameter that nothing reads has a gradient of zero, or none
    grads = {name: p * 0 if p.grad is None else p.grad for name, p in model.named_parameters()}
    return {"logits": out.logits.detach(), "loss": out.loss.detach(), **grads}


def check_door(model: LanguageModel) -> None:
    fused = [program is not layer for program, layer in zip(model.programs(model.cfg.t0), model.layers(), strict=True)]
    assert all(fused), "nothing is exchanged, so nothing is compared"
    fast = results(model)
    with ops.plain():
        assert model.programs(model.cfg.t0) == model.layers()
        slow = results(model)
    assert fast.keys() == slow.keys()
    for name, value in fast.items():
        scale = max(1.0, slow[name].abs().max().item())
        assert (value - slow[name]).abs().max() <= 1e-12 * scale, name


@every_model
def test_fast_ways_give_what_the_equations_give(name: str, preset: str) -> None:
    check_door(make(name, preset))


@every_choice
def test_fast_ways_give_what_the_equations_give_for_config_choices(choice: str) -> None:
    check_door(make_choice(choice))


class LeakingField(Field):
    """What must never be built: the force as the gradient of the masked Hamiltonian of the whole sequence."""

    def __init__(self, oracle: SoftmaxOracle, x: Tensor, view: View) -> None:
        self.oracle, self.x, self.view = oracle, x, view

    def z(self, x: Tensor) -> Tensor:
        q, k, _ = self.oracle.qkv(x).chunk(3, -1)
        return (self.oracle.scale * q @ k.mT).exp().tril().sum(-1, keepdim=True) / self.view.n

    def velocity(self, y: Tensor) -> Tensor:
        return y / self.z(self.x)

    def force(self, y: Tensor) -> Tensor:
        with torch.enable_grad():
            x = self.x.detach().requires_grad_()
            z = self.z(x)
            H = ((y.detach() ** 2).sum(-1, keepdim=True) / z / 2 - z / 2).sum()
            return -torch.autograd.grad(H, x)[0]

    def first_order(self) -> Tensor:
        raise AssertionError("not used")


class LeakingOracle(SoftmaxOracle):
    def forward(self, x: Tensor, view: View) -> Any:
        return LeakingField(self, x, view)


def test_a_leaking_oracle_is_caught() -> None:
    model = make("softmax-plain-euler", value="free")
    for block in model.blocks:
        block.oracle.__class__ = LeakingOracle
    with torch.no_grad():
        assert future_leak(lambda ids: model(ids).logits, tokens(), model.cfg.vocab_size) > 1e-3


def test_full_visibility_sees_the_future_and_refuses_a_cache() -> None:
    model = make("softmax-exp-euler", causal=False)
    with torch.no_grad():
        assert future_leak(lambda ids: model(ids).logits, tokens(), model.cfg.vocab_size) > 1e-3
    with pytest.raises(ValueError, match="full visibility"):
        model.new_cache(1)


def test_linear_memory_does_not_grow_with_the_context() -> None:
    sizes = {}
    for name in ("linear-exp-euler", "linear-baseline", "softmax-exp-euler"):
        model = make(name, block_size=256)
        cache = model.new_cache(1)
        model(tokens(1, 8), cache=cache)
        few = cache.nbytes
        model(tokens(1, 200), cache=cache)
        sizes[name] = cache.nbytes / few
    assert sizes["linear-exp-euler"] == sizes["linear-baseline"] == 1
    assert sizes["softmax-exp-euler"] > 1


def test_merge_heads_undoes_split_heads() -> None:
    x = torch.randn(2, 5, 12)
    assert torch.equal(merge_heads(split_heads(x, 3)), x)
