"""Masks as users give them, checked: which columns of a batch hold a token, and which others a token sees."""

import torch
from torch import Tensor

from sympformer.errors import InputError


def real_columns(key_padding_mask: Tensor | None, shape: tuple[int, int]) -> Tensor | None:
    """(B, T), True where there is a token, of a mask that is True at padding; None when there is no padding."""
    if key_padding_mask is None:
        return None
    if key_padding_mask.dtype != torch.bool:
        raise InputError(
            f"key_padding_mask must be boolean, True at padding, got {key_padding_mask.dtype};"
            " of a mask with ones at tokens it is mask == 0"
        )
    if key_padding_mask.shape != shape:
        raise InputError(
            f"key_padding_mask must have shape (batch, tokens) = {shape}, got {tuple(key_padding_mask.shape)}"
        )
    if not torch.compiler.is_compiling() and not bool(key_padding_mask.any()):
        return None  # the fast way, and the same to the last bit as without a mask
    return ~key_padding_mask


def places_of(real: Tensor) -> Tensor:
    """The place of every column among the tokens of its row, (B, T): padding takes none."""
    return (real.cumsum(1) - 1).clamp_min(0)


def check_rows(real: Tensor | None) -> None:
    """Refuse a row without any token."""
    if real is None or torch.compiler.is_compiling():
        return
    empty = ~real.any(1)
    if bool(empty.any()):
        raise InputError(f"row {int(empty.int().argmax())} of the batch holds nothing but padding; leave it out")


def check_seen(mask: Tensor, shape: tuple[int, int, int]) -> Tensor:
    """A mask (B or 1, 1, T, S) of what tokens see, True where they do, for all rows."""
    B, T, S = shape
    if mask.dtype != torch.bool or mask.ndim != 4 or mask.shape[1:] != (1, T, S) or mask.shape[0] not in (1, B):
        raise InputError(
            f"a mask of what tokens see must be boolean, True where they do, of shape {(B, 1, T, S)};"
            f" got {mask.dtype} {tuple(mask.shape)}"
        )
    return mask.expand(B, -1, -1, -1)
