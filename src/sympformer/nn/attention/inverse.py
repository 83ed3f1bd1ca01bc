"""The inverse of a symmetric matrix that may be singular, for B = V A^-1 of the paper's softmax mobility.

An eigenvalue a is inverted as a^7 / (a^8 + eps^8) with eps = u^(9/16) |A|, where u is the machine epsilon and |A| the
root mean square of A's eigenvalues (1e-6 at least):

- Well conditioned: the result is off by (eps / a)^8, below the rounding of A^-1 itself for condition numbers up to
  u^(-1/2), that is 2,900 in float32 and 7e7 in float64. Nothing else is regularised.
- Singular: directions that A annihilates, exactly or up to rounding, get none, as under the pseudo-inverse. So Q and
  K may be narrower than the tokens.
- In between no eigenvalue of the result exceeds 0.8 / eps. The result and its gradient are finite for every finite A.
"""

from typing import Any

import torch
from torch import Tensor

EXPONENT = 0.5625
SMALLEST = 1e-6  # a matrix below this size is inverted as if it were of this size, so that zero has an answer too


def symmetric_inverse(A: Tensor) -> Tensor:
    """A^7 (A^8 + eps^8 I)^-1 of a symmetric A (d, d), float32 or float64; see above. NaN where A is not finite."""
    eps = torch.finfo(A.dtype).eps ** EXPONENT * (torch.linalg.matrix_norm(A) / len(A) ** 0.5).clamp_min(SMALLEST)
    return _Inverse.apply(A / eps) / eps


class _Inverse(torch.autograd.Function):
    """A^7 (A^8 + I)^-1 of a symmetric A.

    Its derivative is by divided differences of a^7 / (a^8 + 1), which are sums of products of a^i / (a^8 + 1) and
    b^j / (b^8 + 1): no difference of eigenvalues is divided by, so equal ones do no harm.
    """

    @staticmethod
    def forward(ctx: Any, A: Tensor) -> Tensor:
        a, U = torch.linalg.eigh(A.nan_to_num())  # LAPACK refuses what is not finite
        shares = _shares(a)
        ctx.save_for_backward(shares, U)
        return (U * shares[7]) @ U.mT + 0 * A  # 0 A: what is not finite stays so

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, dF: Tensor) -> Tensor:
        shares, U = ctx.saved_tensors
        slopes = shares[:7].mT @ shares[:7].flip(0) - torch.outer(shares[7], shares[7])
        return U @ ((U.mT @ dF @ U) * slopes) @ U.mT


def _shares(a: Tensor) -> Tensor:
    """a^i / (a^8 + 1) for i = 0 ... 7, as rows (8, d). No power overflows: above 1 they are those of 1 / a."""
    small = a.abs() < 1
    base = torch.where(small, a, 1 / a)
    rows = [torch.where(small, base**i, base ** (8 - i)) for i in range(8)]
    return torch.stack(rows) / (1 + base**8)
