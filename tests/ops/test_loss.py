"""The fused head and loss against the logits, in values and gradients."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sympformer.errors import InputError
from sympformer.ops import linear_cross_entropy, linear_cross_entropy_naive, loss
from tests.ops.helpers import HALF, PRECISE, TOLERANCE, assert_near, compare, outs_and_grads, randoms, watch_sizes

Loss = Callable[[Tensor, Tensor], Tensor]
WEIGHT = [torch.tensor(2.5)]  # gradient of the loss


def case(shape: tuple[int, ...], d: int, vocab: int, dtype: torch.dtype) -> tuple[list[Tensor], Tensor]:
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
def test_fast_is_naive(
    shape: tuple[int, ...], d: int, vocab: int, scale: float, dtype: torch.dtype, ignored: int | None
) -> None:
    """The last with large logits."""
    inputs, targets = case(shape, d, vocab, dtype)
    inputs = [scale * t for t in inputs]
    index = -100 if ignored is None else ignored
    if ignored is not None:
        targets.view(-1)[1::3] = ignored
    compare(*both(targets, index), inputs, WEIGHT, TOLERANCE[dtype] / 10)
    assert linear_cross_entropy(inputs[0], inputs[1], targets, index).dtype == dtype


def test_naive_is_the_formula() -> None:
    (hidden, weight), targets = case((4,), 3, 5, torch.float64)
    targets[2] = -100
    terms = [(hidden[i] @ weight.mT).exp().sum().log() - hidden[i] @ weight[targets[i]] for i in (0, 1, 3)]
    torch.testing.assert_close(linear_cross_entropy_naive(hidden, weight, targets), torch.stack(terms).mean())


@pytest.mark.parametrize("dtype", HALF)
@pytest.mark.parametrize("elsewhere", [False, True])
def test_half_precisions(dtype: torch.dtype, elsewhere: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The loss itself is good to 1e-3, on the CPU and with the path of other devices."""
    if elsewhere:
        monkeypatch.setattr(loss, "_work_dtype", lambda hidden: dtype)
    inputs, targets = case((2, 250), 8, 1000, dtype)
    targets[0, ::3] = -100
    fast, naive = both(targets)
    half = outs_and_grads(fast, inputs, WEIGHT)
    truth = outs_and_grads(naive, [t.double() for t in inputs], WEIGHT)
    assert [t.dtype for t in half] == [torch.float32, dtype, dtype]
    assert_near(half[:1], truth[:1], 1e-3)
    assert_near(half, truth, TOLERANCE[dtype] * 2)


def test_why_half_precisions_have_a_path_of_their_own() -> None:
    """Should this fail, torch has mended its bfloat16 mean: then the path for half precisions can go."""
    (hidden, weight), targets = case((500,), 8, 1000, torch.bfloat16)
    stock = F.linear_cross_entropy(hidden, weight, targets, options=nn.LinearCrossEntropyOptions())
    truth = linear_cross_entropy_naive(hidden, weight, targets)
    assert abs(stock.item() - truth.item()) > 1e-2 * truth.item()


def test_mixed_dtypes_and_autocast() -> None:
    (hidden, weight), targets = case((60,), 8, 50, torch.float32)
    truth = linear_cross_entropy_naive(hidden, weight, targets)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        torch.testing.assert_close(linear_cross_entropy(hidden, weight, targets), truth)
        torch.testing.assert_close(linear_cross_entropy_naive(hidden, weight, targets), truth)
        mixed = linear_cross_entropy(hidden.bfloat16(), weight, targets.int())
    torch.testing.assert_close(mixed, truth, rtol=1e-2, atol=0.0)


def test_no_grad_and_frozen_parts() -> None:
    (hidden, weight), targets = case((60,), 8, 50, torch.float64)
    truth = linear_cross_entropy_naive(hidden, weight, targets)
    with torch.no_grad():
        torch.testing.assert_close(linear_cross_entropy(hidden, weight, targets), truth)
    for leaf in (hidden, weight):
        leaf.requires_grad_()
        fast, slow = (torch.autograd.grad(f(hidden, weight), leaf) for f in both(targets))
        assert_near(fast, slow, 1e-9)
        leaf.requires_grad_(False)


def test_logits_are_never_built() -> None:
    inputs, targets = case((4, 256), 16, 2048, torch.float32)
    with watch_sizes() as watch:
        outs_and_grads(both(targets)[0], inputs, WEIGHT)
    assert 0 < watch.largest <= 4 * 256 * 2048 // 16


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_torch_compile() -> None:
    inputs, targets = case((60,), 8, 50, torch.float32)
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
def test_bad_input(hidden: Tensor, weight: Tensor, targets: Tensor, message: str) -> None:
    for f in both(targets):
        with pytest.raises(InputError, match=message):
            f(hidden, weight)
