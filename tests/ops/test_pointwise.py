"""The fused elementwise work against its naive twins, values and gradients."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from sympformer import ops

Function = Callable[..., Any]
Case = tuple[list[Tensor], Function, Function]


def randn(*shape: int, seed: int, dtype: torch.dtype) -> Tensor:
    made = torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return made.to(dtype).requires_grad_()


def plus_case(dtype: torch.dtype, T: int) -> Case:
    u, b, v = randn(3, T, 16, seed=1, dtype=dtype), randn(seed=2, dtype=dtype), randn(3, T, 16, seed=3, dtype=dtype)
    return [u, b, v], ops.plus, lambda u, b, v: u + b * v


def norm_case(dtype: torch.dtype, T: int) -> Case:
    u, v = randn(3, T, 16, seed=1, dtype=dtype), randn(3, T, 16, seed=2, dtype=dtype)
    a, b, gain = (randn(*shape, seed=3 + i, dtype=dtype) for i, shape in enumerate([(), (), (16,)]))
    return [a, u, b, v, gain], ops.norm_of_sum, ops.norm_of_sum_naive


def outputs_and_gradients(function: Function, inputs: list[Tensor]) -> list[Tensor]:
    made = function(*inputs)
    outputs = list(made) if isinstance(made, tuple) else [made]
    weights = [randn(*out.shape, seed=20 + i, dtype=out.dtype) for i, out in enumerate(outputs)]
    return outputs + list(torch.autograd.grad(outputs, inputs, weights))


@pytest.mark.parametrize("T", [1, 7])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-10), (torch.float32, 1e-4)])
@pytest.mark.parametrize("case", [plus_case, norm_case])
def test_fused_equals_naive(case: Callable[..., Case], dtype: torch.dtype, tolerance: float, T: int) -> None:
    inputs, fast, slow = case(dtype, T)
    got, want = outputs_and_gradients(fast, inputs), outputs_and_gradients(slow, inputs)
    for a, b in zip(got, want, strict=True):
        assert a.dtype == dtype
        assert a.shape == b.shape
        torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("case", [plus_case, norm_case])
def test_without_gradients_and_with_plain_numbers(case: Callable[..., Case]) -> None:
    inputs, fast, slow = case(torch.float64, 5)
    numbers = [t.item() if t.ndim == 0 else t for t in inputs]
    for got in (fast(*numbers), torch.no_grad()(fast)(*numbers)):
        torch.testing.assert_close(got, slow(*inputs), rtol=1e-12, atol=1e-12)


def held_for_backward(function: Function, inputs: list[Tensor]) -> float:
    """Bytes kept beyond the inputs, by the bytes of one stream."""
    given, kept, alive = {t.untyped_storage().data_ptr() for t in inputs}, {}, []

    def pack(t: Tensor) -> Tensor:
        alive.append(t)  # a freed storage's address could be given out again
        storage = t.untyped_storage()
        if storage.data_ptr() not in given:
            kept[storage.data_ptr()] = storage.nbytes()
        return t

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        function(*inputs)
    return sum(kept.values()) / inputs[1].nbytes


@pytest.mark.parametrize("case", [norm_case])
def test_only_what_is_needed_is_kept(case: Callable[..., Case]) -> None:
    """The point of the fusion: the sum is not held for the backward pass."""
    inputs, fast, slow = case(torch.float64, 64)
    assert held_for_backward(fast, inputs) < 0.3
    assert held_for_backward(slow, inputs) > 0.9


@pytest.mark.parametrize("precision", [torch.bfloat16, torch.float16])
def test_half_precision_streams(precision: torch.dtype) -> None:
    inputs, fast, slow = norm_case(torch.float64, 7)
    small = [t.detach().to(precision).requires_grad_() for t in inputs]
    for got, want in zip(outputs_and_gradients(fast, small)[:2], outputs_and_gradients(slow, inputs)[:2], strict=True):
        assert got.dtype == precision
        torch.testing.assert_close(got.double(), want, rtol=0.1, atol=0.2)


@torch.no_grad()
@pytest.mark.parametrize("factor", [0.7, 0.1, 1e-3, 0.0, -2.0])
def test_plain_numbers_without_gradients(factor: float) -> None:
    """What a cached token takes: scalars are numbers, and a LayerNorm may take a positive factor into its eps."""
    _, u, _, v, gain = norm_case(torch.float64, 3)[0]
    sums = (factor, 1e-2 * u, 0.9, 1e-2 * v, gain)
    torch.testing.assert_close(ops.norm_of_sum(*sums), ops.norm_of_sum_naive(*sums), rtol=1e-12, atol=1e-12)


def test_behind_a_shut_door_both_are_the_formula() -> None:
    u, b, v = plus_case(torch.float64, 3)[0]
    with ops.plain():
        assert ops.plus(u, b, v).grad_fn.name() == "AddBackward0"  # type: ignore[union-attr]
        assert "NormOfSum" not in ops.norm_of_sum(b, u, b, v, v[0, 0]).grad_fn.name()  # type: ignore[union-attr]
    assert "Plus" in ops.plus(u, b, v).grad_fn.name()  # type: ignore[union-attr]
