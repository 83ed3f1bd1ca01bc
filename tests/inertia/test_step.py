"""The equations: every scheme against its formulas written out, the energy, and what the step reduces to."""

from collections.abc import Callable
from itertools import pairwise

import pytest
import torch
from torch import Tensor, nn

import sympformer as sf
from sympformer.flows import ACCELERATED
from sympformer.inertia import inertia_scalars
from tests.inertia.cases import Block, Plain, plain, wake

m, h, a, c0 = 0.5, 1.0, 0.5, 0.3  # the usual starts, and the gain of `wake`
SIGMA, WEIGHT = float(torch.tensor(-m * h).exp()), (1 - float(torch.tensor(-m * h).exp())) / m


def written_out(scheme: str, model: Plain, x: Tensor, gains: list[float]) -> Tensor:
    """The accelerated stack in a loop, from the formulas of the six schemes at h = 1 and constant damping."""
    y, before = torch.zeros_like(x), None
    for block, gain in zip(model.blocks, gains, strict=True):
        f = block(x) - x
        old_y, old_slope = (y, f - m * y) if before is None else before
        match scheme:
            case "plain_euler":
                drift, y_next = y, a * y + f
            case "presymp_euler":
                drift, y_next = y, (1 - m) * y + f
            case "symplectic_euler":
                y_next = SIGMA * (y + f)
                drift = y_next
            case "exp_euler":
                drift, y_next = y, SIGMA * y + WEIGHT * f
            case "ab2":
                drift, y_next = 1.5 * y - 0.5 * old_y, y + 1.5 * (f - m * y) - 0.5 * old_slope
                before = y, f - m * y
            case _:
                old_force = f if before is None else old_slope
                drift, y_next = 1.5 * y - 0.5 * old_y, SIGMA * (y + 1.5 * f - 0.5 * old_force)
                before = y, SIGMA * f
        x, y = x + f + gain * drift, y_next
    return x


@pytest.mark.parametrize("scheme", ACCELERATED)
def test_every_scheme_is_its_formula(scheme: str) -> None:
    x = torch.randn(2, 5, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    model = sf.accelerate(plain(), scheme, blocks="body.blocks").double()
    wake(model)
    gains = [part["gain"] for part in inertia_scalars(model).values()]
    want = written_out(scheme, plain(), x, gains)
    assert (want - plain()(x)).abs().max() > 0.1  # the momentum is felt
    assert torch.allclose(model(x), want, rtol=0, atol=1e-6)  # raw starts are kept in float32


def test_with_equal_gain_and_factor_it_is_the_heavy_ball() -> None:
    """y+ = a y + f, x+ = x + y+: Polyak's method."""
    x = torch.randn(3, 6, dtype=torch.float64)
    model = sf.accelerate(plain(), blocks="body.blocks").double()
    for block in model.blocks:
        nn.init.constant_(block.inertia.gain, a)
    want, y = x, torch.zeros_like(x)
    for block in plain().blocks:
        y = a * y + block(want) - want
        want = want + y
    assert torch.allclose(model(x), want, rtol=0, atol=1e-6)


class Descent(nn.Module):
    """x -> x - tau grad U, U = 1/2 x' K x."""

    def __init__(self, d: int) -> None:
        super().__init__()
        self.K = nn.Parameter(torch.linspace(0.2, 2.0, d, dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        return x - 0.05 * self.K * x


@pytest.mark.parametrize("scheme", ACCELERATED)
@pytest.mark.parametrize("gain", [0.0, 0.05, 1.0])
def test_the_energy_falls(scheme: str, gain: float) -> None:
    """With f = -tau grad U and small steps, tau U + c/2 |y|^2 falls from block to block, whatever the gain c >= 0."""
    model = sf.accelerate(Plain(Descent, depth=40), scheme, blocks="body.blocks", start={"h": 0.05})
    blocks, states = model.blocks, list[tuple[Tensor, Tensor]]()
    for block in blocks:
        nn.init.constant_(block.inertia.gain, gain)
        block.inertia.register_forward_hook(lambda _, args, out: states.append((out[0], out[1].y)))
    with torch.no_grad():
        model(torch.ones(1, 1, 6, dtype=torch.float64))
        energies = [float(0.05 * (blocks[0].K * x * x).sum() / 2 + gain * (y * y).sum() / 2) for x, y in states]
    assert len(energies) == 40
    assert all(later < earlier for earlier, later in pairwise(energies))


@pytest.mark.parametrize("where", ["body.blocks", lambda model: model.body["blocks"]])
def test_blocks_by_name_or_function(where: str | Callable[[nn.Module], nn.Module]) -> None:
    x, model = torch.randn(2, 3, 6), Plain()
    before = model(x)
    assert torch.equal(sf.accelerate(model, blocks=where)(x), before)
    assert not torch.equal(wake(model)(x), before)


@pytest.mark.parametrize(("wrap", "name"), [(lambda stack: stack, ""), (lambda stack: nn.Sequential(stack), "0")])
def test_a_sequential_is_a_stack_too(wrap: Callable[[nn.Module], nn.Module], name: str) -> None:
    x, model = torch.randn(2, 3, 6), wrap(nn.Sequential(Block(6), Block(6)))
    before = model(x)
    assert torch.equal(sf.accelerate(model, blocks=name)(x), before)
    assert not torch.equal(wake(model)(x), before)
