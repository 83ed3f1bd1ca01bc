"""The models' oracles against the slow systems of `flows`, and the blocks against their equations written out."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import sympformer as sf
from sympformer import flows
from sympformer.nn import ATTENTIONS, View, perturb_
from tests.models.cases import BARE, SIZE, make, tokens

D = SIZE["d_model"]


def visible(T: int, causal: bool) -> View:
    return View.of(causal, 0, T, torch.device("cpu"), torch.float64)


class Asked:
    """Attention at positions x, with the matrices that it works out itself."""

    def __init__(self, part: Any) -> None:
        self.part = part

    def __call__(self, x: Tensor, view: View) -> Any:
        return self.part(x, view, self.part.matrices())

    def __getattr__(self, name: str) -> Any:
        return getattr(self.part, name)


def oracle(name: str, **overrides: Any) -> Any:
    cfg = sf.variant(name, "full", **(SIZE | overrides))
    return Asked(perturb_(ATTENTIONS[cfg.attention](cfg), seed=4).double())


def state(T: int = 9) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(5)
    x, y = torch.randn(2, 2, T, D, generator=generator, dtype=torch.float64)
    return x, y / 2


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("form", ["own", "paper"])
def test_softmax_oracle_with_tied_values_is_the_flow(form: str, causal: bool) -> None:
    """Tied values and a positive definite B: the layer's oracle is the system of the paper, values and gradients."""
    fast = oracle("softmax-exp-euler", form=form, value="tied", mobility="spd")
    slow = flows.SoftmaxAttention(*(M.detach() for M in fast.matrices()), causal=causal, form=form)  # type: ignore[arg-type,misc]
    x, y = state()
    x.requires_grad_(), y.requires_grad_()
    got, want = fast(x, visible(9, causal)).both(y), slow.at(x).both(y)
    torch.testing.assert_close(got, want, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(fast(x, visible(9, causal)).first_order(), slow.gradient_flow(x), rtol=1e-10, atol=1e-12)
    weights = torch.randn(2, 2, 9, D, dtype=torch.float64)
    grads = [
        torch.autograd.grad(sum((w * part).sum() for w, part in zip(weights, fields, strict=True)), (x, y))
        for fields in (got, want)
    ]
    torch.testing.assert_close(grads[0], grads[1], rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("causal", [True, False])
def test_linear_oracle_with_tied_values_is_the_flow(causal: bool) -> None:
    """With W_Q = W_K the kernel is symmetric and the layer's oracle is the linear system."""
    fast = oracle("linear-exp-euler", value="tied")
    with torch.no_grad():
        W = torch.eye(D, dtype=torch.float64) + 0.1 * fast.qk.weight[:D]
        fast.qk.weight.copy_(torch.cat((W, W)))
        fast.potential.weight.copy_(fast.potential.weight + fast.potential.weight.mT)
    A = fast.scale * W.mT @ W
    slow = flows.LinearAttention(A, fast.potential.weight.detach(), causal=causal)
    x, y = state()
    fast_y = y @ torch.eye(D, dtype=torch.float64)
    got, want = fast(x, visible(9, causal)).both(fast_y), slow.at(x).both(y)
    torch.testing.assert_close(got, want, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(fast(x, visible(9, causal)).first_order(), slow.gradient_flow(x), rtol=1e-10, atol=1e-12)


def test_linear_kernel_spd_is_the_flow_under_its_assumptions() -> None:
    fast = oracle("linear-exp-euler", value="spd", d_key=4)
    A, _, V = fast.matrices()
    torch.testing.assert_close((A, V), (A.mT, V.mT), rtol=1e-14, atol=1e-14)
    assert torch.linalg.eigvalsh(A).min() > 0  # of rank 4 but for eps
    x, y = state()
    got = fast(x, visible(9, True)).both(y)
    torch.testing.assert_close(got, flows.LinearAttention(A, V, causal=True).at(x).both(y), rtol=1e-10, atol=1e-12)


def test_averaged_heads_average_the_scores() -> None:
    """One kernel of width d equals the mean over heads of the scaled score matrices, before the exponential."""
    fast = oracle("softmax-exp-euler", n_head=4)
    x, y = state()
    q, k, v = fast.qkv(x).chunk(3, -1)
    per_head = [a @ b.mT / math.sqrt(D / 4) for a, b in zip(q.chunk(4, -1), k.chunk(4, -1), strict=True)]
    scores = torch.stack(per_head).mean(0)
    z = scores.exp().tril().sum(-1, keepdim=True) / visible(9, True).n
    By = y @ fast.mobility(None).mT
    rho = (y * By).sum(-1, keepdim=True) / z**2
    force = (rho / 2 + 1) * (scores.exp().tril() @ v) / visible(9, True).n
    got = fast(x, visible(9, True)).both(y)
    torch.testing.assert_close(got, (By / z, force), rtol=1e-10, atol=1e-12)


def test_multi_head_is_one_flow_per_head() -> None:
    fast = oracle("softmax-exp-euler", n_head=2, heads="multi", form="paper")
    x, y = state()
    q, k, v = (part.chunk(2, -1) for part in fast.qkv(x).chunk(3, -1))
    By = (y @ fast.mobility(None).mT).chunk(2, -1)
    velocities, forces = [], []
    for h in range(2):
        M = (q[h] @ k[h].mT / math.sqrt(D / 2)).exp().tril() / visible(9, True).n
        z = M.sum(-1, keepdim=True)
        rho = (y.chunk(2, -1)[h] * By[h]).sum(-1, keepdim=True) / z**2
        velocities.append(By[h] / z)
        forces.append((rho / 2 + 1) * (M @ v[h]) + M @ (rho / 2 * v[h]))
    got = fast(x, visible(9, True)).both(y)
    torch.testing.assert_close(got, (torch.cat(velocities, -1), torch.cat(forces, -1)), rtol=1e-9, atol=1e-11)


def test_derived_mobility_is_symmetric_v_over_a() -> None:
    fast = oracle("softmax-exp-euler", value="tied", mobility="derived")
    A, _ = fast.matrices()
    V = fast.mobility.factor.weight
    B = V @ torch.linalg.inv(A)
    torch.testing.assert_close(fast.mobility(A), (B + B.mT) / 2, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_derived_mobility_is_computed_in_float32(dtype: torch.dtype) -> None:
    """Autocast would round A to 8 or 11 bits before dividing by it."""
    fast = oracle("softmax-exp-euler", value="tied", mobility="derived")
    fast.part.float()
    A, B = fast.matrices()
    with torch.autocast("cpu", dtype=dtype):
        rough_A, rough_B = fast.matrices()
    assert torch.equal(A, rough_A)
    assert torch.equal(B, rough_B)
    x, y = (t.float() for t in state())
    exact = fast(x, visible(9, True)).velocity(1e3 * y)
    with torch.autocast("cpu", dtype=dtype):  # B y in float16 would be infinite here
        rough = fast(x, visible(9, True)).velocity(1e3 * y)
    assert (rough - exact).abs().max() < 0.05 * exact.abs().max()


def test_spd_mobility_is_positive_definite() -> None:
    B = oracle("softmax-exp-euler", mobility="spd").mobility(None)
    torch.testing.assert_close(B, B.mT, rtol=1e-14, atol=1e-14)
    assert torch.linalg.eigvalsh(B).min() > 0


def test_linear_baseline_is_masked_linear_attention() -> None:
    model = make("linear-baseline", n_layer=1, mlp="none", **BARE)
    idx = tokens()
    b: Any = model.blocks[0]
    places: Any = model.positions
    x = model.tokens.weight[idx] + places.weight[: idx.shape[1]]
    u = F.layer_norm(x, (D,), b.norm.weight)
    q, k, v = ((u @ w.mT).view(2, -1, 2, D // 2).transpose(1, 2) for w in b.attention.qk.weight.chunk(3))
    mixed = (q @ k.mT / math.sqrt(D / 2)).tril() @ v / visible(idx.shape[1], True).n
    x = x + mixed.transpose(1, 2).reshape(2, -1, D) @ b.attention.out.weight.mT
    end: Any = model.norm
    want = F.layer_norm(x, (D,), end.weight) @ model.tokens.weight.mT
    torch.testing.assert_close(model(idx).logits, want, rtol=1e-9, atol=1e-9)


def test_gpt_baseline_equals_hugging_face_gpt2() -> None:
    transformers = pytest.importorskip("transformers", reason="needs the hf extra: pip install '.[hf]'")
    model = make("softmax-baseline", dtype=torch.float32, **BARE)
    cfg = model.cfg
    theirs = transformers.GPT2LMHeadModel(
        transformers.GPT2Config(
            vocab_size=cfg.vocab_size, n_positions=cfg.block_size, n_embd=cfg.d_model, n_layer=cfg.n_layer,
            n_head=cfg.n_head, activation_function="gelu", resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
            bos_token_id=0, eos_token_id=0,
        )
    ).eval()  # fmt: skip
    body: Any = theirs.transformer
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.zero_()
        body.wte.weight.copy_(model.tokens.weight)
        body.wpe.weight.copy_(model.positions.weight)
        body.ln_f.weight.copy_(model.norm.weight)
        for ours, block in zip(model.blocks, body.h, strict=True):
            ours_: Any = ours
            block.ln_1.weight.copy_(ours_.norm.weight)
            block.ln_2.weight.copy_(ours_.mlp.norm.weight)
            for mine, other in (
                (ours_.attention.qkv, block.attn.c_attn),
                (ours_.attention.out, block.attn.c_proj),
                (ours_.mlp.up, block.mlp.c_fc),
                (ours_.mlp.down, block.mlp.c_proj),
            ):
                other.weight.copy_(mine.weight.mT)
        difference = (model(tokens()).logits - theirs(tokens()).logits).abs().max()
    assert difference < 1e-5
