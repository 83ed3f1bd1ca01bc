"""What the tests of the fast operations share: random inputs, gradients, and a watch over the sizes of tensors."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

LENGTHS = [1, 2, 63, 64, 65, 200]
BATCHES = [(1, 4), (3, 1), (3, 4)]  # (batch, heads)
TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-4, torch.bfloat16: 2e-2, torch.float16: 2e-3}
PRECISE = [torch.float64, torch.float32]
HALF = [torch.bfloat16, torch.float16]


def randoms(*shapes: tuple[int, ...], dtype: torch.dtype = torch.float64, seed: int = 0) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype) for shape in shapes]


def outs_and_grads(f: Callable[..., Any], inputs: Sequence[Tensor], weights: Sequence[Tensor]) -> list[Tensor]:
    """The outputs of f, and the gradients of sum <weights, outputs> in every input."""
    leaves = [t.detach().clone().requires_grad_() for t in inputs]
    outs = f(*leaves)
    outs = [outs] if isinstance(outs, Tensor) else list(outs)
    torch.autograd.backward(outs, [w.to(out.dtype) for w, out in zip(weights, outs, strict=True)])
    grads = [torch.zeros_like(t) if t.grad is None else t.grad for t in leaves]
    return [*(out.detach() for out in outs), *grads]


def assert_near(actual: Sequence[Tensor], expected: Sequence[Tensor], tolerance: float, floor: float = 1e-12) -> None:
    """Every tensor near its twin, in units of the twin's largest entry, or of `floor` where that is smaller."""
    assert len(actual) == len(expected)
    for i, (a, b) in enumerate(zip(actual, expected, strict=True)):
        assert a.shape == b.shape
        assert torch.isfinite(a).all(), f"entry {i} is not finite"
        error = (a.double() - b.double()).abs().max().item()
        size = max(b.double().abs().max().item(), floor)
        assert error <= tolerance * size, f"entry {i} is off by {error:.2e} of {size:.2e}"


def compare(
    fast: Callable[..., Any],
    naive: Callable[..., Any],
    inputs: Sequence[Tensor],
    weights: Sequence[Tensor],
    tolerance: float,
    floor: float = 1e-12,
) -> None:
    """Values, gradients and dtypes of both are the same."""
    quick, slow = (outs_and_grads(f, inputs, weights) for f in (fast, naive))
    assert [t.dtype for t in quick] == [t.dtype for t in slow]
    assert_near(quick, slow, tolerance, floor)


class _Watch(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.largest = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        sizes = [t.numel() for t in tree_leaves(result) if isinstance(t, Tensor)]
        self.largest = max(self.largest, *sizes, 0)
        return result


@contextmanager
def watch_sizes() -> Iterator[_Watch]:
    """`largest` is the number of entries of the largest tensor that any operation returns, also backwards."""
    with _Watch() as watch:
        yield watch
