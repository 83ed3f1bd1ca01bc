"""Softmax attention that returns its normaliser: fast (flash kernels), naive (the formula), merged and cached.

    s_ij  = scale <q_i, k_j>                  scores of the keys that token i sees
    lse_i = log sum_j exp(s_ij)               natural logarithm
    out_i = sum_j exp(s_ij - lse_i) v_j

The softmax oracle of the flow needs both: z_i = exp(lse_i - log n_i), and `out` with v = A x.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from sympformer.errors import InputError
from sympformer.ops import door
from sympformer.ops.flash import HALF, FlashAttention, How, backend_for, forward_rows, widened


def attention_lse(
    q: Tensor, k: Tensor, v: Tensor, *, scale: float, causal: bool = True, bias: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Attention and its log-normaliser, both differentiable, without the T x T matrix.

        out_i = sum_j P_ij v_j    lse_i = log sum_j exp(s_ij)    P_ij = exp(s_ij - lse_i)    s_ij = scale <q_i, k_j>

    Args:
        q: (B, H, Tq, dh).
        k: (B, H, Tk, dh); cast to the dtype of `q`, as is `v` (autocast mixes them).
        v: (B, H, Tk, dh).
        scale: factor of the scores.
        causal: token i sees the tokens 1..i (then Tq = Tk), otherwise all of them.
        bias: (B or 1, 1, Tq or 1, Tk), added to the scores: `hiding(seen, dtype)` of a mask of the keys that are seen.

    Returns:
        out (B, H, Tq, dh) in the dtype of `q`, and lse (B, H, Tq) in float32, or float64 for float64.

    CPU and CUDA run flash kernels; any other device, and float64 on CUDA, falls back to `attention_lse_naive`, which
    does hold the T x T matrix. There is no second derivative through the kernels.
    """
    _check(q, k, v, bias, causal)
    door.note_pass()
    return _attention(q, k, v, scale, causal, bias)


def attention(
    q: Tensor, k: Tensor, v: Tensor, *, scale: float, causal: bool = True, bias: Tensor | None = None
) -> Tensor:
    """`attention_lse` without the log-normaliser: torch's own kernels, small heads widened where that is faster."""
    if bias is not None or not door.fast():  # torch takes a mask or causality, not both
        return attention_lse(q, k, v, scale=scale, causal=causal, bias=bias)[0]
    door.note_pass()
    backend, dh = backend_for(q), q.size(3)
    width = dh if backend is None else backend.width(q)
    if width == dh:
        return F.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale)
    q, k, v = (widened(t, width) for t in (q, k, v))
    return F.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale).narrow(-1, 0, dh)


