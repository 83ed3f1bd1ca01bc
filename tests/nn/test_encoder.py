"""The encoder: the language model's layers for any tokens, and where every token sees all, the flow itself."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import sympformer as sf
from sympformer import flows
from sympformer.errors import InputError
from sympformer.flows import INTEGRATORS, FrozenIntegrator
from sympformer.nn import NORMS, PRESETS, Encoder, EncoderLayer, State, perturb_
from tests.models.cases import tokens
from tests.nn.rows import RAGGED

# row -> how it is asked for
ASKED: dict[str, dict[str, Any]] = {
    "hamiltonian": {"stepper": "hamiltonian"},
    "linear": {"stepper": "hamiltonian", "attention": "linear", "integrator": "etd_ab2"},
    "paper": {"stepper": "hamiltonian", "preset": "paper", "integrator": "ab2"},
    "nesterov": {"stepper": "nesterov"},
    "nesterov-paper": {"stepper": "nesterov", "attention": "linear", "preset": "paper"},
    "gradient": {"stepper": "gradient"},
    "gradient-linear": {"stepper": "gradient", "attention": "linear"},
    "parallel": {"stepper": "hamiltonian", "splitting": "parallel", "bound": "drift"},
    "rotary": {"stepper": "hamiltonian", "positions": "rotary"},
    "learned": {"stepper": "nesterov", "positions": "learned", "block_size": 7},
    "modern": {"stepper": "hamiltonian", "preset": "modern"},
}
every_row = pytest.mark.parametrize("row", ASKED)


def encoder(row: str, **options: Any) -> Encoder:
    torch.manual_seed(0)
    made = Encoder(16, 2, 2, **(ASKED[row] | options))
    return perturb_(made).double().eval()  # type: ignore[return-value]


def points(B: int = 5, T: int = 7, seed: int = 2) -> Tensor:
    return torch.randn(B, T, 16, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@every_row
def test_whatever_stands_at_padding_goes_no_further(row: str) -> None:
    module, x = encoder(row), points()
    spoilt = x.masked_fill(~RAGGED.unsqueeze(-1), float("nan")).requires_grad_()
    out = module(spoilt, ~RAGGED)
    assert torch.equal(out, module(x, ~RAGGED))
    (gradient,) = torch.autograd.grad(out.sum(), spoilt)
    assert not gradient[~RAGGED].any()
    assert gradient[RAGGED].isfinite().all()


@every_row
@torch.no_grad()
def test_states_and_single_steps(row: str) -> None:
    module, x = encoder(row), points()
    out, states = module(x, ~RAGGED, return_states=True)
    assert torch.equal(out, module(x, ~RAGGED))
    assert len(states) == 2
    assert (states[0].x - states[1].x).abs().max() > 1e-6
    assert (states[0].y.abs().max() > 0) == module.cfg.has_momentum
    layers = [EncoderLayer(16, 2, **ASKED[row]).double().eval() for _ in range(2)]
    state: Any = x
    for layer, block, want in zip(layers, module.blocks, states, strict=True):
        layer.blocks[0].load_state_dict(block.state_dict())
        layer.positions.load_state_dict(module.positions.state_dict())
        state = layer(state, ~RAGGED)
        assert isinstance(state, State)
        torch.testing.assert_close((state.x, state.y), (want.x, want.y), rtol=1e-12, atol=1e-14)


@every_row
@torch.no_grad()
def test_without_positions_it_is_permutation_equivariant(row: str) -> None:
    module, x = encoder(row), points()
    if row == "learned":
        assert (module(x.flip(1)) - module(x).flip(1)).abs().max() > 1e-3
        return
    module = encoder(row, positions="none")
    order = torch.tensor([3, 0, 6, 1, 5, 2, 4])
    moved = module(x[:, order], ~RAGGED[:, order])
    assert (moved - module(x, ~RAGGED)[:, order]).abs().max() < 1e-12
    causal = encoder(row, causal=True)
    assert (causal(x[:, order]) - causal(x)[:, order]).abs().max() > 1e-3


class NoNorm(nn.Identity):
    """The tokens as they are."""

    def __init__(self, d: int, gain: float) -> None:
        super().__init__()


@pytest.fixture
def no_norm() -> Iterator[str]:
    sf.register("norm", "no_norm", NoNorm)
    yield "no_norm"
    del NORMS["no_norm"]


SYSTEMS: dict[str, dict[str, Any]] = {
    "softmax": {"form": "paper", "value": "tied", "mobility": "spd"},
    "linear": {"value": "spd"},
}
FROZEN = [name for name, scheme in INTEGRATORS.items() if issubclass(scheme, FrozenIntegrator)]
BARE: dict[str, Any] = {"mlp": "none", "bound": "none", "mu": 0.0}
STEP = 0.2


def flow(attention: str, integrator: str, norm: str) -> tuple[Encoder, flows.System]:
    """Four equal layers with nothing but the flow in them, and the system it is the flow of."""
    options: dict[str, Any] = (
        {"h_x": STEP, "h_y": STEP, "norm": norm, "integrator": integrator} | BARE | SYSTEMS[attention]
    )
    torch.manual_seed(1)
    made = Encoder(16, 2, 4, attention=attention, preset="paper", share_layers=True, **options)
    module: Any = perturb_(made, 0.3).double()
    part: Any = module.blocks[0].attention
    with torch.no_grad():
        if attention == "softmax":
            return module, flows.SoftmaxAttention(part.matrices()[0], part.matrices()[1], form="paper")
        A, _, V = part.matrices()
        return module, flows.LinearAttention(A, V)


@pytest.mark.parametrize(("attention", "integrator"), [(a, i) for a in SYSTEMS for i in FROZEN])
@torch.no_grad()
def test_its_layers_are_the_steps_of_the_hamiltonian_flow(attention: str, integrator: str, no_norm: str) -> None:
    """A tied, B positive definite, every token seen, no norms: layer after layer what `flows.simulate` gives.

    A padded row is a flow of fewer particles.
    """
    if integrator == "symplectic_euler" and attention == "linear":
        with pytest.raises(InputError, match="second scan"):
            flow(attention, integrator, no_norm)
        return
    module, system = flow(attention, integrator, no_norm)
    s = module.scalars.report()[0]
    damping = flows.LogLinear(s.get("c_log", 0.0), s.get("c_lin", 0.0))
    x = points()
    _, states = module(x, ~RAGGED, return_states=True)
    for row, real in enumerate(RAGGED):
        path = flows.simulate(
            system, x[row, real], steps=4, h=s["h_x"], integrator=integrator, damping=damping, factor=s.get("factor")
        )
        for state, x_want, y_want in zip(states, path.x[1:], path.y[1:], strict=True):
            assert (state.x[row, real] - x_want).abs().max() < 1e-12 * max(1.0, x_want.abs().max().item())
            assert (state.y[row, real] - y_want).abs().max() < 1e-12 * max(1.0, y_want.abs().max().item())
    assert (path.x[-1] - path.x[0]).abs().max() > 1e-2


@pytest.mark.parametrize("attention", SYSTEMS)
def test_a_layer_moves_by_the_derivatives_of_the_energy(attention: str, no_norm: str) -> None:
    """x+ - x = h dH/dy and y+ - a y = -h dH/dx, of the Hamiltonian of all tokens."""
    module, system = flow(attention, "plain_euler", no_norm)
    x, y = points(2, 6).requires_grad_(), points(2, 6, seed=5).requires_grad_()
    options: dict[str, Any] = {
        "norm": no_norm,
        "integrator": "plain_euler",
        "preset": "paper",
        "h_x": STEP,
        "h_y": STEP,
    } | BARE
    layer: Any = EncoderLayer(16, 2, attention=attention, **(options | SYSTEMS[attention])).double()
    layer.blocks[0].load_state_dict(module.blocks[0].state_dict())
    s = layer.scalars.report()[0]
    dx, dy = torch.autograd.grad(system.hamiltonian(x, y).sum(), (x, y))
    after = layer(layer.start(x, y))
    torch.testing.assert_close(after.x, x + s["h_x"] * dy, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(after.y, s["factor"] * y - s["h_y"] * dx, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("preset", PRESETS)
def test_presets(preset: str) -> None:
    want = sf.variant("softmax-ab2", preset=preset, n_layer=2, n_head=2, d_model=16, causal=False, positions="none")
    got = Encoder(16, 2, 2, integrator="ab2", preset=preset, positions="none").cfg
    assert got.to_dict() == {k: v for k, v in want.to_dict().items() if k in got.to_dict()}


BAD: dict[str, Callable[[], Any]] = {
    r"x must hold floats of shape \(batch, tokens, d_model = 16\), at least one token; got torch.float64 \(5, 7, 8\)": (
        lambda: encoder("gradient")(points()[..., :8])
    ),
    "got torch.int64": lambda: encoder("gradient")(tokens(2, 3)),
    r"got torch.float64 \(5, 0, 16\)": lambda: encoder("gradient")(points()[:, :0]),
    "must be boolean, True at padding, got torch.float64": lambda: encoder("gradient")(points(), points()[..., 0]),
    r"shape \(batch, tokens\) = \(5, 7\), got \(5, 6\)": lambda: encoder("gradient")(points(), RAGGED[:, 1:]),
    "row 4 of the batch holds nothing but padding": lambda: encoder("gradient")(points(), RAGGED),
    "n_head must divide d_model": lambda: Encoder(16, 3, 2),
    "unknown stepper 'gradent': .* did you mean 'gradient'": lambda: Encoder(16, 2, 2, stepper="gradent"),
    "unknown attention 'softmx'": lambda: Encoder(16, 2, 2, attention="softmx"),
    "unknown preset 'tunde'": lambda: Encoder(16, 2, 2, preset="tunde"),
    "unknown option of layers 'mlp_ration'": lambda: Encoder(16, 2, 2, mlp_ration=3),
    "unknown norm 'layernrm'": lambda: Encoder(16, 2, 2, "nesterov", preset="paper", norm="layernrm"),
    "8 tokens exceed the block_size = 7 places": lambda: encoder("learned")(points(T=8)),
    "block_size = 3 has no effect with positions = 'none'": lambda: Encoder(16, 2, 2, block_size=3),
    "must be of even width, got 1 a head": lambda: Encoder(16, 16, 2, positions="rotary"),
    "integrator = 'ab2' belongs to stepper hamiltonian, not to gradient": (
        lambda: Encoder(16, 2, 2, stepper="gradient", integrator="ab2")
    ),
}


@pytest.mark.parametrize("message", BAD)
def test_what_does_not_fit_is_one_sentence(message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        BAD[message]()
    assert "\n" not in str(caught.value)


@every_row
def test_it_learns_in_half_precision(row: str) -> None:
    module = encoder(row).train().to(torch.bfloat16)
    module(points().to(torch.bfloat16), ~RAGGED).float().square().sum().backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in module.parameters())


def test_the_page_of_layers_runs() -> None:
    page = (Path(__file__).parents[2] / "docs" / "layers.md").read_text()
    names: dict[str, Any] = {}
    blocks = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert len(blocks) == 2
    for block in blocks:
        exec(compile(block, "layers.md", "exec"), names)
    assert not names["out"][names["padding"]].any()
    assert names["state"].t.item() == pytest.approx(1.1)
