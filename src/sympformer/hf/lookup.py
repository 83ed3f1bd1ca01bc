"""Which token a vector is: tables that are looked up by id can then be asked when embeddings stand in place of ids."""

import warnings

import torch
from torch import Tensor

UNKNOWN = -1
_BITS = {2: torch.int16, 4: torch.int32, 8: torch.int64}


def tokens_of(embedded: Tensor, table: Tensor) -> Tensor:
    """The rows (V, d) of a table that vectors (B, T, d) are, bit for bit; UNKNOWN where a vector is none of them."""
    vectors = embedded.detach().to(table.dtype)
    known, order = _keys(table.detach()).sort()
    place = torch.searchsorted(known, _keys(vectors)).clamp_max(len(known) - 1)
    ids = order[place]
    return torch.where((table[ids] == vectors).all(-1), ids, UNKNOWN)


def ids_of(embedded: Tensor, table: Tensor) -> Tensor:
    """The tokens that vectors are; of those that are none, tables that are asked by id say nothing. That is said."""
    ids = tokens_of(embedded, table)
    known = ids != UNKNOWN
    if not torch.compiler.is_compiling() and not bool(known.all()):
        warnings.warn(
            f"{int((~known).sum())} of {ids.numel()} vectors of inputs_embeds are no token's embedding: tables that are"
            " looked up by id (second_table, start_momentum) have nothing for them",
            stacklevel=2,
        )
    return ids


def _keys(rows: Tensor) -> Tensor:
    """A number for every row that equal bits make equal, and others with a chance of 2^-64; sums wrap around."""
    rows = rows + 0.0  # no -0.0, whose bits are others
    bits = rows.contiguous().view(_BITS[rows.element_size()]).long()
    generator = torch.Generator().manual_seed(0)
    odd = torch.randint(-(2**62), 2**62, (rows.shape[-1],), generator=generator).to(rows.device) * 2 + 1
    mixed = bits * odd
    return ((mixed ^ (mixed >> 29)) * odd).sum(-1)