def attention_lse_naive(
    q: Tensor, k: Tensor, v: Tensor, *, scale: float, causal: bool = True, bias: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """The slow twin of `attention_lse`: the formula as it stands, with the T x T matrix and plain autograd."""
    _check(q, k, v, bias, causal)
    rows, lse = attention_rows(q, k, scale=scale, causal=causal, bias=bias)
    with torch.autocast(q.device.type, enabled=False):
        return (rows @ v.to(rows.dtype)).to(q.dtype), lse


def attention_rows(
    q: Tensor, k: Tensor, *, scale: float, causal: bool = True, bias: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """The matrix P_ij (B, H, Tq, Tk) of `attention_lse` and its lse, in float32 at least: for those who want to see it.

    Queries belong to the last Tq of the Tk tokens.
    """
    work = torch.promote_types(q.dtype, torch.float32)
    with torch.autocast(q.device.type, enabled=False):
        scores = scale * (q.to(work) @ k.to(work).mT)  # (B, H, Tq, Tk)
        if bias is not None:
            scores = scores + bias.to(work)
        if causal:
            later = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).triu(1 + k.size(2) - q.size(2))
            scores = scores.masked_fill(later, float("-inf"))
        return scores.softmax(-1), scores.logsumexp(-1)


def merge_attention(out_a: Tensor, lse_a: Tensor, out_b: Tensor, lse_b: Tensor) -> tuple[Tensor, Tensor]:
    """Attention over the union of two disjoint key sets, from the attention over each.

        lse = log(exp(lse_a) + exp(lse_b))      out = exp(lse_a - lse) out_a + exp(lse_b - lse) out_b

    An empty set is out = 0 with lse = -inf, or hidden keys (`hiding`); not both may be without any key.
    """
    lse = torch.logaddexp(lse_a, lse_b)  # (B, H, T)
    weight_a, weight_b = ((part - lse).exp().unsqueeze(-1) for part in (lse_a, lse_b))  # in [0, 1]
    return (weight_a * out_a + weight_b * out_b).to(out_a.dtype), lse


def cached_attention_lse(
    q: Tensor, k: Tensor, v: Tensor, *, scale: float, bias: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """The last Tq rows of the causal `attention_lse` over all Tk keys, for queries that continue a cache.

    q (B, H, Tq, dh) belongs to the last Tq of the Tk tokens. Those see all of the first Tk - Tq keys, and each other
    causally: the two are computed apart and merged. For generation of one token it is one call of the kernel.
    bias (B or 1, 1, Tq or 1, Tk) hides keys, as in `attention_lse`.
    """
    _check(q, k, v, bias, causal=False)
    past = k.size(2) - q.size(2)
    if past < 0:
        raise InputError(
            f"cached attention needs at least as many keys as queries, got {k.size(2)} and {q.size(2)}: "
            "append the new keys to the cache first"
        )
    door.note_pass()
    if past == 0 or q.size(2) == 1:
        return _attention(q, k, v, scale, causal=past == 0, bias=bias)
    earlier, present = (None, None) if bias is None else (bias[..., :past], bias[..., past:])
    before = _attention(q, k[:, :, :past], v[:, :, :past], scale, causal=False, bias=earlier)
    among = _attention(q, k[:, :, past:], v[:, :, past:], scale, causal=True, bias=present)
    return merge_attention(*before, *among)


def _attention(
    q: Tensor, k: Tensor, v: Tensor, scale: float, causal: bool, bias: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """`attention_lse` of checked inputs. A token at a time every call counts, so none is made that changes nothing."""
    dtype = q.dtype
    if k.dtype != dtype or v.dtype != dtype:
        k, v = k.to(dtype), v.to(dtype)
    backend = backend_for(q, bias is not None) if door.fast() else None
    if backend is None:
        return attention_lse_naive(q, k, v, scale=scale, causal=causal, bias=bias)
    if dtype in HALF and not backend.half:
        q, k, v = q.float(), k.float(), v.float()
    if bias is not None and bias.dtype != q.dtype:
        bias = bias.clamp_min(torch.finfo(q.dtype).min).to(q.dtype)
    if torch.is_grad_enabled():
        out, lse = FlashAttention.apply(q, k, v, bias, float(scale), causal, backend)
    else:  # a token at a time, the autograd wrapper would cost as much as the kernel
        out, lse, _ = forward_rows(q, k, v, How(float(scale), causal, bias), backend)
    return out if out.dtype == dtype else out.to(dtype), lse


def _check(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, causal: bool) -> None:
    """Refuse shapes that no kernel would take, in words: with a bias that does not fit it would read past its end."""
    wrong = None
    if q.ndim != 4 or k.ndim != 4 or v.ndim != 4:
        wrong = "q, k, v of shape (B, H, T, dh)", "add the missing axes"
    elif k.shape != v.shape:
        wrong = "k and v of one shape", "pad the narrower with zeros"
    elif q.shape[:2] != k.shape[:2] or q.size(3) != k.size(3):
        wrong = "q and k equal in all but length", "give each the same B, H, dh"
    elif 0 in q.shape or 0 in k.shape:
        wrong = "at least one query, key and head", "leave empty batches out"
    elif causal and q.size(2) != k.size(2):
        wrong = "as many queries as keys where it is causal", "use cached_attention_lse to continue a cache"
    if wrong is not None:
        got = ", ".join(f"{name} {tuple(t.shape)}" for name, t in (("q", q), ("k", k), ("v", v)))
        raise InputError(f"attention needs {wrong[0]}, got {got}: {wrong[1]}")
    if bias is None:
        return
    wanted = (q.size(0), 1, q.size(2), k.size(2))
    fits = bias.ndim == 4 and all(size in (1, full) for size, full in zip(bias.shape, wanted, strict=True))
    if not fits or bias.size(3) != wanted[3] or not bias.is_floating_point():
        raise InputError(
            f"attention needs a bias of floats that can be expanded to {wanted}, got {bias.dtype} {tuple(bias.shape)}: "
            "make it of a boolean mask with ops.hiding"
        )
