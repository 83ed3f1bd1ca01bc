"""Softmax attention as an accelerated flow (the paper's accelerated softmax attention particles).

s_ij = x_i' A x_j      z_i = 1/n_i sum_{j in vis(i)} exp(s_ij)      rho_i = <y_i, B y_i> / z_i^2

H(x, y) = 1/2 sum_i <y_i, B y_i> / z_i  -  1/(2N) sum_ij exp(s_ij)        (full visibility)
"""

from dataclasses import dataclass
from typing import Literal, get_args

from torch import Tensor

from sympformer.errors import unknown_name
from sympformer.flows import checks
from sympformer.flows.systems.base import Field, System
from sympformer.flows.systems.visibility import counts, hide_future

Form = Literal["paper", "own"]


@dataclass(frozen=True)
class SoftmaxField(Field):
    """The softmax field at fixed x: M_ij = exp(s_ij)/n_i on the visible pairs, z = row sums of M."""

    system: "SoftmaxAttention"
    M: Tensor  # (..., N, N)
    z: Tensor  # (..., N, 1)
    Ax: Tensor  # (..., N, d)

    def rho(self, y: Tensor) -> Tensor:
        """rho_i = <y_i, B y_i> / z_i^2."""
        return (y * self.system.mobility(y)).sum(-1, keepdim=True) / self.z**2  # (..., N, 1)

    def velocity(self, y: Tensor) -> Tensor:
        """velocity_i = B y_i / z_i."""
        return self.system.mobility(y) / self.z

    def force(self, y: Tensor) -> Tensor:
        """Form "own":   sum_j M_ij (rho_i/2 + 1) A x_j.

        Form "paper": sum_j M_ij (rho_i/2 + rho_j/2 + 1) A x_j.
        """
        rho = self.rho(y)
        force = (rho / 2 + 1) * (self.M @ self.Ax)
        if self.system.form == "paper":
            force = force + self.M @ (rho / 2 * self.Ax)
        return force

    def first_order(self) -> Tensor:
        """Classical attention: x_i' = sum_j softmax_j(s_ij) V x_j with V = B A."""
        return self.system.mobility(self.M @ self.Ax) / self.z


class SoftmaxAttention(System):
    """Softmax attention with A symmetric and B symmetric positive definite (V = B A).

    form "paper" is the Hamiltonian force when every token sees every token; with `causal=True` it is the row-masked
    version of the same formula. form "own" is the exact gradient of each token's own Hamiltonian
    (`own_hamiltonian`), the keys it sees held fixed. Both are causal when `causal=True`.

    The energy of a causal system is a diagnostic: the sum of the masked rows. It does not generate the force, and
    its gradient must not be used as one, because the transpose of the mask would carry later tokens into earlier ones.
    """

    def __init__(self, A: Tensor, B: Tensor, causal: bool = False, form: Form = "paper") -> None:
        super().__init__()
        self.A, self.B = checks.symmetric("A", A), checks.positive_definite("B", B)
        checks.same_size(A=A, B=B)
        if form not in get_args(Form):
            raise unknown_name("force form", form, get_args(Form))
        self.dim, self.causal, self.form = A.shape[0], causal, form

    def mobility(self, y: Tensor) -> Tensor:
        """B y, row by row."""
        return y @ self.B.mT

    def passes(self, momenta: int) -> int:
        """One: the sums hold positions only. Form "paper" sums rho_j in a second, with the momentum of its force."""
        return 2 if self.form == "paper" and momenta > 0 else 1

    def _weights(self, queries: Tensor, keys: Tensor) -> Tensor:
        """M_ij = exp(x_i' A x_j) / n_i on the visible pairs, else 0."""
        scores = queries @ self.A @ keys.mT  # (..., N, N)
        return hide_future(scores.exp(), self.causal) / counts(queries, self.causal)

    def _field(self, x: Tensor) -> SoftmaxField:
        M = self._weights(x, x)
        return SoftmaxField(self, M, M.sum(-1, keepdim=True), x @ self.A)

    def kinetic(self, x: Tensor, y: Tensor) -> Tensor:
        """1/2 sum_i <y_i, B y_i> / z_i."""
        z = self._weights(x, x).sum(-1)  # (..., N)
        return ((y * self.mobility(y)).sum(-1) / z).sum(-1) / 2

    def potential(self, x: Tensor) -> Tensor:
        """-1/2 sum_i z_i, which is -1/(2N) sum_ij exp(s_ij) with full visibility."""
        return -self._weights(x, x).sum((-2, -1)) / 2

    def own_hamiltonian(self, x: Tensor, y: Tensor, keys: Tensor | None = None) -> Tensor:
        """H_i = 1/2 <y_i, B y_i> / z_i - z_i with z_i = 1/n_i sum_j exp(x_i' A k_j), one value a token (..., N).

        `keys` are held fixed (default: the positions, detached), so -dH_i/dx_i is the force of form "own".
        """
        z = self._weights(x, x.detach() if keys is None else keys).sum(-1)
        return (y * self.mobility(y)).sum(-1) / z / 2 - z
