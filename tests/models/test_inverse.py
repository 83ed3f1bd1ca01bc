"""The inverse behind B = V A^-1: equal to it where A is well conditioned, the pseudo-inverse where A is singular."""

import pytest
import torch
from torch import Tensor

from sympformer.nn.attention.inverse import symmetric_inverse

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
