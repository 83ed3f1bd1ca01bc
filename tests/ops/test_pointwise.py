"""The fused elementwise work against its naive twins, values and gradients."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from sympformer import ops
from tests.ops.helpers import HALF, assert_near, compare, outs_and_grads, randoms

Function = Callable[..., Any]
STREAM = (3, 7, 16)
# name -> (fast, naive, shapes of the inputs)
FUSED: dict[str, tuple[Function, Function, list[tuple[int, ...]]]] = {
    "plus": (ops.plus, lambda u, b, v: u + b * v, [STREAM, (), STREAM]),
    "norm": (ops.norm_of_sum, ops.norm_of_sum_naive, [(), STREAM, (), STREAM, (16,)]),
}
EACH = pytest.mark.parametrize("name", FUSED)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-10), (torch.float32, 1e-4)])
@EACH
def test_fused_equals_naive(name: str, dtype: torch.dtype, tolerance: float) -> None:
    fast, naive, shapes = FUSED[name]
    compare(fast, naive, randoms(*shapes, dtype=dtype), randoms(STREAM, dtype=dtype, seed=1), tolerance)


@EACH
def test_without_gradients_and_with_plain_numbers(name: str) -> None:
    fast, naive, shapes = FUSED[name]
    inputs = [t.requires_grad_() for t in randoms(*shapes)]
    numbers = [t.item() if t.ndim == 0 else t for t in inputs]
    for got in (fast(*numbers), torch.no_grad()(fast)(*numbers)):
        torch.testing.assert_close(got, naive(*inputs), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("function", "least", "most"), [(ops.norm_of_sum, 0.0, 0.3), (ops.norm_of_sum_naive, 0.9, 9.0)]
)
def test_only_what_is_needed_is_kept(function: Function, least: float, most: float) -> None:
    """The point of the fusion: the sum is not held for the backward pass. In bytes of one stream, beyond the inputs."""
    inputs = [t.requires_grad_() for t in randoms((), (3, 64, 16), (), (3, 64, 16), (16,))]
    given, kept, alive = {t.untyped_storage().data_ptr() for t in inputs}, {}, []

    def pack(t: Tensor) -> Tensor:
        alive.append(t)  # a freed storage's address could be given out again
        if t.untyped_storage().data_ptr() not in given:
            kept[t.untyped_storage().data_ptr()] = t.untyped_storage().nbytes()
        return t

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        function(*inputs)
    assert least <= sum(kept.values()) / inputs[1].nbytes < most


@pytest.mark.parametrize("precision", HALF)
def test_half_precision_streams(precision: torch.dtype) -> None:
    fast, naive, shapes = FUSED["norm"]
    inputs, weights = randoms(*shapes), randoms(STREAM, seed=1)
    half = outs_and_grads(fast, [t.to(precision) for t in inputs], weights)
    assert {t.dtype for t in half} == {precision}
    assert_near(half[:2], outs_and_grads(naive, inputs, weights)[:2], 0.1)


@torch.no_grad()
@pytest.mark.parametrize("factor", [0.7, 0.1, 1e-3, 0.0, -2.0])
def test_plain_numbers_without_gradients(factor: float) -> None:
    """What a cached token takes: scalars are numbers, and a LayerNorm may take a positive factor into its eps."""
    u, v, gain = randoms(STREAM, STREAM, (16,))
    fast, naive = (partial(f, factor, 1e-2 * u, 0.9, 1e-2 * v, gain) for f in FUSED["norm"][:2])
    torch.testing.assert_close(fast(), naive(), rtol=1e-12, atol=1e-12)


def test_behind_a_shut_door_both_are_the_formula() -> None:
    u, b, v = (t.requires_grad_() for t in randoms(*FUSED["plus"][2]))
    with ops.plain():
        assert ops.plus(u, b, v).grad_fn.name() == "AddBackward0"  # type: ignore[union-attr]
        assert "NormOfSum" not in ops.norm_of_sum(b, u, b, v, v[0, 0]).grad_fn.name()  # type: ignore[union-attr]
    assert "Plus" in ops.plus(u, b, v).grad_fn.name()  # type: ignore[union-attr]
