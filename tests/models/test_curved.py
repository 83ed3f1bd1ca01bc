"""The attention steps h0, r2 and h1: the curvature term beside its twin of T x T matrices, and what it costs."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

import sympformer as sf
from sympformer import ops
from sympformer.errors import InputError
from sympformer.models import ModelConfig
from sympformer.models.describe import kernel_passes
from sympformer.nn import View, perturb_
from sympformer.nn.attention import CurvedAttention
from sympformer.nn.positions import positions
from tests.models import by_hand
from tests.models.cases import SIZE, make, tokens

T, D = 9, SIZE["d_model"]
OPTIONS: dict[str, dict[str, Any]] = {
    "heads of 8": {},
    "one head": {"n_head": 1},
    "grouped and turned": {"n_head": 4, "n_kv_head": 2, "positions": "rotary"},
}


def attention_and_tokens(options: dict[str, Any]) -> tuple[CurvedAttention, Any, Tensor, Tensor]:
    """The part, its config, positions and motions."""
    cfg = sf.variant("softmax-yuriiformer", attention_step="r2", **(SIZE | options))
    part = perturb_(CurvedAttention(cfg), seed=4).double()
    x, u = torch.randn(2, 2, T, D, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    return part, cfg, x.requires_grad_(), u.requires_grad_()  # type: ignore[return-value]


def view_of(cfg: Any) -> View:
    view = View.make(True, 0, T, torch.device("cpu"), torch.float64)
    return view._replace(rotation=positions(cfg).rotation(torch.arange(T), torch.float64))


@pytest.mark.parametrize("ahead", [True, False], ids=["u known", "u of F"])
@pytest.mark.parametrize("row", OPTIONS)
def test_the_curvature_term_is_its_formula(row: str, ahead: bool) -> None:
    """F and C against dense matrices in float64: values, and gradients of tokens, motions and weights."""
    part, cfg, x, u = attention_and_tokens(OPTIONS[row])
    block = SimpleNamespace(attention=part)
    F, motion, C = part(x, view_of(cfg), u if ahead else lambda F: u + 0.5 * F)
    F_want = by_hand.attention(block, cfg, x)
    C_want = by_hand.curvature(block, cfg, x, u if ahead else u + 0.5 * F_want)
    assert motion is u if ahead else not motion.equal(u)
    torch.testing.assert_close((F, C), (F_want, C_want), rtol=1e-11, atol=1e-11)
    assert C.abs().mean() > F.abs().mean()  # a term of weight, not of rounding
    weights = torch.randn(2, 2, T, D, dtype=torch.float64)
    leaves = (x, u, *part.parameters())
    slopes = [torch.autograd.grad((weights * torch.stack(pair)).sum(), leaves) for pair in ((F, C), (F_want, C_want))]
    torch.testing.assert_close(*slopes, rtol=1e-9, atol=1e-10)


def test_the_slope_a_is_that_of_the_normaliser() -> None:
    """a_i is the derivative of log sum_j exp s_ij when queries and keys move along u, the mean over heads."""
    part, cfg, x, u = attention_and_tokens({})
    view = view_of(cfg)

    def lse(s: Tensor) -> Tensor:
        q, k, _ = part.heads_of(part.qkv(x + s * u), view)
        return ops.attention_rows(q, k, scale=part.scale)[1].mean(1)

    slope = torch.autograd.functional.jacobian(lse, torch.zeros((), dtype=torch.float64))
    with torch.no_grad():
        part.out.weight.zero_()  # leaves C = a u
        C = part(x, view, u)[2]
    torch.testing.assert_close(C, slope.unsqueeze(-1) * u, rtol=1e-11, atol=1e-12)


def test_with_all_assumptions_it_is_the_acceleration_of_geodesics() -> None:
    """One head, full visibility, s_ij = x_i' A x_j with A symmetric, values A x: -C is the acceleration of the curves
    that make the integral of sum_i z_i |x_i'|^2 / 2 stationary, z_i = sum_j exp s_ij."""
    part, _, x, u = attention_and_tokens({"n_head": 1})
    W = torch.eye(D, dtype=torch.float64) + 0.1 * part.qkv.weight[:D].detach()
    A = part.scale * W.mT @ W
    with torch.no_grad():
        part.qkv.weight.copy_(torch.cat((W, W, A)))
        part.out.weight.copy_(torch.eye(D, dtype=torch.float64))
    C = part(x, View.make(False, 0, T, torch.device("cpu"), torch.float64), u)[2]

    def z(x: Tensor) -> Tensor:
        return torch.exp(x @ A @ x.mT).sum(-1, keepdim=True)

    (pull,) = torch.autograd.grad((z(x) * u.detach() ** 2).sum() / 2, x)  # d/dt (z u) = dL/dx, so z u' = pull - z' u
    z_slope = torch.autograd.functional.jacobian(lambda s: z(x + s * u), torch.zeros((), dtype=torch.float64))
    torch.testing.assert_close(C, (z_slope * u - pull) / z(x), rtol=1e-9, atol=1e-10)


