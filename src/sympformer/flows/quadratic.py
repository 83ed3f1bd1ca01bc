"""The damped harmonic oscillator: separable, exactly solvable, the ruler for the integrators.

H(x, y) = 1/2 |y|^2 + 1/2 sum_i x_i' K x_i        x'' + alpha(t) x' + K x = 0
"""

import torch
from torch import Tensor

from sympformer.errors import InputError
from sympformer.flows import checks
from sympformer.flows.damping import LogLinear
from sympformer.flows.system import SeparableField, System


class Quadratic(System):
    """Independent oscillators with stiffness K, symmetric positive definite."""

    lower_bound = 0.0

    def __init__(self, K: Tensor) -> None:
        self.K, self.dim = checks.positive_definite("K", K), K.shape[0]

    def _field(self, x: Tensor) -> SeparableField:
        return SeparableField(x @ self.K)

    def potential(self, x: Tensor) -> Tensor:
        return (x * (x @ self.K)).sum((-2, -1)) / 2

    def exact(self, x0: Tensor, y0: Tensor, t: float, damping: LogLinear) -> tuple[Tensor, Tensor]:
        """(x, y) at time t, started at damping.t0. Closed form for constant damping and for alpha = 2/t.

        In the eigenbasis of K each mode w^2 solves q'' + alpha q' + w^2 q = 0 with two fundamental solutions:
        exp((-m/2 +- sqrt(m^2/4 - w^2)) t) for alpha = m, and exp(+-i w t)/t for alpha = 2/t.
        """
        w2, Q = torch.linalg.eigh(self.K)
        r, m, t0 = float(damping.r), float(damping.m), float(damping.t0)
        if r == 0:
            start, end = _exponential_modes(w2, m, 0.0), _exponential_modes(w2, m, t - t0)
        elif r == 2 and m == 0:
            start, end = _decaying_modes(w2, t0), _decaying_modes(w2, t)
        else:
            raise InputError(f"exact solution known for r = 0 or (r = 2, m = 0) only, got r = {r}, m = {m}; use rk4")
        q0, p0 = (x0 @ Q).to(start.dtype), (y0 @ Q).to(start.dtype)  # (..., N, d)
        c = torch.linalg.solve(start, torch.stack((q0, p0), -1).unsqueeze(-1))  # (..., N, d, 2, 1)
        q, p = (end @ c).squeeze(-1).unbind(-1)
        return q.real.to(x0.dtype) @ Q.mT, p.real.to(x0.dtype) @ Q.mT


def _exponential_modes(w2: Tensor, m: float, t: float) -> Tensor:
    """[[u, v], [u', v']] at t for q'' + m q' + w^2 q = 0, (d, 2, 2) complex."""
    root = (m * m / 4 - w2).to(torch.complex128).sqrt()
    if bool((root.abs() < 1e-9).any()):
        raise InputError(f"m = {m} damps a mode critically, where the closed form degenerates; change m slightly")
    rates = torch.stack((-m / 2 + root, -m / 2 - root), -1)  # (d, 2)
    modes = (rates * t).exp()
    return torch.stack((modes, rates * modes), -2)


def _decaying_modes(w2: Tensor, t: float) -> Tensor:
    """[[u, v], [u', v']] at t for q'' + 2/t q' + w^2 q = 0: u, v = exp(+-i w t)/t, since (t q)'' + w^2 t q = 0."""
    rates = w2.to(torch.complex128).sqrt().unsqueeze(-1) * torch.tensor([1j, -1j], device=w2.device)  # (d, 2)
    modes = (rates * t).exp() / t
    return torch.stack((modes, (rates - 1 / t) * modes), -2)
