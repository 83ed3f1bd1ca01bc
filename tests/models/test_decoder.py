"""The decoder: few operations a token, and the same figures as the plain model with its plain cache."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from sympformer import ops
from sympformer.models import Decoder, LanguageModel
from sympformer.nn import Norm, Projection, fast
from tests.models.cases import BARE, SIZE, every_choice, every_model, make, make_choice, tokens

CHUNKS = (5, 1, 1, 3, 1)


@torch.no_grad()
def check_decoder(model: LanguageModel, tolerance: float = 1e-12) -> None:
    """The decoder, the plain model with a cache, and the plain model without one agree."""
    idx = tokens(2, sum(CHUNKS))
    decoder, caches = Decoder(model), [model.new_cache(2) for _ in range(2)]
    assert all(program is not layer for program, layer in zip(decoder.programs, model.layers(), strict=True))
    with ops.plain():
        whole = model.hidden(idx)
    rows: list[list[Tensor]] = [[], []]
    for chunk in idx.split(CHUNKS, 1):
        rows[0].append(decoder.hidden(chunk, caches[0]))
        with ops.plain():
            rows[1].append(model.hidden(chunk, caches[1]))
    scale = max(1.0, whole.abs().max().item())
    for pieces in rows:
        assert (torch.cat(pieces, 1) - whole).abs().max() <= tolerance * scale


@every_model
def test_decoder_is_the_plain_model(name: str, preset: str) -> None:
    check_decoder(make(name, preset))


@every_choice
def test_decoder_is_the_plain_model_for_config_choices(choice: str) -> None:
    check_decoder(make_choice(choice), 1e-11)


def modules() -> dict[str, nn.Module]:
    """One of each kind that is folded, with weights that are not their starts."""
    model = make("softmax-exp-euler")
    block: Any = model.blocks[0]
    with torch.no_grad():
        block.norm_attention.weight.copy_(torch.linspace(0.5, 2, SIZE["d_model"]))
    return {"projection": block.oracle.qkv, "norm": block.norm_attention, "mlp": block.mlp}


every_kind = pytest.mark.parametrize("kind", ["projection", "norm", "mlp"])


@every_kind
@torch.no_grad()
def test_a_folded_module_gives_what_the_module_gives(kind: str) -> None:
    module, x = modules()[kind], torch.randn(2, 3, SIZE["d_model"], dtype=torch.float64)
    function = fast._fold(module)
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


def patched(module: nn.Module) -> nn.Module:
    module.forward = module.forward  # as offloading does
    return module


def elsewhere(module: nn.Module) -> nn.Module:
    """Without its weights, as a model that is loaded in parts."""
    return module.to("meta")


class Adapted(Projection):
    """A projection that someone has changed."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) + 1


@pytest.mark.parametrize("change", [hooked, hooked_before, patched, nn.Module.train])
@every_kind
def test_a_module_that_someone_listens_to_or_that_learns_is_called(
    kind: str, change: Callable[[nn.Module], nn.Module]
) -> None:
    module = change(modules()[kind])
    assert fast._fold(module) is module


@pytest.mark.parametrize("kind", ["projection", "norm"])
def test_a_module_without_its_weights_is_called(kind: str) -> None:
    module = elsewhere(modules()[kind])
    assert fast._fold(module) is module


@torch.no_grad()
def test_a_changed_module_is_called() -> None:
    adapted = Adapted(4, 4).eval()
    assert fast._fold(adapted) is adapted
    mlp: Any = modules()["mlp"]
    x = torch.randn(1, 1, SIZE["d_model"], dtype=torch.float64)
    before = fast._fold(mlp)(x)
    mlp.down = Adapted(mlp.down.in_features, mlp.down.out_features).double().eval()
    assert torch.equal(fast._fold(mlp)(x), mlp(x))
    assert not torch.equal(mlp(x), before)


def test_adapters_and_hooks_inside_a_model_are_heard_by_the_decoder() -> None:
    model, heard = make("softmax-exp-euler"), []
    for module in model.modules():
        if isinstance(module, Projection | Norm):
            module.register_forward_hook(lambda module, *_: heard.append(module))
    decoder, cache = Decoder(model), model.new_cache(2)
    decoder.hidden(tokens()[:, :3], cache)
    heard.clear()
    decoder.hidden(tokens()[:, 3:4], cache)
    block: Any = model.blocks[-1]
    parts = {block.norm_attention, block.oracle.qkv, block.mlp.norm, block.mlp.up, block.mlp.down}
    assert parts | {block.bound_attention, block.bound_mlp} <= set(heard)


def test_a_patched_layer_is_called_by_the_decoder_and_by_the_stack() -> None:
    model, called = make("softmax-yuriiformer"), []
    layer: Any = model.blocks[1]
    own = layer.forward

    def forward(*args: Any) -> Any:
        called.append(1)
        return own(*args)

    layer.forward = forward
    with torch.no_grad():
        model.hidden(tokens())
        assert called == [1]
    model.generate(tokens(1, 3), max_new_tokens=2)
    assert len(called) == 3


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
    decoder, cache = Decoder(model), model.new_cache(1)
    for n in (5, 1):  # the second call has everything that the first keeps
        decoder.hidden(tokens(1, n), cache)
    with Operations() as seen:
        decoder.hidden(tokens(1, 1), cache)
    return seen.names


# operations a layer: in brackets what they were before tokens had a path of their own
MOST = {
    "softmax-baseline": ({}, 38),  # (42)
    "softmax-exp-euler": ({}, 47),  # (69)
    "softmax-plain-euler": ({}, 47),
    "softmax-presymp-euler": ({}, 48),  # its factor of the momentum may be negative, which LayerNorm cannot absorb
    "multi-head": ({"heads": "multi"}, 52),
    "ahead": ({"second_table": "every_layer", "transport": "positions"}, 50),
}


@pytest.mark.parametrize("case", MOST)
def test_operations_of_a_cached_token(case: str) -> None:
    """What a token costs is the number of operations, not their size: keep it from growing unseen."""
    overrides, most = MOST[case]
    name = case if case.startswith("softmax") else "softmax-exp-euler"
    few, many = (operations_of_a_token(name, n, **BARE | overrides) for n in (1, 2))
    assert many.total() - few.total() <= most, f"a layer has {sorted((many - few).items())}"


def test_the_matrices_of_a_tied_value_are_worked_out_once() -> None:
    """A = Sym(W_K' W_Q) and B = Sym(V A^-1) stay the same while a text grows."""
    seen = operations_of_a_token("softmax-plain-euler", 2, value="tied", mobility="derived")
    assert not any("solve" in name for name in seen)
