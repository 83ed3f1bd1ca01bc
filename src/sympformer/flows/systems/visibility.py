"""Who sees whom: vis(i) = 1..i (causal) or all N (full), n_i = |vis(i)|."""

import torch
from torch import Tensor


def counts(x: Tensor, causal: bool) -> Tensor:
    """n_i as a column (N, 1), in the dtype of x."""
    N = x.shape[-2]
    n = torch.arange(1, N + 1, device=x.device) if causal else torch.full((N,), N, device=x.device)
    return n.to(x.dtype).unsqueeze(-1)


def hide_future(M: Tensor, causal: bool) -> Tensor:
    """Zero the entries M_ij with j not in vis(i)."""
    return M.tril() if causal else M
