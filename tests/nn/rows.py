"""Rows of a padded batch, and the same texts without their padding."""

import torch
from torch import Tensor

X, _ = True, False  # a token, padding

# every way to be padded, in one batch
RAGGED = torch.tensor([
    [_, _, _, X, X, X, X],  # left
    [X, X, X, X, X, _, _],  # right
    [_, X, X, _, X, _, X],  # inside, and on both sides
    [_, _, X, _, _, _, _],  # one token
    [X, X, X, X, X, X, X],
])  # fmt: skip


def weights(d: int, seed: int = 11) -> Tensor:
    """A number for every entry of a result (rows, columns, d), so that no part of a gradient cancels."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*RAGGED.shape, d, generator=generator, dtype=torch.float64)
