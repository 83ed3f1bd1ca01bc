"""Energies are those of the flows' Hamiltonians, forces their gradients; ranks and clusters are what they should be."""

from typing import Any

import pytest
import torch
from torch import Tensor

import sympformer as sf
from sympformer import flows
from sympformer.watching import Record, clusters, effective_rank
from tests.models.cases import SIZE, make, tokens
from tests.watching.targets import ahead

TIED: dict[str, Any] = {"value": "tied", "mobility": "spd", "mu": 0.0, "start_momentum": "embedded"}


def positions(model: Any, seen: Record, k: int) -> tuple[Tensor, Tensor]:
    """What attention of layer k starts from: normalised positions, and momenta."""
    state = ahead(model, seen, k)
    return model.layers()[k].norm(state.x), state.y


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("form", ["own", "paper"])
def test_softmax_energies_are_those_of_the_flow(form: str, causal: bool) -> None:
    model, idx = make("softmax-exp-euler", form=form, causal=causal, **TIED), tokens(2, 6)
    seen = sf.watch(model, idx)
    physics = seen.physics
    assert physics.kinetic is not None
    assert physics.potential is not None
    assert physics.z is not None
    for k, layer in enumerate(model.layers()):
        A, B = (matrix.detach() for matrix in layer.attention.matrices())
        system = flows.SoftmaxAttention(A, B, causal=causal, form=form)  # type: ignore[arg-type]
        x, y = positions(model, seen, k)
        torch.testing.assert_close(physics.kinetic[k].sum(-1), system.kinetic(x, y))
        factor = 2 if form == "own" else 1  # a token's own potential is -z, its share of the sum's -z/2
        torch.testing.assert_close(physics.potential[k].sum(-1), factor * system.potential(x))
        torch.testing.assert_close(physics.potential[k], -physics.z[k, :, 0] / (1 if form == "own" else 2))
        if form == "own":
            total = physics.kinetic[k] + physics.potential[k]
            torch.testing.assert_close(total, system.own_hamiltonian(x, y))


def test_without_z_and_rho_the_energy_is_newtons() -> None:
    """x' = y and y' = force are the flow of |y|^2 / 2 - log z."""
    options = TIED | {"form": "newton", "mobility": "identity"}
    model, idx = make("softmax-exp-euler", **options), tokens(2, 6)
    seen = sf.watch(model, idx)
    physics = seen.physics
    assert physics.z is not None
    for k, layer in enumerate(model.layers()):
        x, y = (t.detach() for t in positions(model, seen, k))
        x.requires_grad_()
        A, _ = layer.attention.matrices()
        scores = (x @ A.detach() @ x.detach().mT).masked_fill(torch.ones(6, 6).triu(1).bool(), -torch.inf)
        log_z = scores.logsumexp(-1) - torch.arange(1, 7).log()
        torch.testing.assert_close(physics.z[k, :, 0].log(), log_z.detach())
        torch.testing.assert_close(physics.kinetic[k], y.square().sum(-1) / 2)  # type: ignore[index]
        torch.testing.assert_close(physics.potential[k], -log_z.detach())  # type: ignore[index]
        log_z.sum().backward()
        want = torch.cosine_similarity(y, x.grad, dim=-1)  # type: ignore[arg-type]
        torch.testing.assert_close(physics.cosine[k], want, rtol=1e-6, atol=1e-8)  # type: ignore[index]


