"""Linear attention as an accelerated flow: the Stein flow of a quadratic potential with the kernel x' A y.

H(x, y) = 1/(2N) sum_ij <y_i, y_j> x_i' A x_j  -  1/2 sum_i x_i' V x_i         (full visibility)
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from sympformer.flows import checks
from sympformer.flows.systems.base import Field, System
from sympformer.flows.systems.visibility import counts, hide_future


@dataclass(frozen=True)
class LinearField(Field):
    """The linear field at fixed x: K_ij = x_i' A x_j on the visible pairs."""

    system: "LinearAttention"
    x: Tensor  # (..., N, d)
    K: Tensor  # (..., N, N)
    n: Tensor  # (N, 1)

    def velocity(self, y: Tensor) -> Tensor:
        """velocity_i = 1/n_i sum_j (x_i' A x_j) y_j."""
        return self.K @ y / self.n

    def force(self, y: Tensor) -> Tensor:
        """force_i = V x_i - 1/n_i sum_j <y_i, y_j> A x_j."""
        gram = hide_future(y @ y.mT, self.system.causal)
        return self.x @ self.system.V - gram @ self.x @ self.system.A / self.n

    def first_order(self) -> Tensor:
        """Linear attention: x_i' = 1/n_i sum_j V x_j (x_j' A x_i)."""
        return self.K @ (self.x @ self.system.V) / self.n


class LinearAttention(System):
    """Linear attention with A symmetric positive definite and V symmetric.

    With full visibility (velocity, force) = (dH/dy, -dH/dx). With `causal=True` they are the row-masked formulas; the
    energies are then diagnostics, as for the softmax system.
    """

    def __init__(self, A: Tensor, V: Tensor, causal: bool = False) -> None:
        super().__init__()
        self.A, self.V = checks.positive_definite("A", A), checks.symmetric("V", V)
        checks.same_size(A=A, V=V)
        self.dim, self.causal = A.shape[0], causal
        # A quadratic is bounded below exactly when it opens upwards: V <= 0.
        self.lower_bound = 0.0 if torch.linalg.eigvalsh(V.detach()).max() <= 0 else None

    def _field(self, x: Tensor) -> LinearField:
        return LinearField(self, x, hide_future(x @ self.A @ x.mT, self.causal), counts(x, self.causal))

    def kinetic(self, x: Tensor, y: Tensor) -> Tensor:
        """1/2 sum_i 1/n_i sum_{j in vis(i)} <y_i, y_j> x_i' A x_j."""
        K = hide_future(x @ self.A @ x.mT, self.causal) / counts(x, self.causal)
        return (K * (y @ y.mT)).sum((-2, -1)) / 2

    def potential(self, x: Tensor) -> Tensor:
        """-1/2 sum_i x_i' V x_i."""
        return -(x * (x @ self.V)).sum((-2, -1)) / 2
