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
from sympformer.nn.attention.inverse import symmetric_inverse
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


DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.float64])


def with_spectrum(spectrum: Tensor, dtype: torch.dtype) -> Tensor:
    """A symmetric matrix with these eigenvalues, every other one negative."""
    d = len(spectrum)
    Q, _ = torch.linalg.qr(torch.randn(d, d, dtype=torch.float64, generator=torch.Generator().manual_seed(d)))
    signs = torch.tensor([1.0, -1.0], dtype=torch.float64).repeat(d)[:d]
    A = (Q * (signs * spectrum)) @ Q.mT
    return ((A + A.mT) / 2).to(dtype)


def error(got: Tensor, want: Tensor) -> float:
    return ((got.double() - want).norm() / want.norm()).item()


@DTYPES
@pytest.mark.parametrize("size", [1e-4, 1.0, 1e3])
@pytest.mark.parametrize("condition", [1.0, 30.0, 2000.0])
def test_it_is_the_inverse_to_rounding(condition: float, size: float, dtype: torch.dtype) -> None:
    spectrum = torch.logspace(0, 1, 48, dtype=torch.float64, base=1 / condition)
    A = size * with_spectrum(spectrum, dtype)
    assert error(symmetric_inverse(A), torch.linalg.inv(A.double())) < 2 * torch.finfo(dtype).eps * max(condition, 10)


@DTYPES
def test_a_singular_matrix_gets_its_pseudo_inverse(dtype: torch.dtype) -> None:
    W = torch.randn(48, 6, dtype=dtype, generator=torch.Generator().manual_seed(1))
    A = W @ W.mT  # rank 6, its zeros known to rounding only
    want = torch.linalg.pinv(A.double(), rtol=1e-5, hermitian=True)
    assert error(symmetric_inverse((A + A.mT) / 2), want) < 300 * torch.finfo(dtype).eps


@DTYPES
def test_an_eigenvalue_on_its_way_to_zero(dtype: torch.dtype) -> None:
    """The inverse grows to 0.8 / eps and then falls to nothing: a bound on B, and no jump."""
    eps = torch.finfo(dtype).eps ** 0.5625 * (3 / 4) ** 0.5
    found = []
    for small in torch.logspace(0, -20, 200, dtype=torch.float64):
        spectrum = torch.tensor([1.0, 1.0, 1.0, small.item()], dtype=torch.float64)
        found.append(symmetric_inverse(torch.diag(spectrum).to(dtype))[3, 3].item())
    assert 0.5 / eps < max(found) < 0.8 / eps
    assert found[-1] < 1e-3
    peak = found.index(max(found))
    assert found[: peak + 1] == sorted(found[: peak + 1])


V = torch.randn(5, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(2))


@pytest.mark.parametrize("spectrum", [[3.0, 2.0, 1.0, 0.5, 0.1], [1.0] * 5], ids=["distinct", "equal"])
def test_gradient(spectrum: list[float]) -> None:
    A = with_spectrum(torch.tensor(spectrum, dtype=torch.float64), torch.float64).requires_grad_()
    assert torch.autograd.gradcheck(lambda M: V @ symmetric_inverse((M + M.mT) / 2), (A,))


def test_gradient_of_narrow_factors() -> None:
    """A = Sym(W_K' W_Q) of rank 4 in 5 dimensions: singular, and it stays so."""
    W_Q, W_K = torch.randn(2, 2, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    W_Q.requires_grad_(), W_K.requires_grad_()
    assert torch.autograd.gradcheck(lambda Q, K: V @ symmetric_inverse(Q.mT @ K + K.mT @ Q), (W_Q, W_K))


def test_gradient_where_the_inverse_bends() -> None:
    """The last eigenvalue is near eps, so steps and values are counted in units of it."""
    A, unit = torch.diag(torch.tensor([1.0, 1.0, 1.0, 1.0, 2e-9], dtype=torch.float64)), 1e-9
    M = torch.zeros(5, 5, dtype=torch.float64, requires_grad=True)
    slope = torch.autograd.grad(unit * symmetric_inverse(A + unit * (M + M.mT) / 2)[4, 4], M)[0][4, 4]
    assert slope.abs() > 0.05  # it does bend here

    def B(M: Tensor) -> Tensor:
        return unit * V @ symmetric_inverse(A + unit * (M + M.mT) / 2)

    assert torch.autograd.gradcheck(B, (M,), eps=1e-2, atol=1e-3, rtol=1e-3)


@DTYPES
def test_zero_and_what_is_not_finite(dtype: torch.dtype) -> None:
    zero = torch.zeros(6, 6, dtype=dtype, requires_grad=True)
    symmetric_inverse(zero).sum().backward()
    assert symmetric_inverse(zero).abs().max() == 0
    assert zero.grad is not None and torch.isfinite(zero.grad).all()  # noqa: PT018
    broken = torch.eye(6, dtype=dtype)
    broken[2, 3] = broken[3, 2] = float("nan")
    assert symmetric_inverse(broken).isnan().all()
