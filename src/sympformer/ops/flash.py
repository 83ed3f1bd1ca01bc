"""Flash attention that also returns its row normaliser, with gradients through both.

A stock flash kernel computes, without ever holding the T x T matrix,

    P_ij = softmax_j(s_ij)      out_i = sum_j P_ij v_j      lse_i = log sum_j exp(s_ij)      s_ij = scale <q_i, k_j>

and its backward kernel returns the gradients of `out` only, from

    ds_ij = P_ij (<dout_i, v_j> - delta_i)      delta_i = <dout_i, out_i>

Since d lse_i / d s_ij = P_ij, a gradient of `lse` turns delta_i into delta_i - dlse_i and changes nothing else.
The kernel computes delta itself from `dout` and `out`, so it is handed others whose product is delta_i - dlse_i: with
a spare column where heads are widened for the kernel's sake (`spare_column`), else with another `out` (`shift_rows`).

A `bias` added to the scores says which keys a query does not see (`hiding`); it carries no gradient.

One kernel per device stands in a `Backend`; `backend_for` is the table.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

aten = torch.ops.aten

HALF = (torch.float16, torch.bfloat16)
# Added to the score of a key that is not seen. Its weight is then exactly zero beside any key that is; finite, so that
# a query that sees nothing at all (padding) gets numbers, and gradients of zero, instead of NaN.
HIDDEN = -1e30


def hiding(seen: Tensor, dtype: torch.dtype) -> Tensor:
    """The bias of a boolean mask, True where a key is seen."""
    zero = torch.zeros((), dtype=dtype, device=seen.device)
    return torch.where(seen, zero, zero + max(HIDDEN, torch.finfo(dtype).min))


class How(NamedTuple):
    """What keys a query sees, and how their scores are scaled."""

    scale: float
    causal: bool
    bias: Tensor | None = None  # (B or 1, 1, Tq or 1, Tk), in the dtype of q


class Rows(NamedTuple):
    """What a forward kernel returns; `extras` goes to its backward kernel untouched."""

    out: Tensor  # (B, H, Tq, dh)
    lse: Tensor  # (B, H, Tq)
    extras: tuple[Tensor, ...]


Three = tuple[Tensor, ...]  # q, k, v, or their gradients


class Backend(NamedTuple):
    """The two kernels of a device: forward(q, k, v, how) and backward(dout, (q, k, v), rows, how).

    The backward kernel is handed rows with an `out` that carries the gradient of lse.
    """

    name: str
    forward: Callable[[Tensor, Tensor, Tensor, How], Rows]
    backward: Callable[[Tensor, Three, Rows, How], Three]
    half: bool = True  # the kernels take half precisions as they are
    multiple: int = 1  # the head size must be a multiple of this
    least: int = 1  # smaller heads are slower than heads of this size, but for a single query

    def width(self, q: Tensor) -> int:
        """The head size at which the kernels are called; zeros in the added columns change no score."""
        dh = q.size(3) if q.size(2) == 1 else max(q.size(3), self.least)
        return dh + -dh % self.multiple


def _cpu_forward(q: Tensor, k: Tensor, v: Tensor, how: How) -> Rows:
    out, lse = aten._scaled_dot_product_flash_attention_for_cpu(
        q, k, v, 0.0, how.causal, attn_mask=how.bias, scale=how.scale
    )
    return Rows(out, lse, ())


def _cpu_backward(dout: Tensor, qkv: Three, rows: Rows, how: How) -> Three:
    return aten._scaled_dot_product_flash_attention_for_cpu_backward(
        dout, *qkv, rows.out, rows.lse, 0.0, how.causal, attn_mask=how.bias, scale=how.scale
    )


def _flash_forward(q: Tensor, k: Tensor, v: Tensor, how: How) -> Rows:
    result = aten._scaled_dot_product_flash_attention(q, k, v, 0.0, how.causal, scale=how.scale)
    out, lse, _, _, _, _, seed, offset, _ = result
    return Rows(out, lse, (seed, offset))


def _flash_backward(dout: Tensor, qkv: Three, rows: Rows, how: How) -> Three:
    lengths = (None, None, qkv[0].size(2), qkv[1].size(2))  # no ragged batch: only the two maxima
    return aten._scaled_dot_product_flash_attention_backward(
        dout, *qkv, rows.out, rows.lse, *lengths, 0.0, how.causal, *rows.extras, scale=how.scale
    )


def _efficient_forward(q: Tensor, k: Tensor, v: Tensor, how: How) -> Rows:
    out, lse, seed, offset = aten._scaled_dot_product_efficient_attention(
        q, k, v, _aligned(how.bias, q, k), True, 0.0, how.causal, scale=how.scale
    )
    # This kernel pads the rows of lse to a multiple of 32, and its backward wants them padded.
    return Rows(out, lse.narrow(2, 0, q.size(2)), (lse, seed, offset))


def _efficient_backward(dout: Tensor, qkv: Three, rows: Rows, how: How) -> Three:
    wanted = [True, True, True, False]  # dq, dk, dv, and none of the bias
    bias = _aligned(how.bias, *qkv[:2])
    return aten._scaled_dot_product_efficient_attention_backward(
        dout, *qkv, bias, rows.out, *rows.extras, 0.0, wanted, how.causal, scale=how.scale
    )[:3]


def _aligned(bias: Tensor | None, q: Tensor, k: Tensor) -> Tensor | None:
    """The bias as the memory-efficient kernel wants it: of every pair, its rows 16 entries or a multiple apart."""
    if bias is None:
        return None
    n_keys = k.size(2)
    return F.pad(bias, (0, -n_keys % 16)).narrow(-1, 0, n_keys).expand(*q.shape[:3], n_keys)


# half=False: without matrix units for half precisions the CPU's backward is 2 to 5 times slower in bfloat16 and
# float16 than in float32 (the forward takes the same time), so it is asked in float32 only.
# least=16: its matrix products are 1.7 times slower with heads of 8 than with heads of 16.
CPU = Backend("cpu", _cpu_forward, _cpu_backward, half=False, least=16)
CUDA_FLASH = Backend("cuda-flash", _flash_forward, _flash_backward, multiple=8)
CUDA_EFFICIENT = Backend("cuda-efficient", _efficient_forward, _efficient_backward, multiple=8)


def backend_for(q: Tensor, biased: bool = False) -> Backend | None:
    """The kernels for tensors like `q`, or None where there are none (other devices, float64 on CUDA)."""
    if q.device.type == "cpu":
        return CPU
    if q.device.type != "cuda" or q.dtype not in (*HALF, torch.float32):
        return None
    ampere = torch.cuda.get_device_capability(q.device) >= (8, 0)
    flash = not biased and q.size(-1) <= 256
    if q.dtype in HALF and ampere and flash and torch.backends.cuda.is_flash_attention_available():
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
    floor, ratio = _SHORTEST_ROW[dout.dtype]
    length = torch.linalg.vector_norm(dout, dim=-1, dtype=torch.float64)  # in float32 the squares could underflow
    least = (dlse.double().abs() * ratio).clamp_min(floor)  # (B, H, T), like all up to the last two lines
    short = (length < least) & (dlse != 0)
    first = dout.select(-1, 0)
    g = torch.select_scatter(dout, torch.where(short, least.to(dout.dtype), first), -1, 0)
    rest = (length * length - first.double().square()).clamp_min(0)
    length = torch.where(short, torch.sqrt(rest + least * least), length)
    length = length.clamp_min(floor).unsqueeze(-1)  # the clamp is for rows without any gradient: 0 / floor = 0
    work = torch.promote_types(dout.dtype, torch.float32)
    # Two divisions by the length, not one by its square: the square leaves the range of float32.
    along, amount = g / length.to(work), (dlse.unsqueeze(-1) / length).to(work)
    return g, torch.addcmul(out.to(work), along, amount, value=-1.0).to(out.dtype)


def spare_column(dout: Tensor, out: Tensor, dlse: Tensor, width: int) -> tuple[Tensor, Tensor]:
    """The same for heads that are widened: g = (dout, 1, 0, ...), o = (out, -dlse, 0, ...).

    Values are zero there, so that <g_i, v_j> is still <dout_i, v_j>; what dv gets there is dropped.
    """
    dlse, spare = dlse.to(out.dtype), dout.size(-1)
    g = torch.select_scatter(widened(dout, width), torch.ones_like(dlse), -1, spare)
    return g, torch.select_scatter(widened(out, width), -dlse, -1, spare)


def widened(t: Tensor, width: int) -> Tensor:
    """Zeros appended to the last axis up to `width`; as it is, but for its stride, where none are missing."""
    return F.pad(t, (0, width - t.size(-1))) if width > t.size(-1) else unit_stride(t)


def unit_stride(t: Tensor) -> Tensor:
    """The kernels step through the last axis by 1 and never ask: transposed or expanded, it would be read wrongly."""
    return t if t.stride(-1) == 1 else t.contiguous()


def forward_rows(q: Tensor, k: Tensor, v: Tensor, how: How, backend: Backend) -> Rows:
    """The forward kernel, at the head size it likes."""
    width, dh = backend.width(q), q.size(3)
    if width == dh:
        return backend.forward(unit_stride(q), unit_stride(k), unit_stride(v), how)
    rows = backend.forward(widened(q, width), widened(k, width), widened(v, width), how)
    # token by token, as the kernels write it: what comes next wants all heads of a token together
    out = rows.out.transpose(1, 2).narrow(-1, 0, dh).contiguous().transpose(1, 2)
    return rows._replace(out=out)


class FlashAttention(torch.autograd.Function):
    """(q, k, v) -> (out, lse) through a backend, with the gradient of both in one pass of its backward kernel."""

    @staticmethod
    def forward(
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, scale: float, causal: bool, backend: Backend
    ) -> tuple[Tensor, Tensor]:
        rows = forward_rows(q, k, v, How(scale, causal, bias), backend)
        ctx.save_for_backward(q, k, v, bias, rows.out, rows.lse, *rows.extras)
        ctx.set_materialize_grads(False)  # so that an unused lse costs nothing
        ctx.scale, ctx.causal, ctx.backend = scale, causal, backend
        return rows.out, rows.lse

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dout: Tensor | None, dlse: Tensor | None) -> tuple[Tensor | None, ...]:
        q, k, v, bias, out, lse, *extras = ctx.saved_tensors
        if dout is None and dlse is None:
            return (None,) * 7
        width, dh = ctx.backend.width(q), q.size(3)
        g = torch.zeros_like(out) if dout is None else dout
        if dlse is None:
            g, o = widened(g, width), widened(out, width)
        elif width > dh:
            g, o = spare_column(g, out, dlse, width)
        else:
            g, o = shift_rows(unit_stride(g), out, dlse)
        qkv = tuple(widened(t, width) for t in (q, k, v))
        gradients = ctx.backend.backward(g, qkv, Rows(o, lse, tuple(extras)), How(ctx.scale, ctx.causal, bias))
        dq, dk, dv = (t.narrow(-1, 0, dh) for t in gradients)
        return dq, dk, (None if dout is None else dv), *(None,) * 4  # lse does not depend on v
