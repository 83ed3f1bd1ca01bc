"""The elliptically contoured law E(m, Sigma, g): density, moments, push-forward, samples."""

from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from sympformer.errors import InputError
from sympformer.flows import checks
from sympformer.flows.elliptic.families import Family


@dataclass(frozen=True, eq=False)
class Elliptic:
    """E(m, Sigma, g), the law with the density

        rho(x) = det(Sigma)^(-1/2) g((x - m)' Sigma^-1 (x - m)),

    mean m and covariance kappa Sigma. m: (d,). Sigma: (d, d) symmetric positive definite. Gradients reach both.
    """

    m: Tensor
    Sigma: Tensor
    family: Family

    def __post_init__(self) -> None:
        check_law("m", self.m, "Sigma", self.Sigma)

    @property
    def dim(self) -> int:
        """d."""
        return len(self.m)

    @property
    def mean(self) -> Tensor:
        """E[x] = m."""
        return self.m

    @property
    def covariance(self) -> Tensor:
        """E[(x - m)(x - m)'] = kappa Sigma."""
        return self.family.kappa(self.dim) * self.Sigma

    def distance(self, x: Tensor) -> Tensor:
        """The Mahalanobis distance |L^-1 (x - m)|, L L' = Sigma: (..., d) -> (...)."""
        return self._whitened(x).norm(dim=-1)

    def log_density(self, x: Tensor) -> Tensor:
        """log rho at points (..., d) -> (...)."""
        s = self._whitened(x).square().sum(-1)
        return self.family.log_g(s, self.dim) - torch.linalg.cholesky(self.Sigma).diagonal().log().sum()

    def density(self, x: Tensor) -> Tensor:
        """rho at points (..., d) -> (...)."""
        return self.log_density(x).exp()

    def push_forward(self, M: Tensor, b: Tensor | None = None) -> "Elliptic":
        """The law of M x + b: E(M m + b, M Sigma M', g). M: (d, d) invertible, else the image has no density."""
        checks.same_size(Sigma=self.Sigma, M=checks.matrix("M", M))
        values = torch.linalg.svdvals(M.detach())
        if values[-1] <= self.dim * torch.finfo(M.dtype).eps * values[0]:
            raise InputError(f"M must be invertible, its smallest singular value is {values[-1]:.2g}")
        Sigma = M @ self.Sigma @ M.mT
        m = M @ self.m if b is None else M @ self.m + b
        return Elliptic(m, (Sigma + Sigma.mT) / 2, self.family)

    def sample(self, n: int, generator: Generator | None = None) -> Tensor:
        """n independent points (n, d). The generator lives on m's device."""
        if n < 1:
            raise InputError(f"n must be at least 1, got {n}")
        m = self.m
        normals = torch.randn(n, self.dim, generator=generator, dtype=m.dtype, device=m.device)
        U = normals / torch.linalg.vector_norm(normals, dim=-1, keepdim=True)
        R = self.family.radii(normals, generator).unsqueeze(-1)  # (n, 1)
        return m + (R * U) @ torch.linalg.cholesky(self.Sigma).mT

    def _whitened(self, x: Tensor) -> Tensor:
        """L^-1 (x - m), (..., d)."""
        if x.shape[-1:] != self.m.shape:
            raise InputError(f"x must have shape (..., {self.dim}), got {tuple(x.shape)}")
        L = torch.linalg.cholesky(self.Sigma)
        return torch.linalg.solve_triangular(L, (x - self.m).unsqueeze(-1), upper=False).squeeze(-1)


def check_law(m_name: str, m: Tensor, Sigma_name: str, Sigma: Tensor) -> None:
    """m and Sigma make a law: Sigma positive definite, m finite and of its size."""
    d = len(checks.positive_definite(Sigma_name, Sigma))
    if m.shape != (d,) or m.dtype != Sigma.dtype or m.device != Sigma.device or not m.isfinite().all():
        want = f"finite, of shape ({d},) and of {Sigma_name}'s dtype and device"
        raise InputError(f"{m_name} must be {want}, got {tuple(m.shape)} {m.dtype} {m.device}")
