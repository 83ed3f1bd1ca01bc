"""Causal linear attention in linear time: chunked for training, recurrent for generation, naive for the truth.

    out_i = sum_{j in vis(i)} <q_i, k_j> v_j = S_i' q_i        S_i = sum_{j in vis(i)} k_j v_j'        (dk, dv)

Nothing is normalised here: a mean over the visible tokens divides by n_i = |vis(i)| afterwards.

The linear oracle of the flow reads one state twice: with S_i = sum_j x_j y_j', its velocity needs S_i' q_i (q = A x)
and its force S_i y_i. The `symplectic` functions return both.

Half precisions are computed in float32 and returned as they came: a state sums over all tokens, which overflows
float16 and rounds away in bfloat16 (and CPUs without bfloat16 units multiply such small matrices 15 times slower).
"""

import torch
from torch import Tensor

from sympformer.errors import InputError
from sympformer.ops import door
from sympformer.ops.chunked import ChunkedAttention, ChunkedSymplectic, no_autocast, split


def linear_attention(
    q: Tensor, k: Tensor, v: Tensor, *, causal: bool = True, chunk: int | None = None, seen: Tensor | None = None
) -> Tensor:
    """out_i = sum_{j in vis(i)} <q_i, k_j> v_j, in O(T dk dv + T chunk (dk + dv)).

    Args:
        q: (B, H, T, dk).
        k: (B, H, T, dk).
        v: (B, H, T, dv).
        causal: vis(i) = 1..i, otherwise all tokens.
        chunk: tokens multiplied at once; None picks by width. It changes the rounding and the speed, nothing else.
        seen: boolean (B or 1, 1, T, T), which of these pairs count; such a mask has no sums to share, so this is the
            naive way. (Tokens that nobody sees need none: their keys are zero.)

    Returns:
        out (B, H, T, dv).
    """
    door.note_pass(None if seen is not None else door.Kernel(q, k, 1.0, causal, softmax=False))
    if seen is not None or not door.fast():
        return linear_attention_naive(q, k, v, causal=causal, seen=seen)
    dtype = _check(q, k, v)
    with no_autocast(q):
        q, k, v = _widen(q, k, v)
        if not causal:
            return (q @ (k.mT @ v)).to(dtype)
        out = ChunkedAttention.apply(*_split(chunk, q, k, v))
        return _join(out, q).to(dtype)


