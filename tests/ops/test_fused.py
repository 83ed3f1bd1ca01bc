"""The fused elementwise work, and head and loss in one, against their naive twins: values and gradients."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sympformer import ops
from sympformer.errors import InputError
from sympformer.ops import linear_cross_entropy, linear_cross_entropy_naive, loss
from tests.ops.helpers import HALF, PRECISE, TOLERANCE, assert_near, compare, outs_and_grads, randoms, watch_sizes

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


# --- the fused head and loss against the logits


Loss = Callable[[Tensor, Tensor], Tensor]
WEIGHT = [torch.tensor(2.5)]  # gradient of the loss


def loss_case(shape: tuple[int, ...], d: int, vocab: int, dtype: torch.dtype) -> tuple[list[Tensor], Tensor]:
    hidden, weight = randoms((*shape, d), (vocab, d), dtype=dtype)
    return [hidden, weight], torch.randint(vocab, shape, generator=torch.Generator().manual_seed(0))


def both(targets: Tensor, ignored: int = -100) -> tuple[Loss, Loss]:
    """The loss and its slow twin, as functions of hidden and weight."""
    return (
        lambda h, w: linear_cross_entropy(h, w, targets, ignored),
        lambda h, w: linear_cross_entropy_naive(h, w, targets, ignored),
    )


@pytest.mark.parametrize("dtype", PRECISE)
@pytest.mark.parametrize(
    ("shape", "d", "vocab", "scale"),
    [((3, 50), 16, 200, 1), ((1,), 4, 7, 1), ((2, 3, 5), 8, 3, 1), ((300,), 4, 999, 1), ((60,), 8, 50, 30)],
)
@pytest.mark.parametrize("ignored", [None, -100, 1])
def test_the_loss_is_that_of_the_logits(
    shape: tuple[int, ...], d: int, vocab: int, scale: float, dtype: torch.dtype, ignored: int | None
) -> None:
    """The last with large logits."""
    inputs, targets = loss_case(shape, d, vocab, dtype)
    inputs = [scale * t for t in inputs]
    index = -100 if ignored is None else ignored
    if ignored is not None:
        targets.view(-1)[1::3] = ignored
    compare(*both(targets, index), inputs, WEIGHT, TOLERANCE[dtype] / 10)
    assert linear_cross_entropy(inputs[0], inputs[1], targets, index).dtype == dtype


def test_the_loss_is_its_formula() -> None:
    (hidden, weight), targets = loss_case((4,), 3, 5, torch.float64)
    targets[2] = -100
    terms = [(hidden[i] @ weight.mT).exp().sum().log() - hidden[i] @ weight[targets[i]] for i in (0, 1, 3)]
    torch.testing.assert_close(linear_cross_entropy_naive(hidden, weight, targets), torch.stack(terms).mean())


@pytest.mark.parametrize("dtype", HALF)
@pytest.mark.parametrize("elsewhere", [False, True])
def test_loss_in_half_precisions(dtype: torch.dtype, elsewhere: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The loss itself is good to 1e-3, on the CPU and with the path of other devices."""
    if elsewhere:
        monkeypatch.setattr(loss, "_work_dtype", lambda hidden: dtype)
    inputs, targets = loss_case((2, 250), 8, 1000, dtype)
    targets[0, ::3] = -100
    fast, naive = both(targets)
    half = outs_and_grads(fast, inputs, WEIGHT)
    truth = outs_and_grads(naive, [t.double() for t in inputs], WEIGHT)
    assert [t.dtype for t in half] == [torch.float32, dtype, dtype]
    assert_near(half[:1], truth[:1], 1e-3)
    assert_near(half, truth, TOLERANCE[dtype] * 2)


def test_why_half_precisions_have_a_path_of_their_own() -> None:
    """Should this fail, torch has mended its bfloat16 mean: then the path for half precisions can go."""
    (hidden, weight), targets = loss_case((500,), 8, 1000, torch.bfloat16)
    stock = F.linear_cross_entropy(hidden, weight, targets, options=nn.LinearCrossEntropyOptions())
    truth = linear_cross_entropy_naive(hidden, weight, targets)
    assert abs(stock.item() - truth.item()) > 1e-2 * truth.item()


def test_mixed_dtypes_and_autocast() -> None:
    (hidden, weight), targets = loss_case((60,), 8, 50, torch.float32)
    truth = linear_cross_entropy_naive(hidden, weight, targets)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        torch.testing.assert_close(linear_cross_entropy(hidden, weight, targets), truth)
        torch.testing.assert_close(linear_cross_entropy_naive(hidden, weight, targets), truth)
        mixed = linear_cross_entropy(hidden.bfloat16(), weight, targets.int())
    torch.testing.assert_close(mixed, truth, rtol=1e-2, atol=0.0)


def test_no_grad_and_frozen_parts() -> None:
    (hidden, weight), targets = loss_case((60,), 8, 50, torch.float64)
    truth = linear_cross_entropy_naive(hidden, weight, targets)
    with torch.no_grad():
        torch.testing.assert_close(linear_cross_entropy(hidden, weight, targets), truth)
    for leaf in (hidden, weight):
        leaf.requires_grad_()
        fast, slow = (torch.autograd.grad(f(hidden, weight), leaf) for f in both(targets))
        assert_near(fast, slow, 1e-9)
        leaf.requires_grad_(False)


def test_logits_are_never_built() -> None:
    inputs, targets = loss_case((4, 256), 16, 2048, torch.float32)
    with watch_sizes() as watch:
        outs_and_grads(both(targets)[0], inputs, WEIGHT)
    assert 0 < watch.largest <= 4 * 256 * 2048 // 16


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_torch_compile() -> None:
    inputs, targets = loss_case((60,), 8, 50, torch.float32)
    torch.compiler.reset()
    fast, naive = both(targets)
    compare(torch.compile(fast), naive, inputs, WEIGHT, 1e-4)


HIDDEN, MATRIX, TARGETS = torch.zeros(2, 5, 4), torch.zeros(9, 4), torch.zeros(2, 5, dtype=torch.long)


@pytest.mark.parametrize(
    ("hidden", "weight", "targets", "message"),
    [
        (HIDDEN, MATRIX[:, :3], TARGETS, "same width"),
        (HIDDEN, MATRIX, TARGETS[:, :4], r"a token number per hidden row, torch.long \(2, 5\)"),
        (HIDDEN, MATRIX, TARGETS.float(), "torch.float32"),
    ],
)
def test_bad_targets(hidden: Tensor, weight: Tensor, targets: Tensor, message: str) -> None:
    for f in both(targets):
        with pytest.raises(InputError, match=message):
            f(hidden, weight)
