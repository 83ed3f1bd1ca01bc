"""Causality, prefix invariance, batch independence and cache = full pass: one test over all models."""

from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

import sympformer as sf
from sympformer import flows, ops
from sympformer.flows import INTEGRATORS, Field
from sympformer.models import LanguageModel
from sympformer.nn import View
from sympformer.nn.attention import SoftmaxAttention
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
    fast = results(model)
    with ops.plain():
        slow = results(model)
    assert fast.keys() == slow.keys()
    for name, value in fast.items():
        scale = max(1.0, slow[name].abs().max().item())
        assert (value - slow[name]).abs().max() <= 1e-12 * scale, name


@torch.no_grad()
def check_constants(model: LanguageModel, tolerance: float = 1e-11) -> None:
    """With constants as plain numbers, worked out once, a cached text is what it is in one piece."""
    sizes, cache, constants = (5, 1, 1, 3, 1), model.new_cache(2), model.constants(numbers=True)
    idx = tokens(2, sum(sizes))
    pieces = [model.hidden(chunk, cache, constants=constants) for chunk in idx.split(sizes, 1)]
    whole = model.hidden(idx)
    assert (torch.cat(pieces, 1) - whole).abs().max() <= tolerance * max(1.0, whole.abs().max().item())


@every_model
def test_fast_ways_give_what_the_equations_give(name: str, preset: str) -> None:
    check_door(make(name, preset))
    check_constants(make(name, preset))


@every_choice
def test_fast_ways_give_what_the_equations_give_for_config_choices(choice: str) -> None:
    check_door(make_choice(choice))
    check_constants(make_choice(choice))


class Blind(TorchDispatchMode):
    """Refuses torch's own attention kernels."""

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        assert "attention" not in str(function), f"{function} behind a shut door"
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize("name", ["softmax-baseline", "softmax-yuriiformer", "softmax-exp-euler"])
def test_a_shut_door_leaves_no_kernel_of_torch(name: str) -> None:
    model = make(name)
    with pytest.raises(AssertionError, match="behind a shut door"), Blind():
        model(tokens())
    with ops.plain(), Blind():
        model(tokens())


class Halfway(flows.Euler):
    """A scheme that asks the damping at another step than its own: x+ = x + h_x F, y+ = sigma(t, h/2)^2 y + h_y G."""

    def factors(self, step: flows.Step) -> Any:
        half = step.h_y / 2
        return step.h_x, step.damping.sigma(step.t, half) * step.damping.sigma(step.t + half, half), step.h_y


def test_an_integrator_may_ask_the_damping_at_any_time() -> None:
    """Each layer's factors, made for all layers at once, are those of its own step."""
    sf.register("integrator", "halfway", Halfway)
    try:
        model = make("softmax-exp-euler", integrator="halfway")
        check(model, 1e-11)
        check_door(model)
        check_constants(model)
        rows, constants = model.layer_scalars(), model.constants(numbers=True)
        assert len({row["t"] for row in rows}) == len(rows)
        for row, (halves, _) in zip(rows, constants, strict=True):
            damping = flows.LogLinear(row["c_log"], row["c_lin"])
            step = flows.Step(0, torch.tensor(row["t"], dtype=torch.float64), row["h_x"], row["h_y"], damping)
            assert halves[0][2] == pytest.approx([float(value) for value in Halfway().factors(step)], rel=1e-12)
    finally:
        del INTEGRATORS["halfway"]


class LeakingField(Field):
    """What must never be built: the force as the gradient of the masked Hamiltonian of the whole sequence."""

    def __init__(self, part: Any, x: Tensor, view: View) -> None:
        self.part, self.x, self.view = part, x, view

    def z(self, x: Tensor) -> Tensor:
        q, k, _ = self.part.qkv(x).chunk(3, -1)
        return (self.part.scale * q @ k.mT).exp().tril().sum(-1, keepdim=True) / self.view.n

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


class LeakingAttention(SoftmaxAttention):
    def forward(self, x: Tensor, view: View, matrices: Any) -> Any:
        return LeakingField(self, x, view)


def test_a_leaking_force_is_caught() -> None:
    model = make("softmax-plain-euler", value="free")
    for block in model.layers():
        block.attention.__class__ = LeakingAttention
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
