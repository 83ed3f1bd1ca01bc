"""What cannot be accelerated is refused in one sentence, and stays as it was."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor, nn

import sympformer as sf
from sympformer.errors import InputError
from sympformer.inertia import InertiaConfig
from tests.inertia.cases import SIZES, Block, Plain, family, plain


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