def symplectic_scan(
    q: Tensor, x: Tensor, y: Tensor, *, causal: bool = True, chunk: int | None = None, seen: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Both reads of the one state S_i = sum_{j in vis(i)} x_j y_j':

        position_out_i = S_i' q_i = sum_j <q_i, x_j> y_j        momentum_out_i = S_i y_i = sum_j <y_i, y_j> x_j

    Args:
        q: (B, H, T, dx), usually A x.
        x: positions (B, H, T, dx).
        y: momenta (B, H, T, dy).
        causal: vis(i) = 1..i, otherwise all tokens.
        chunk, seen: as in `linear_attention`.

    Returns:
        position_out (B, H, T, dy) and momentum_out (B, H, T, dx).
    """
    door.note_pass(None if seen is not None else door.Kernel(q, x, 1.0, causal, softmax=False))
    if seen is not None or not door.fast():
        return symplectic_scan_naive(q, x, y, causal=causal, seen=seen)
    dtype = _check(q, x, y)
    with no_autocast(q):
        q, x, y = _widen(q, x, y)
        if not causal:
            S = x.mT @ y  # (B, H, dx, dy)
            return (q @ S).to(dtype), (y @ S.mT).to(dtype)
        outs = ChunkedSymplectic.apply(*_split(chunk, q, x, y))
        position_out, momentum_out = (_join(out, q).to(dtype) for out in outs)
        return position_out, momentum_out


def linear_attention_step(state: Tensor | None, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """Continue `linear_attention` by T >= 1 tokens from the state of all earlier ones.

        S <- S + sum_j k_j v_j'        out_i = S_i' q_i

    Args:
        state: (B, H, dk, dv) as returned by the last call, or None before the first token.
        q: (B, H, T, dk) of the new tokens, as are k (B, H, T, dk) and v (B, H, T, dv).

    Returns:
        out (B, H, T, dv), and the new state in float32 or float64, whose size never grows.
    """
    dtype = _check(q, k, v, state)
    with no_autocast(q):
        q, k, v = _widen(q, k, v)
        S = _advance(state, k, v)
        if q.size(2) == 1:
            door.note_pass()
            return (q @ S).to(dtype), S
        out = linear_attention(q, k, v)
        return (out if state is None else out + q @ state).to(dtype), S


def symplectic_step(state: Tensor | None, q: Tensor, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Continue `symplectic_scan` by T >= 1 tokens from the state of all earlier ones.

        S <- S + sum_j x_j y_j'        position_out_i = S_i' q_i        momentum_out_i = S_i y_i

    Args:
        state: (B, H, dx, dy) as returned by the last call, or None before the first token.
        q: (B, H, T, dx) of the new tokens, as are x (B, H, T, dx) and y (B, H, T, dy).

    Returns:
        position_out (B, H, T, dy), momentum_out (B, H, T, dx), and the new state in float32 or float64.
    """
    dtype = _check(q, x, y, state)
    with no_autocast(q):
        q, x, y = _widen(q, x, y)
        S = _advance(state, x, y)
        if q.size(2) == 1:
            door.note_pass()
            return (q @ S).to(dtype), (y @ S.mT).to(dtype), S
        position_out, momentum_out = symplectic_scan(q, x, y)
        if state is not None:
            position_out, momentum_out = position_out + q @ state, momentum_out + y @ state.mT
        return position_out.to(dtype), momentum_out.to(dtype), S


def linear_attention_naive(
    q: Tensor, k: Tensor, v: Tensor, *, causal: bool = True, seen: Tensor | None = None
) -> Tensor:
    """The slow twin of `linear_attention`: the T x T products as they stand."""
    dtype = _check(q, k, v)
    with no_autocast(q):
        q, k, v = _widen(q, k, v)
        return (_visible(q @ k.mT, causal, seen) @ v).to(dtype)


def symplectic_scan_naive(
    q: Tensor, x: Tensor, y: Tensor, *, causal: bool = True, seen: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """The slow twin of `symplectic_scan`: two sums with their T x T products as they stand."""
    dtype = _check(q, x, y)
    with no_autocast(q):
        q, x, y = _widen(q, x, y)
        position_out = _visible(q @ x.mT, causal, seen) @ y
        momentum_out = _visible(y @ y.mT, causal, seen) @ x
        return position_out.to(dtype), momentum_out.to(dtype)


def linear_rows(q: Tensor, k: Tensor, *, causal: bool = True, seen: Tensor | None = None) -> Tensor:
    """The matrix <q_i, k_j> (B, H, Tq, Tk) of `linear_attention`, zero where j is not in vis(i), for those who want to
    see it. Queries belong to the last Tq of the Tk tokens."""
    with no_autocast(q):
        q, k = _widen(q, k)
        return _visible(q @ k.mT, causal, seen)


def _visible(products: Tensor, causal: bool, seen: Tensor | None) -> Tensor:
    """Zero where token j is not in vis(i), (..., T, S)."""
    products = products.tril(products.size(-1) - products.size(-2)) if causal else products
    return products if seen is None else products.masked_fill(~seen, 0)


def _advance(state: Tensor | None, k: Tensor, v: Tensor) -> Tensor:
    """S + sum_j k_j v_j', (B, H, dk, dv)."""
    gain = k.mT @ v
    return gain if state is None else state + gain


def _split(chunk: int | None, *tensors: Tensor) -> list[Tensor]:
    """(B, H, T, d) -> (B H, N, C, d)."""
    if chunk is None:
        # Forward + backward of `symplectic_scan`, T = 1024, one CPU thread, ms at chunks of 8, 16, 32, 64, 128:
        #   (6, 1, T, 64): 51 28 21 21 29     (6, 2, T, 32): 22 15 17 20 32     (6, 8, T, 8): 48 50 68 114 193
        chunk = min(max(16, *(t.size(3) for t in tensors)), 64)
    if chunk < 1:
        raise InputError(f"chunk must be at least 1 token, got {chunk}: leave it out to have it chosen")
    return [split(t.flatten(0, 1), min(chunk, t.size(2))) for t in tensors]


def _join(t: Tensor, like: Tensor) -> Tensor:
    """(B H, N, C, d) -> (B, H, T, d)."""
    return t.flatten(1, 2)[:, : like.size(2)].unflatten(0, like.shape[:2])


def _widen(*tensors: Tensor) -> tuple[Tensor, ...]:
    """All in one dtype, float32 at least."""
    dtype = torch.float32
    for t in tensors:
        dtype = torch.promote_types(dtype, t.dtype)
    return tuple(t.to(dtype) for t in tensors)


def _check(q: Tensor, k: Tensor, v: Tensor, state: Tensor | None = None) -> torch.dtype:
    """Refuse shapes and dtypes that do not fit, in words; the dtype of the result."""
    shapes = f"{tuple(q.shape)}, {tuple(k.shape)}, {tuple(v.shape)}"
    if q.ndim != 4 or q.shape != k.shape or v.ndim != 4 or v.shape[:3] != k.shape[:3]:
        raise InputError(
            f"linear attention needs (B, H, T, dk), (B, H, T, dk), (B, H, T, dv), got {shapes}: "
            "give all three the same batch, heads and tokens"
        )
    if 0 in q.shape or 0 in v.shape:
        raise InputError(f"linear attention needs at least one token and head, got {shapes}: leave empty batches out")
    if not (q.is_floating_point() and k.is_floating_point() and v.is_floating_point()):
        raise InputError(f"linear attention needs floating point, got {q.dtype}, {k.dtype}, {v.dtype}: cast them")
    if state is not None and state.shape != (*k.shape[:2], k.size(3), v.size(3)):
        raise InputError(
            f"the state must be {(*k.shape[:2], k.size(3), v.size(3))} for inputs {shapes}, got {tuple(state.shape)}: "
            "hand back the state of the last step, or None to start"
        )
    return torch.promote_types(torch.promote_types(q.dtype, k.dtype), v.dtype)
