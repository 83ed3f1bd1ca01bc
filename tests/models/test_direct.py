"""A token that continues a cache: few operations, and the same figures as the modules give."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from sympformer.models.cache import LayerCache, once
from sympformer.models.direct import direct, part
from sympformer.models.layers import MLP, Norm, Projection
from tests.models.cases import SIZE, make, tokens


def modules() -> dict[str, nn.Module]:
    """One of each kind that `direct` knows, with weights that are not their starts."""
    model = make("softmax-exp-euler")
    block: Any = model.blocks[0]
    with torch.no_grad():
        block.norm_attention.weight.copy_(torch.linspace(0.5, 2, SIZE["d_model"]))
    return {"projection": block.oracle.qkv, "norm": block.norm_attention, "mlp": block.mlp}


every_kind = pytest.mark.parametrize("kind", ["projection", "norm", "mlp"])


@every_kind
@torch.no_grad()
def test_direct_gives_what_the_module_gives(kind: str) -> None:
    module, x = modules()[kind], torch.randn(2, 3, SIZE["d_model"], dtype=torch.float64)
    function = direct(module)
    assert function is not module
    assert torch.equal(function(x), module(x))
    for parameter in module.parameters():  # the weight is read anew: loading and training may go on
        parameter.data = parameter.data * 2
    assert torch.equal(function(x), module(x))


def hooked(module: nn.Module) -> nn.Module:
    module.register_forward_hook(lambda *_: None)
    return module


def hooked_before(module: nn.Module) -> nn.Module:
    module.register_forward_pre_hook(lambda *_: None)
    return module


class Adapted(Projection):
    """A projection that someone has changed."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) + 1


@pytest.mark.parametrize("change", [hooked, hooked_before, nn.Module.train])
@every_kind
def test_a_module_that_someone_listens_to_or_that_learns_is_called(
    kind: str, change: Callable[[nn.Module], nn.Module]
) -> None:
    module = change(modules()[kind])
    assert direct(module) is module


@torch.no_grad()
def test_a_changed_module_is_called() -> None:
    adapted = Adapted(4, 4).eval()
    assert direct(adapted) is adapted
    mlp: Any = modules()["mlp"]
    function, x = direct(mlp), torch.randn(1, 1, SIZE["d_model"], dtype=torch.float64)
    before = function(x)
    mlp.down = Adapted(mlp.down.in_features, mlp.down.out_features).double().eval()
    assert isinstance(mlp, MLP)
    assert torch.equal(direct(mlp)(x), mlp(x))
    assert not torch.equal(mlp(x), before)


def test_adapters_and_hooks_inside_a_model_are_heard_by_cached_tokens() -> None:
    model, heard = make("softmax-exp-euler"), []
    for module in model.modules():
        if isinstance(module, Projection | Norm):
            module.register_forward_hook(lambda module, *_: heard.append(module))
    with torch.no_grad():
        cache = model.new_cache(2)
        model(tokens()[:, :3], cache=cache)
        heard.clear()
        model(tokens()[:, 3:4], cache=cache)
    block: Any = model.blocks[-1]
    assert {block.norm_attention, block.oracle.qkv, block.mlp.norm, block.mlp.up, block.mlp.down} <= set(heard)


def test_a_cache_keeps_results_only_when_nothing_learns() -> None:
    cache, made = LayerCache(), []

    def make_one() -> int:
        made.append(1)
        return len(made)

    assert [once(None, "a", make_one), once(None, "a", make_one)] == [1, 2]
    assert [once(cache, "a", make_one), once(cache, "a", make_one)] == [3, 4]
    with torch.no_grad():
        assert [once(cache, "a", make_one), once(cache, "a", make_one), once(cache, "b", make_one)] == [5, 5, 6]
    owner: Any = make("softmax-exp-euler").blocks[0]
    assert part(owner, "mlp", None) is part(owner, "mlp", cache) is owner.mlp
    with torch.no_grad():
        assert part(owner, "mlp", cache) is part(owner, "mlp", cache) is not owner.mlp


class Operations(TorchDispatchMode):
    """Counts what reaches the kernels, views included."""

    def __init__(self) -> None:
        super().__init__()
        self.names: Counter[str] = Counter()

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names[str(function)] += 1
        return function(*args, **(kwargs or {}))


@torch.no_grad()
def operations_of_a_token(name: str, n_layer: int, **overrides: Any) -> Counter[str]:
    model = make(name, dtype=torch.float32, n_layer=n_layer, **overrides)
    cache = model.new_cache(1)
    for n in (5, 1):  # the second call has everything that the first keeps
        model.hidden(tokens(1, n), cache)
    with Operations() as seen:
        model.hidden(tokens(1, 1), cache)
    return seen.names


# operations a layer: in brackets what they were before tokens had a path of their own
MOST = {
    "softmax-baseline": ({}, 38),  # (42)
    "softmax-exp-euler": ({}, 47),  # (69)
    "softmax-plain-euler": ({}, 47),
    "softmax-presymp-euler": ({}, 48),  # its factor of the momentum may be negative, which LayerNorm cannot absorb
    "multi-head": ({"heads": "multi"}, 52),
}


@pytest.mark.parametrize("case", MOST)
def test_operations_of_a_cached_token(case: str) -> None:
    """What a token costs is the number of operations, not their size: keep it from growing unseen."""
    overrides, most = MOST[case]
    name = case if case.startswith("softmax") else "softmax-exp-euler"
    few, many = (operations_of_a_token(name, n, **overrides) for n in (1, 2))
    assert many.total() - few.total() <= most, f"a layer has {sorted((many - few).items())}"


def test_the_matrices_of_a_tied_value_are_worked_out_once() -> None:
    """A = Sym(W_K' W_Q) and B = Sym(V A^-1) stay the same while a text grows."""
    seen = operations_of_a_token("softmax-plain-euler", 2, value="tied", mobility="derived")
    assert not any("solve" in name for name in seen)
