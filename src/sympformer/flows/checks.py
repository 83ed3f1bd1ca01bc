"""Checks of what callers hand in. Every failure is one sentence that names the argument."""

import torch
from torch import Tensor

from sympformer.errors import InputError


def matrix(name: str, M: Tensor) -> Tensor:
    """M is a square, finite floating-point matrix."""
    if not isinstance(M, Tensor) or M.ndim != 2 or M.shape[0] != M.shape[1]:
        shape = tuple(M.shape) if isinstance(M, Tensor) else type(M).__name__
        raise InputError(f"{name} must be a square matrix of shape (d, d), got {shape}")
    if not M.is_floating_point():
        raise InputError(f"{name} must have a floating-point dtype, got {M.dtype}; call {name}.double() first")
    if not torch.isfinite(M).all():
        raise InputError(f"{name} holds values that are not finite; check how it was made")
    return M


def symmetric(name: str, M: Tensor) -> Tensor:
    """M = M', up to rounding."""
    defect = (matrix(name, M) - M.mT).abs().max().item()
    if defect > 100 * torch.finfo(M.dtype).eps * max(1.0, M.abs().max().item()):
        hint = f"use ({name} + {name}.mT) / 2"
        raise InputError(f"{name} must be symmetric, its largest asymmetry is {defect:.2g}; {hint}")
    return M


def positive_definite(name: str, M: Tensor) -> Tensor:
    """M is symmetric with all eigenvalues above zero."""
    smallest = torch.linalg.eigvalsh(symmetric(name, M).detach()).min().item()
    if smallest <= 0:
        found = f"its smallest eigenvalue is {smallest:.2g}"
        raise InputError(f"{name} must be positive definite, {found}; add a multiple of I")
    return M


def same_size(**matrices: Tensor) -> None:
    """All matrices have one dimension d, dtype and device."""
    (first, M), *rest = ((name, f"{tuple(M.shape)} {M.dtype} {M.device}") for name, M in matrices.items())
    for name, other in rest:
        if other != M:
            raise InputError(f"{first} and {name} must agree in shape, dtype and device, got {M} and {other}")


def particles(x: Tensor, d: int | None = None, name: str = "x") -> Tensor:
    """x has shape (..., N, d) with at least one particle."""
    if not isinstance(x, Tensor) or not x.is_floating_point():
        raise InputError(f"{name} must be a floating-point tensor of shape (..., N, d)")
    if x.ndim < 2 or x.shape[-2] < 1 or x.shape[-1] != (d or x.shape[-1]):
        raise InputError(f"{name} must have shape (..., N, {d or 'd'}) with N >= 1, got {tuple(x.shape)}")
    return x


def same_shape(x: Tensor, y: Tensor) -> None:
    """Position and momentum have one shape."""
    if x.shape != y.shape:
        raise InputError(f"x and y must have the same shape, got {tuple(x.shape)} and {tuple(y.shape)}")


def positive(name: str, value: float | Tensor) -> None:
    """A number (or every entry of a tensor) is finite and above zero."""
    entries = value if isinstance(value, Tensor) else torch.tensor(value, dtype=torch.float64)
    if not bool((entries > 0).all() and entries.isfinite().all()):
        raise InputError(f"{name} must be positive and finite, got {value}")


def not_negative(name: str, value: float) -> None:
    """A number is finite and not below zero."""
    if not 0 <= value < float("inf"):
        raise InputError(f"{name} must not be negative and must be finite, got {value}")
