"""Linear attention: its formula, any chunk, step by step. What it shares with other kernels: test_kernels."""

from functools import partial

import pytest
import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from sympformer.errors import InputError
from sympformer.ops import linear_attention_naive, linear_attention_step, symplectic_scan_naive, symplectic_step
from tests.ops.helpers import HALF, PRECISE, TOLERANCE, assert_near, compare, outs_and_grads
from tests.ops.test_kernels import KINDS, Op, case

STEPS: dict[str, Op] = {"linear": linear_attention_step, "symplectic": symplectic_step}
EACH = pytest.mark.parametrize("name", STEPS)


def test_naive_is_the_formula() -> None:
    (q, x, y), _ = case(KINDS["symplectic"], 1, 1, 6)
    position_out, momentum_out = symplectic_scan_naive(q, x, y)
    assert torch.equal(position_out, linear_attention_naive(q, x, y))
    for i in range(6):
        S = torch.stack([torch.outer(x[0, 0, j], y[0, 0, j]) for j in range(i + 1)]).sum(0)
        torch.testing.assert_close(position_out[0, 0, i], S.mT @ q[0, 0, i])
        torch.testing.assert_close(momentum_out[0, 0, i], S @ y[0, 0, i])


@pytest.mark.parametrize("chunk", [1, 2, 7, 16, 64, 300, 1000])
@EACH
def test_any_chunk(name: str, chunk: int) -> None:
    """300 tokens in chunks of 1 are 19 groups of 16 chunks, the last one not full."""
    compare(partial(KINDS[name].fast, chunk=chunk), KINDS[name].naive, *case(KINDS[name], 2, 2, 300), 1e-11)


@pytest.mark.parametrize(("widths", "scale"), [((1, 1), 1), ((3, 40), 1e3), ((70, 2), 1e-3)])
@EACH
def test_any_width_and_size(name: str, widths: tuple[int, int], scale: float) -> None:
    inputs, weights = case(KINDS[name]._replace(widths=widths), 2, 2, 100)
    compare(*KINDS[name][:2], [scale * t for t in inputs], weights, 1e-11)


@EACH
def test_work_is_linear(name: str) -> None:
    def flops(tokens: int) -> int:
        with FlopCounterMode(display=False) as counter:
            outs_and_grads(KINDS[name].fast, *case(KINDS[name]._replace(widths=(16, 16)), 1, 1, tokens, torch.float32))
        return int(counter.get_total_flops())

    assert flops(4096) == 4 * flops(1024) > 0


def run_steps(step: Op, inputs: list[Tensor], chunks: list[int]) -> list[Tensor]:
    """The outputs of all steps joined, and the last state."""
    state, end, parts = None, 0, []
    for size in chunks:
        start, end = end, end + size
        *outs, state = step(state, *(t[:, :, start:end] for t in inputs))
        parts.append(outs)
    assert state is not None
    return [*(torch.cat(ts, 2) for ts in zip(*parts, strict=True)), state]


@pytest.mark.parametrize("dtype", PRECISE)
@pytest.mark.parametrize("chunks", [[1] * 70, [70], [1, 69], [69, 1], [7, 1, 1, 40, 2, 19]], ids=str)
@EACH
def test_steps_are_the_scan(name: str, chunks: list[int], dtype: torch.dtype) -> None:
    inputs, weights = case(KINDS[name], 2, 3, sum(chunks), dtype)
    steps = partial(run_steps, STEPS[name], chunks=chunks)
    compare(lambda *t: steps(list(t))[:-1], KINDS[name].naive, inputs, weights, TOLERANCE[dtype])
    assert_near(steps(inputs)[-1:], [inputs[1].mT @ inputs[2]], TOLERANCE[dtype])


@pytest.mark.parametrize("dtype", HALF)
@EACH
def test_half_precision_steps(name: str, dtype: torch.dtype) -> None:
    inputs, _ = case(KINDS[name], 1, 2, 200, dtype)
    *outs, state = run_steps(STEPS[name], inputs, [100] + [1] * 100)
    assert {t.dtype for t in outs} == {dtype}
    assert state.dtype == torch.float32
    truth = KINDS[name].naive(*(t.double() for t in inputs))
    assert_near(outs, [truth] if name == "linear" else truth, torch.finfo(dtype).eps)


@EACH
def test_steps_leave_the_old_state_alone(name: str) -> None:
    """Beams branch off one state."""
    inputs, _ = case(KINDS[name], 1, 2, 3)
    state = STEPS[name](None, *inputs)[-1]
    kept = state.clone()
    for tokens in (1, 3):
        STEPS[name](state, *(t[:, :, :tokens] for t in inputs))
        assert torch.equal(state, kept)
    with pytest.raises(InputError, match="state of the last step"):
        STEPS[name](torch.zeros(1, 2, 5, 8), *inputs)
    with pytest.raises(InputError, match="chunk must be at least 1"):
        KINDS[name].fast(*inputs, chunk=0)
