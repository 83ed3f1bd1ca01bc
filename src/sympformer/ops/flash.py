"""Flash attention that also returns its row normaliser, with gradients through both.

A stock flash kernel computes, without ever holding the T x T matrix,

    P_ij = softmax_j(s_ij)      out_i = sum_j P_ij v_j      lse_i = log sum_j exp(s_ij)      s_ij = scale <q_i, k_j>

and its backward kernel returns the gradients of `out` only, from

    ds_ij = P_ij (<dout_i, v_j> - delta_i)      delta_i = <dout_i, out_i>

Since d lse_i / d s_ij = P_ij, a gradient of `lse` turns delta_i into delta_i - dlse_i and changes nothing else.
The kernel computes delta itself from `dout` and `out`, so `shift_rows` hands it another `out`.

One kernel per device stands in a `Backend`; `backend_for` is the table.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

aten = torch.ops.aten

HALF = (torch.float16, torch.bfloat16)


class Rows(NamedTuple):
    """What a forward kernel returns; `extras` goes to its backward kernel untouched."""

    out: Tensor  # (B, H, Tq, dh)
    lse: Tensor  # (B, H, Tq)
    extras: tuple[Tensor, ...]


class Saved(NamedTuple):
    """What a backward kernel needs of the forward pass, with `out` as shifted by `shift_rows`."""

    q: Tensor
    k: Tensor
    v: Tensor
    rows: Rows


Gradients = tuple[Tensor, Tensor, Tensor]


class Backend(NamedTuple):
    """The two kernels of a device: forward(q, k, v, scale, causal) and backward(dout, saved, scale, causal)."""

    name: str
    forward: Callable[[Tensor, Tensor, Tensor, float, bool], Rows]
    backward: Callable[[Tensor, Saved, float, bool], Gradients]
    half: bool = True  # the kernels take half precisions as they are
    multiple: int = 1  # the head size must be a multiple of this


def _cpu_forward(q: Tensor, k: Tensor, v: Tensor, scale: float, causal: bool) -> Rows:
    out, lse = aten._scaled_dot_product_flash_attention_for_cpu(q, k, v, 0.0, causal, scale=scale)
    return Rows(out, lse, ())


def _cpu_backward(dout: Tensor, saved: Saved, scale: float, causal: bool) -> Gradients:
    q, k, v, rows = saved
    return aten._scaled_dot_product_flash_attention_for_cpu_backward(
        dout, q, k, v, rows.out, rows.lse, 0.0, causal, scale=scale
    )


def _flash_forward(q: Tensor, k: Tensor, v: Tensor, scale: float, causal: bool) -> Rows:
    result = aten._scaled_dot_product_flash_attention(q, k, v, 0.0, causal, scale=scale)
    out, lse, _, _, _, _, seed, offset, _ = result
    return Rows(out, lse, (seed, offset))


def _flash_backward(dout: Tensor, saved: Saved, scale: float, causal: bool) -> Gradients:
    q, k, v, (out, lse, (seed, offset)) = saved
    lengths = (None, None, q.size(2), k.size(2))  # no ragged batch: no cumulative lengths, only the two maxima
    return aten._scaled_dot_product_flash_attention_backward(
        dout, q, k, v, out, lse, *lengths, 0.0, causal, seed, offset, scale=scale
    )


def _efficient_forward(q: Tensor, k: Tensor, v: Tensor, scale: float, causal: bool) -> Rows:
    out, lse, seed, offset = aten._scaled_dot_product_efficient_attention(q, k, v, None, True, 0.0, causal, scale=scale)
    # This kernel pads the rows of lse to a multiple of 32, and its backward wants them padded.
    return Rows(out, lse.narrow(2, 0, q.size(2)), (lse, seed, offset))


def _efficient_backward(dout: Tensor, saved: Saved, scale: float, causal: bool) -> Gradients:
    q, k, v, (out, _, (lse, seed, offset)) = saved
    wanted = [True, True, True, False]  # dq, dk, dv, and no gradient of the bias that is not there
    dq, dk, dv, _ = aten._scaled_dot_product_efficient_attention_backward(
        dout, q, k, v, None, out, lse, seed, offset, 0.0, wanted, causal, scale=scale
    )
    return dq, dk, dv


# half=False: without matrix units for half precisions the CPU's backward is 2 to 5 times slower in bfloat16 and
# float16 than in float32 (the forward takes the same time), so it is asked in float32 only.
CPU = Backend("cpu", _cpu_forward, _cpu_backward, half=False)
CUDA_FLASH = Backend("cuda-flash", _flash_forward, _flash_backward, multiple=8)
CUDA_EFFICIENT = Backend("cuda-efficient", _efficient_forward, _efficient_backward, multiple=8)


def backend_for(q: Tensor) -> Backend | None:
    """The kernels for tensors like `q`, or None where there are none (other devices, float64 on CUDA)."""
    if q.device.type == "cpu":
        return CPU
    if q.device.type != "cuda" or q.dtype not in (*HALF, torch.float32):
        return None
    ampere = torch.cuda.get_device_capability(q.device) >= (8, 0)
    if q.dtype in HALF and ampere and q.size(-1) <= 256 and torch.backends.cuda.is_flash_attention_available():
        return CUDA_FLASH
    if q.dtype == torch.bfloat16 and not ampere:
        return None
    return CUDA_EFFICIENT


# (floor, ratio) of the shortest row of dout that `shift_rows` divides by: max(floor, ratio |dlse|). Then the shifted
# out stays below 1/ratio, inside the range of the dtype, and the square of the row above the underflow of float64.
_SHORTEST_ROW = {
    torch.float64: (2.0**-400, 2.0**-500),
    torch.float32: (2.0**-100, 2.0**-120),
    torch.bfloat16: (2.0**-100, 2.0**-120),
    torch.float16: (2.0**-20, 2.0**-15),
}


def shift_rows(dout: Tensor, out: Tensor, dlse: Tensor) -> tuple[Tensor, Tensor]:
    """A pair (g, o) for a flash backward such that <g_i, o_i> = <dout_i, out_i> - dlse_i and g = dout.

        o_i = out_i - dlse_i g_i / |g_i|^2

    A row of `dout` too short to divide by (zero, say, where only `lse` is used) first gets a first entry that is just
    long enough: 2^-100 in float32, 2^-400 in float64, 2^-15 |dlse| in float16. That is all by which g may differ from
    dout, below the rounding of the gradient of lse in the same row. No branch looks at a value, so no device is ever
    waited for.
    """
    work = torch.promote_types(dout.dtype, torch.float32)
    floor, ratio = _SHORTEST_ROW[dout.dtype]
    dlse = dlse.to(work).unsqueeze(-1)  # (B, H, T, 1)
    least = (dlse.abs() * ratio).clamp_min(floor)
    short = (_length(dout) < least) & (dlse != 0)
    first, rest = dout.split((1, dout.size(-1) - 1), dim=-1)
    g = torch.cat((torch.where(short, least.to(dout.dtype), first), rest), dim=-1)  # (B, H, T, dh)
    length = _length(g).clamp_min(floor).to(work)  # the clamp is for rows without any gradient: 0 / floor = 0
    # Two divisions by the length, not one by its square: the square leaves the range of float32.
    o = torch.addcmul(out.to(work), g / length, dlse / length, value=-1.0)
    return g, o.to(out.dtype)


def _length(rows: Tensor) -> Tensor:
    """|row|, (..., T, d) -> (..., T, 1), in float64: there the squares of float32 do not underflow."""
    return torch.linalg.vector_norm(rows, dim=-1, keepdim=True, dtype=torch.float64)


def unit_stride(t: Tensor) -> Tensor:
    """The kernels step through the last axis by 1 and never ask: transposed or expanded, it would be read wrongly."""
    return t if t.stride(-1) == 1 else t.contiguous()


class FlashAttention(torch.autograd.Function):
    """(q, k, v) -> (out, lse) through a backend, with the gradient of both in one pass of its backward kernel."""

    @staticmethod
    def forward(
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, scale: float, causal: bool, backend: Backend
    ) -> tuple[Tensor, Tensor]:
        q, k, v = unit_stride(q), unit_stride(k), unit_stride(v)
        rows = backend.forward(q, k, v, scale, causal)
        ctx.save_for_backward(q, k, v, rows.out, rows.lse, *rows.extras)
        ctx.set_materialize_grads(False)  # so that an unused lse costs nothing
        ctx.scale, ctx.causal, ctx.backend = scale, causal, backend
        return rows.out, rows.lse

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any, dout: Tensor | None, dlse: Tensor | None
    ) -> tuple[Tensor | None, Tensor | None, Tensor | None, None, None, None]:
        q, k, v, out, lse, *extras = ctx.saved_tensors
        if dout is None and dlse is None:
            return None, None, None, None, None, None
        g, o = (torch.zeros_like(out) if dout is None else unit_stride(dout)), out
        if dlse is not None:
            g, o = shift_rows(g, o, dlse)
        saved = Saved(q, k, v, Rows(o, lse, tuple(extras)))
        dq, dk, dv = ctx.backend.backward(g, saved, ctx.scale, ctx.causal)
        return dq, dk, (None if dout is None else dv), None, None, None  # lse does not depend on v