def test_the_cosine_is_between_momentum_and_the_gradient_of_the_energy() -> None:
    model, idx = make("softmax-ab2", form="paper", causal=False, **TIED), tokens(2, 6)
    seen = sf.watch(model, idx)
    assert seen.physics.cosine is not None
    for k, layer in enumerate(model.layers()):
        A, B = (matrix.detach() for matrix in layer.attention.matrices())
        x, y = (t.detach().requires_grad_() for t in positions(model, seen, k))
        flows.SoftmaxAttention(A, B, form="paper").hamiltonian(x, y).sum().backward()
        assert x.grad is not None
        expected = torch.cosine_similarity(y, -x.grad, dim=-1)
        torch.testing.assert_close(seen.physics.cosine[k], expected.detach(), rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("causal", [True, False])
def test_linear_energies_are_those_of_the_flow(causal: bool) -> None:
    options: dict[str, Any] = {"value": "spd", "mu": 0.0, "start_momentum": "embedded"}
    model, idx = make("linear-exp-euler", causal=causal, **options), tokens(2, 6)
    seen = sf.watch(model, idx)
    assert seen.physics.kinetic is not None
    assert seen.physics.potential is not None
    for k, layer in enumerate(model.layers()):
        A, V = (matrix.detach() for matrix in layer.attention.matrices()[::2])
        system = flows.LinearAttention(A, V, causal=causal)
        x, y = positions(model, seen, k)
        torch.testing.assert_close(seen.physics.kinetic[k].sum(-1), system.kinetic(x, y))
        torch.testing.assert_close(seen.physics.potential[k].sum(-1), system.potential(x))
    assert seen.physics.z is None


SENTENCES: list[tuple[str, dict[str, Any], str]] = [
    ("softmax-baseline", {}, "No Hamiltonian: a gradient step"),
    ("softmax-yuriiformer", {}, "No Hamiltonian: a Nesterov step"),
    ("softmax-exp-euler", {}, "Free matrices, where a Hamiltonian needs A x and a symmetric B"),
    ("softmax-exp-euler", {"form": "newton"}, "Free matrices, where a Hamiltonian needs A x"),
    ("linear-exp-euler", {}, "Free matrices, where a Hamiltonian needs symmetric A and V"),
    ("softmax-exp-euler", {**TIED}, "The Hamiltonian of each token by itself"),
    ("softmax-exp-euler", {**TIED, "form": "paper"}, "The Hamiltonian of the softmax system, row by row"),
    ("softmax-exp-euler", {**TIED, "form": "paper", "causal": False}, "The Hamiltonian of the softmax system, with f"),
    ("linear-exp-euler", {"value": "spd"}, "The Hamiltonian of the linear system, row by row"),
]


@pytest.mark.parametrize(("name", "options", "start"), SENTENCES)
def test_whose_energies_they_are_is_said(name: str, options: dict[str, Any], start: str) -> None:
    physics = sf.watch(make(name, **options), tokens(1, 4)).physics
    assert physics.hamiltonian.startswith(start)
    assert (physics.kinetic is None) == (physics.potential is None) == start.startswith("No Hamiltonian")


def test_without_momentum_there_is_no_cosine_and_at_rest_it_is_not_a_number() -> None:
    assert sf.watch(make("softmax-baseline"), tokens(1, 4)).physics.cosine is None
    cosine = sf.watch(make("softmax-yuriiformer"), tokens(1, 4)).physics.cosine
    assert cosine is not None
    assert cosine[0].isnan().all()  # the momentum starts at zero
    assert (cosine[1:].abs() <= 1).all()


def test_scalars_and_sizes_are_the_models_own() -> None:
    model = make("softmax-exp-euler")
    seen = sf.watch(model, tokens(2, 5))
    assert list(seen.physics.scalars) == model.layer_scalars()
    assert {"h_x", "h_y", "alpha"} <= set(seen.physics.scalars[0])
    torch.testing.assert_close(seen.size_x, seen.x.norm(dim=-1) / SIZE["d_model"] ** 0.5)
    assert seen.y is not None
    assert seen.size_y is not None
    torch.testing.assert_close(seen.size_y, seen.y.norm(dim=-1) / SIZE["d_model"] ** 0.5)


def test_effective_rank_counts_equal_directions() -> None:
    axes = torch.eye(6, dtype=torch.float64)
    for rank in (1, 2, 5):
        both_ways = torch.cat([axes[:rank], -axes[:rank]]) + 3.0  # the mean is taken off
        torch.testing.assert_close(effective_rank(both_ways), torch.tensor(float(rank), dtype=torch.float64))
    assert effective_rank(torch.ones(2, 4, 3)).tolist() == [0.0, 0.0]


def test_clusters_by_a_plain_walk() -> None:
    x = torch.randn(3, 40, 3, generator=torch.Generator().manual_seed(0))
    for one, found in zip(x, clusters(x, 0.9), strict=True):
        left, count = set(range(40)), 0
        while left:
            count, front = count + 1, [left.pop()]
            while front:
                i = front.pop()
                near = {j for j in left if torch.cosine_similarity(one[i], one[j], dim=0) >= 0.9}
                left -= near
                front += near
        assert found == count
    assert clusters(torch.zeros(3, 2), 0.9).item() == 3  # no direction, no neighbours