def test_no_motion_has_no_curvature() -> None:
    part, cfg, x, _ = attention_and_tokens({})
    assert not part(x, view_of(cfg), torch.zeros_like(x))[2].any()


@pytest.mark.parametrize(("step", "passes", "products"), [("ahead", 1, 4), ("h0", 1, 4), ("r2", 2, 8), ("h1", 1, 8)])
def test_what_an_attention_step_costs(step: str, passes: int, products: int) -> None:
    """Kernel passes a layer, and d x d matrix products of a token: Q, K, V and O, with C as many again."""
    model = make("softmax-yuriiformer", attention_step=step, mlp="none")
    assert kernel_passes(model) == passes * model.cfg.n_layer
    seen: list[int] = []
    for layer in model.layers():
        for part in (layer.attention.qkv, layer.attention.out):
            part.register_forward_hook(lambda module, *_: seen.append(module.weight.numel() // D**2))
    model.hidden(torch.zeros(1, 2, dtype=torch.long))
    assert sum(seen) == products * model.cfg.n_layer
    assert (f"attention step {step}" in model.describe()) == (step != "ahead")


def test_what_does_not_go_with_a_curvature_term_is_refused() -> None:
    refused: list[tuple[str, dict[str, Any], str]] = [
        ("linear-yuriiformer", {"attention_step": "r2"}, "the curvature of softmax kernels, which linear attention"),
        ("softmax-yuriiformer", {"attention_step": "h1", "qk_norm": True}, "qk_norm does not go with attention_step"),
        ("softmax-yuriiformer", {"attention_step": "h1", "momentum_bound": "none"}, "third power of the momentum"),
        ("softmax-baseline", {"attention_step": "h0"}, "belongs to yuriiformer layers, not to gpt"),
        ("softmax-yuriiformer", {"attention_step": "h0", "mlp": "none", "mu": 0.2}, "mu = 0.2 has no effect"),
        ("softmax-yuriiformer", {"attention_step": "h2"}, "attention_step"),
    ]
    for name, options, message in refused:
        with pytest.raises(InputError, match=message):
            sf.variant(name, **options)


@pytest.mark.parametrize("bound", ["norm", "cap"])
@pytest.mark.parametrize("step", ["r2", "h1"])
def test_weights_of_any_size_stay_finite(step: str, bound: str) -> None:
    model = make("softmax-yuriiformer", "paper", torch.float32, attention_step=step, momentum_bound=bound)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1000.0 if parameter.ndim == 2 else 1.0)
    loss = model(tokens(1), targets=tokens(1)).loss
    loss.backward()
    assert torch.isfinite(loss)
    assert all(torch.isfinite(p.grad).all() for p in model.parameters() if p.grad is not None)


def test_a_saved_yuriiformer_looks_ahead_as_it_did() -> None:
    """Files of early versions hold `look_ahead: false` beside it, an option of other layers."""
    saved = {
        key: value for key, value in sf.variant("softmax-yuriiformer").to_dict().items() if key != "attention_step"
    }
    assert ModelConfig.from_saved(saved | {"look_ahead": False}) == sf.variant("softmax-yuriiformer")
    assert ModelConfig.from_dict({"architecture": "yuriiformer"}).attention_step == "ahead"
