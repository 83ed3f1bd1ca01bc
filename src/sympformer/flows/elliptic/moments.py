"""Elliptic laws under linear attention: the closed equations of their moments.

The accelerated linear flow with full visibility moves every x by one linear map: the law stays elliptic with
the same g, and y = P x (the paper's "Preservation of Elliptically Contoured Distributions").
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from sympformer.errors import DivergenceError, InputError
from sympformer.flows import checks
from sympformer.flows.damping import LogLinear, Nesterov, Scalar
from sympformer.flows.elliptic.law import check_law


class Moments(NamedTuple):
    """The law E(m, Sigma, g) of the positions and the P of the momenta y = P x, or the slopes of these."""

    m: Tensor  # (..., d)
    Sigma: Tensor  # (..., d, d), symmetric positive definite
    P: Tensor  # (..., d, d), symmetric


class MomentPath(NamedTuple):
    """A solution at S = steps + 1 times. The covariance is kappa Sigma, not Sigma."""

    t: Tensor  # (S,)
    m: Tensor  # (S, d)
    Sigma: Tensor  # (S, d, d)
    P: Tensor  # (S, d, d)


def moment_slopes(moments: Moments, alpha: Scalar, A: Tensor, V: Tensor, kappa: Scalar) -> Moments:
    """The closed equations, for symmetric Sigma and P; they stay symmetric to the last bit.

    C = P (kappa Sigma + m m') A        m' = C m        Sigma' = Sigma C' + C Sigma
    P' = -alpha P - (C' P + P C) + V
    """
    m, Sigma, P = moments
    C = P @ (kappa * Sigma + m.unsqueeze(-1) * m.unsqueeze(-2)) @ A
    dm = (C @ m.unsqueeze(-1)).squeeze(-1)
    return Moments(dm, _plus_transpose(C @ Sigma), -alpha * P - _plus_transpose(P @ C) + V)


def centered_slopes(
    Sigma: Tensor, P: Tensor, alpha: Scalar, A: Tensor, V: Tensor, kappa: Scalar
) -> tuple[Tensor, Tensor]:
    """(Sigma', P') for a law of mean zero, which keeps its mean.

    Sigma' = kappa (Sigma A Sigma P + P Sigma A Sigma)
    P'     = -alpha P - kappa (A Sigma P^2 + P^2 Sigma A) + V
    """
    dSigma = kappa * _plus_transpose(P @ Sigma @ A @ Sigma)
    return dSigma, -alpha * P - kappa * _plus_transpose(P @ P @ Sigma @ A) + V


def solve_moments(
    m0: Tensor,
    Sigma0: Tensor,
    A: Tensor,
    V: Tensor,
    kappa: Scalar = 1.0,
    *,
    steps: int,
    h: Scalar,
    damping: LogLinear | None = None,
    P0: Tensor | None = None,
) -> MomentPath:
    """Follow the closed equations for `steps` classical Runge-Kutta steps of size h.

    m0: (d,). Sigma0, A: (d, d) symmetric positive definite. V, P0: (d, d) symmetric; P0 is zero by default.
    kappa: `family.kappa(d)` of the start's family; 1 is the Gaussian's.
    damping: default Nesterov's 3/t from t0 = 1, as in `simulate`.
    Raises DivergenceError when the moments leave the finite numbers or Sigma its cone.
    """
    check_law("m0", m0, "Sigma0", Sigma0)
    P0 = torch.zeros_like(Sigma0) if P0 is None else checks.symmetric("P0", P0)
    checks.same_size(Sigma0=Sigma0, A=checks.positive_definite("A", A), V=checks.symmetric("V", V), P0=P0)
    checks.positive("kappa", kappa)
    size = torch.as_tensor(h, dtype=torch.float64)
    checks.positive("h", h)
    if steps < 1 or size.ndim > 0:
        raise InputError(f"steps must be at least 1 and h one number, got steps = {steps} and h = {h}")
    damping = Nesterov() if damping is None else damping

    t, moments = torch.as_tensor(damping.t0, dtype=torch.float64), Moments(m0, Sigma0, P0)
    saved = [(t, *moments)]
    for k in range(1, steps + 1):
        moments, t = _rk4(moments, t.to(m0), size.to(m0), damping, A, V, kappa), t + size
        if not _sound(moments):
            raise DivergenceError(
                f"the moments left the finite numbers or Sigma its cone at step {k} (t = {t:.4g}): use a step"
                f" smaller than h = {size:.4g}, more damping, or a V with smaller positive eigenvalues"
            )
        saved.append((t, *moments))
    return MomentPath(*(torch.stack(parts) for parts in zip(*saved, strict=True)))


def _rk4(moments: Moments, t: Tensor, h: Tensor, damping: LogLinear, A: Tensor, V: Tensor, kappa: Scalar) -> Moments:
    def slopes(share: float, slope: Moments) -> Moments:
        return moment_slopes(_moved(moments, share * h, slope), damping.alpha(t + share * h), A, V, kappa)

    k1 = moment_slopes(moments, damping.alpha(t), A, V, kappa)
    k2 = slopes(0.5, k1)
    k3 = slopes(0.5, k2)
    k4 = slopes(1.0, k3)
    mean = Moments(*((a + 2 * b + 2 * c + d) / 6 for a, b, c, d in zip(k1, k2, k3, k4, strict=True)))
    return _moved(moments, h, mean)


def _moved(moments: Moments, h: Tensor, slope: Moments) -> Moments:
    return Moments(*(value + h * rate for value, rate in zip(moments, slope, strict=True)))


def _plus_transpose(M: Tensor) -> Tensor:
    return M + M.mT


def _sound(moments: Moments) -> bool:
    """All finite, and Sigma = G Sigma0 G' positive definite up to rounding, as along the exact flow."""
    Sigma = moments.Sigma.detach()
    slack = math.sqrt(torch.finfo(Sigma.dtype).eps) * Sigma.abs().max()
    finite = all(bool(torch.isfinite(part).all()) for part in moments)
    return finite and bool(torch.linalg.eigvalsh(Sigma)[0] >= -slack)
