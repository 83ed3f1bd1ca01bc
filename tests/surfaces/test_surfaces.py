"""Causality, prefixes, batches, caches, padding and gradients: every model, called in every way. One test."""

import itertools
from collections.abc import Callable, Iterator
from functools import cache, lru_cache, partial
from typing import Any, get_args

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

import sympformer as sf
from sympformer import flows, ops
from sympformer.errors import InputError
from sympformer.flows import ACCELERATED, INTEGRATORS, Field
from sympformer.models import LanguageModel
from sympformer.nn import ATTENTIONS, STEPPERS, View
from sympformer.nn.attention import SoftmaxAttention
from sympformer.nn.options import BoundKind, Heads, Splitting
from tests.inertia.cases import FAMILIES, family, wake
from tests.models.cases import CHOICES, MODELS, SIZE, make, make_choice, tokens
from tests.surfaces.surfaces import (
    LEAKS,
    SURFACES,
    TEXT,
    Alone,
    Called,
    alone,
    check,
    check_model,
    deviations,
    of_transformers,
    shut,
)

Case = Callable[..., LanguageModel]


class Halfway(flows.integrators.ExpEuler):
    """A scheme that asks the damping at another step than its own: x+ = x + h_x F, y+ = sigma(t, h/2)^2 y + h_y G."""

    def factors(self, step: flows.Step) -> Any:
        half = step.h_y / 2
        return step.h_x, step.damping.sigma(step.t, half) * step.damping.sigma(step.t + half, half), step.h_y


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


@pytest.fixture(autouse=True, scope="module")
def registered() -> Iterator[None]:
    sf.register("integrator", "halfway", Halfway)
    sf.register("attention", "leaking", LeakingAttention)
    yield
    del INTEGRATORS["halfway"], ATTENTIONS["leaking"]


CASES: dict[str, Case] = {f"{name}-{preset}": partial(make, name, preset) for name, preset in MODELS}
CASES |= {choice: partial(make_choice, choice) for choice in CHOICES}
CASES["halfway"] = partial(make, "softmax-exp-euler", integrator="halfway")


@lru_cache(maxsize=4)
def made(case: str, **changes: Any) -> tuple[LanguageModel, Alone]:
    model = CASES[case](**changes)
    return model, alone(shut(model))


@pytest.mark.parametrize("surface", SURFACES)
@pytest.mark.parametrize("case", CASES)
def test_properties(case: str, surface: str) -> None:
    called, changes = SURFACES[surface]
    if not CASES[case]().cfg.has_momentum:
        changes = {name: value for name, value in changes.items() if name != "start_momentum"}
    model, want = made(case, **changes)
    check(called(model), want)


def check_leak(called: Called) -> None:
    found = deviations(called, Alone(called.run(TEXT).detach(), [], {}), LEAKS)
    assert min(found.values()) > 1e-3


@pytest.mark.parametrize("surface", SURFACES)
def test_a_leaking_force_is_caught_on_every_surface(surface: str) -> None:
    called, changes = SURFACES[surface]
    model = make("softmax-plain-euler", value="free", attention="leaking", **changes)
    check_leak(called(model))


# --- every splitting, stepper, bound and kind of heads

COMBINATIONS = [*itertools.product(get_args(Splitting), STEPPERS, get_args(BoundKind), get_args(Heads), ATTENTIONS)]


def fits(splitting: str, stepper: str, bound: str, heads: str, attention: str) -> bool:
    """A gradient step has no momentum to bound; a flow's linear attention has no matrix that mixes heads."""
    if stepper == "gradient" and bound in ("momentum", "cap", "drift"):
        return False
    return not (stepper == "hamiltonian" and attention == "linear" and heads == "projected")


@pytest.mark.parametrize("choices", COMBINATIONS, ids="-".join)
def test_combinations(choices: tuple[str, ...]) -> None:
    names = ("splitting", "stepper", "bound", "heads", "attention")
    options: dict[str, Any] = {**SIZE, "n_layer": 2, **dict(zip(names, choices, strict=True))}
    if not fits(*choices):
        with pytest.raises(InputError, match=r"bound|belongs to"):
            sf.ModelConfig(**options)
        return
    check_properties(sf.ModelConfig(**options))


