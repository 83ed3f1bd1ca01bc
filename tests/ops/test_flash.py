"""The backends of flash attention: all that surrounds a kernel, without the hardware it needs."""

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from sympformer.ops import flash, softmax
from tests.ops.helpers import TOLERANCE
from tests.ops.test_softmax import ROWS, SCALE, case, compare


def fake_backend(half: bool, multiple: int, least: int = 1) -> flash.Backend:
    """The kernels written out as matrices: forward and backward know nothing of a gradient of lse."""

    def scores(q: Tensor, k: Tensor, how: flash.How) -> Tensor:
        assert q.size(3) % multiple == 0
        assert q.size(3) >= least or q.size(2) == 1
        s = how.scale * q.float() @ k.float().mT + (0 if how.bias is None else how.bias)
        return s.masked_fill(torch.ones_like(s, dtype=torch.bool).triu(1), float("-inf")) if how.causal else s

    def forward(q: Tensor, k: Tensor, v: Tensor, how: flash.How) -> flash.Rows:
        s = scores(q, k, how)
        return flash.Rows((s.softmax(-1) @ v.float()).to(q.dtype), s.logsumexp(-1), (torch.tensor(7),))

    def backward(dout: Tensor, qkv: flash.Three, rows: flash.Rows, how: flash.How) -> flash.Three:
        (q, k, v), (out, lse, (seed,)) = qkv, rows
        assert seed == 7  # what the forward kernel left comes back
        assert dout.dtype == out.dtype == q.dtype
        P = (scores(q, k, how) - lse.unsqueeze(-1)).exp()
        delta = (dout.float() * out.float()).sum(-1, keepdim=True)
        ds = P * (dout.float() @ v.float().mT - delta)
        grads = how.scale * ds @ k.float(), how.scale * ds.mT @ q.float(), P.mT @ dout.float()
        return tuple(g.to(q.dtype) for g in grads)

    return flash.Backend("fake", forward, backward, half=half, multiple=multiple, least=least)


FITS_FLOAT16 = [name for name in ROWS if "tiny" not in name and "huge" not in name]


@pytest.mark.parametrize(
    ("dtype", "rows"),
    [(dtype, rows) for dtype in (torch.float32, torch.bfloat16) for rows in ROWS]
    + [(torch.float16, rows) for rows in FITS_FLOAT16],
)
@pytest.mark.parametrize("dh", [5, 8])  # widened, so that lse gets a column of its own, and not
def test_any_backend(dtype: torch.dtype, rows: str, dh: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything about CUDA but its kernels: padded heads, half precisions, saved extras, shifted rows."""
    monkeypatch.setattr(softmax, "backend_for", lambda *_: fake_backend(half=True, multiple=8))
    inputs, weights = case(2, 2, 33, dh=dh, dtype=dtype)
    weights = ROWS[rows](*weights)
    # float16 has no room for a negligible row: there the unit is the gradient of lse in the same row
    floor = weights[1].abs().max().item() if dtype == torch.float16 else 0.0
    compare(inputs, weights, TOLERANCE[dtype], floor=max(floor, 1e-12))


@pytest.mark.parametrize(
    ("backend", "queries", "dh", "width"),
    [
        (fake_backend(True, 8), 4, 8, 8),
        (fake_backend(True, 8), 4, 9, 16),
        (fake_backend(True, 1, least=16), 4, 8, 16),
        (fake_backend(True, 1, least=16), 4, 17, 17),
        (fake_backend(True, 1, least=16), 1, 8, 8),  # a token at a time the cache is not copied
        (fake_backend(True, 8, least=12), 4, 5, 16),
    ],
)
def test_width_of_heads(backend: flash.Backend, queries: int, dh: int, width: int) -> None:
    assert backend.width(torch.empty(1, 1, queries, dh)) == width


def test_device_without_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(softmax, "backend_for", lambda *_: None)
    compare(*case(1, 2, 20), 1e-12)


@pytest.mark.parametrize(
    ("device", "dtype", "dh", "capability", "name"),
    [
        ("cpu", torch.float64, 8, None, "cpu"),
        ("cpu", torch.bfloat16, 8, None, "cpu"),
        ("cuda", torch.bfloat16, 64, (9, 0), "cuda-flash"),
        ("cuda", torch.float16, 256, (8, 0), "cuda-flash"),
        ("cuda", torch.float16, 512, (8, 0), "cuda-efficient"),
        ("cuda", torch.float16, 64, (7, 5), "cuda-efficient"),
        ("cuda", torch.float32, 64, (8, 0), "cuda-efficient"),
        ("cuda", torch.bfloat16, 64, (7, 5), None),
        ("cuda", torch.float64, 64, (9, 0), None),
        ("meta", torch.float32, 64, None, None),
    ],
)
def test_table_of_backends(
    device: str,
    dtype: torch.dtype,
    dh: int,
    capability: tuple[int, int] | None,
    name: str | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    monkeypatch.setattr(torch.backends.cuda, "is_flash_attention_available", lambda: True)
    with FakeTensorMode():
        backend = flash.backend_for(torch.empty(1, 1, 4, dh, dtype=dtype, device=device))
    assert (backend and backend.name) == name


@pytest.mark.parametrize(
    ("backend", "dtype"),
    [
        (flash.CUDA_FLASH, torch.bfloat16),
        (flash.CUDA_FLASH, torch.float16),
        (flash.CUDA_EFFICIENT, torch.float32),
        (flash.CUDA_EFFICIENT, torch.float16),
    ],
)
@pytest.mark.parametrize(("queries", "keys", "causal"), [(50, 50, True), (3, 50, False)])
def test_calls_of_cuda_kernels(
    backend: flash.Backend, dtype: torch.dtype, queries: int, keys: int, causal: bool
) -> None:
    """Without a GPU: the signatures and shapes of its kernels, on tensors that have no data."""
    with FakeTensorMode():
        q = torch.empty(2, 3, queries, 16, dtype=dtype, device="cuda")
        k = torch.empty(2, 3, keys, 16, dtype=dtype, device="cuda")
        biased = backend is flash.CUDA_EFFICIENT
        how = flash.How(SCALE, causal, torch.empty(2, 1, 1, keys, dtype=dtype, device="cuda") if biased else None)
        rows = backend.forward(q, k, k, how)
        assert (rows.out.shape, rows.lse.shape) == (q.shape, q.shape[:3])
        narrow = rows.out.narrow(-1, 0, 9)
        g, o = flash.spare_column(narrow, narrow, rows.lse, 16)
        assert (g.shape, g.dtype, o.shape, o.dtype) == (q.shape, dtype, q.shape, dtype)
        g, o = flash.shift_rows(torch.empty_like(rows.out), rows.out, rows.lse)
        assert (g.shape, g.dtype, o.shape, o.dtype) == (q.shape, dtype, q.shape, dtype)
        grads = backend.backward(g, (q, k, k), flash.Rows(o, rows.lse, rows.extras), how)
    assert [t.shape for t in grads] == [q.shape, k.shape, k.shape]
