"""Linear attention as an accelerated flow: the Stein flow of a quadratic potential with the kernel x' A y.

H(x, y) = 1/(2N) sum_ij <y_i, y_j> x_i' A x_j  -  1/2 sum_i x_i' V x_i         (full visibility)
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from sympformer.flows import checks
from sympformer.flows.systems.base import Field, System
from sympformer.flows.systems.visibility import counts, hide_future


def visible_sum(q: Tensor, k: Tensor, v: Tensor, causal: bool) -> Tensor:
    """sum_{j in vis(i)} <q_i, k_j> v_j. With full visibility through sum_j k_j v_j': no N x N matrix is made."""
    return hide_future(q @ k.mT, causal) @ v if causal else q @ (k.mT @ v)


@dataclass(frozen=True)
class LinearField(Field):
    """The linear field at fixed x."""

    system: "LinearAttention"
    x: Tensor  # (..., N, d)
    n: Tensor  # (N, 1)

    def velocity(self, y: Tensor) -> Tensor:
        """velocity_i = 1/n_i sum_j (x_i' A x_j) y_j."""
        return visible_sum(self.x @ self.system.A, self.x, y, self.system.causal) / self.n

    def force(self, y: Tensor) -> Tensor:
        """force_i = V x_i - 1/n_i sum_j <y_i, y_j> A x_j."""
        pull = visible_sum(y, y, self.x, self.system.causal) @ self.system.A / self.n
        return self.x @ self.system.V - pull

    def first_order(self) -> Tensor:
        """Linear attention: x_i' = 1/n_i sum_j V x_j (x_j' A x_i)."""
        return self.velocity(self.x @ self.system.V)


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
        return LinearField(self, x, counts(x, self.causal))

    def passes(self, momenta: int) -> int:
        """One a momentum: the state sum_j x_j y_j' serves velocity and force at the momenta in it only."""
        return max(1, momenta)

    def kinetic(self, x: Tensor, y: Tensor) -> Tensor:
        """1/2 sum_i 1/n_i sum_{j in vis(i)} <y_i, y_j> x_i' A x_j."""
        return (y * self._field(x).velocity(y)).sum((-2, -1)) / 2

    def potential(self, x: Tensor) -> Tensor:
        """-1/2 sum_i x_i' V x_i."""
        return -(x * (x @ self.V)).sum((-2, -1)) / 2