# --- learning, and twins


@cache  # several models have one twin
def check_learning(cfg: sf.ModelConfig) -> None:
    """One step from a fresh start lowers the loss."""
    model = sf.build_model(cfg.replace(dropout=0.0), seed=1)
    idx, targets = tokens(4), tokens(4, seed=9)
    # B = V A^-1 moves with one over A's smallest eigenvalue: steps that others take go too far there
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5 if cfg.mobility == "derived" else 1e-3)
    before = model(idx, targets=targets).loss
    before.backward()
    optimizer.step()
    assert model(idx, targets=targets).loss < before


@cache
def check_properties(cfg: sf.ModelConfig) -> None:
    check_model(sf.nn.perturb_(sf.build_model(cfg, seed=1)).double().eval())  # type: ignore[arg-type]


@pytest.mark.parametrize("case", CASES)
def test_one_step_lowers_the_loss(case: str) -> None:
    check_learning(CASES[case]().cfg)


@pytest.mark.parametrize("case", CASES)
def test_every_momentum_model_has_a_twin(case: str) -> None:
    """The same but for the stepper and the place of the norm; it builds, learns and is causal."""
    cfg = CASES[case]().cfg
    twin = cfg.twin()
    normed = cfg.bound in ("update", "momentum", "drift")
    assert (twin.stepper, twin.has_momentum) == ("gradient", False)
    assert (twin.bound, twin.gain) == (("update", cfg.gain) if normed else ("none", None))
    assert twin.transport in (cfg.transport, "none", "positions")
    changed = {name for name, value in twin.to_dict().items() if getattr(cfg, name) != value}
    assert changed <= {"stepper", "bound", "transport"}
    assert twin == twin.twin()
    if cfg.has_momentum:
        check_learning(twin)
        check_properties(twin)


# --- accelerated models of others


@pytest.mark.parametrize("scheme", ACCELERATED)
@pytest.mark.parametrize("name", [name for name in FAMILIES if name != "vit"])
def test_accelerated(name: str, scheme: str) -> None:
    called = of_transformers(wake(sf.accelerate(family(name), scheme)).double(), tolerance=1e-9)
    check(called, alone(called))


def test_an_accelerated_leak_is_caught() -> None:
    model = wake(sf.accelerate(family("gpt2"))).double()
    model.transformer.h[0].mlp.register_forward_hook(lambda _, args, out: out + out.mean(1, keepdim=True))
    check_leak(of_transformers(model))


# --- what goes with them


class Blind(TorchDispatchMode):
    """Refuses torch's own attention kernels."""

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        assert "attention" not in str(function), f"{function} behind a shut door"
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize("name", ["softmax-baseline", "softmax-yuriiformer", "softmax-exp-euler"])
def test_a_shut_door_leaves_no_kernel_of_torch(name: str) -> None:
    model = make(name)
    with pytest.raises(AssertionError, match="behind a shut door"), Blind():
        model(TEXT)
    with ops.plain(), Blind():
        model(TEXT)


def test_every_layers_factors_are_those_of_its_own_step() -> None:
    """They are made for all layers at once, of an integrator that asks the damping at any time."""
    model = make("softmax-exp-euler", integrator="halfway")
    rows, constants = model.layer_scalars(), model.constants(numbers=True)
    assert len({row["t"] for row in rows}) == len(rows)
    for row, (halves, _) in zip(rows, constants, strict=True):
        damping = flows.LogLinear(row["c_log"], row["c_lin"])
        step = flows.Step(0, torch.tensor(row["t"], dtype=torch.float64), row["h_x"], row["h_y"], damping)
        assert halves[0][2] == pytest.approx([float(value) for value in Halfway().factors(step)], rel=1e-12)


def test_full_visibility_refuses_a_cache() -> None:
    with pytest.raises(InputError, match="full visibility"):
        make("softmax-exp-euler", causal=False).new_cache(1)


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
