"""The systems against autograd, against double loops, against each other."""

import math
from collections.abc import Callable
from typing import get_args

import pytest
import torch
from torch import Tensor

from sympformer import flows
from sympformer.flows.attention import Form
from tests.flows.cases import SYSTEMS, D, positive, quartic, randn, relative_error, symmetric

ALL = pytest.mark.parametrize("name", SYSTEMS)
TINY = 1e-12
Three = tuple[Tensor, Tensor, Tensor]


@ALL
@pytest.mark.parametrize("batch", [(), (2,), (2, 3)])
def test_field_is_hamiltonian(name: str, batch: tuple[int, ...]) -> None:
    system = SYSTEMS[name]()
    x, y = randn(*batch, 6, D).requires_grad_(), randn(*batch, 6, D, seed=5).requires_grad_()
    H = system.hamiltonian(x, y)
    assert H.shape == batch
    assert torch.equal(H, system.kinetic(x, y) + system.potential(x))
    assert (system.kinetic(x, y) > system.kinetic(x, 0 * y)).all()
    dx, dy = torch.autograd.grad(H.sum(), (x, y))
    assert relative_error(system.velocity(x, y), dy) < TINY
    assert relative_error(system.force(x, y), -dx) < TINY


@ALL
def test_gradient_flow_is_the_velocity_along_the_energy_gradient(name: str) -> None:
    """The accelerated flow replaces the energy gradient by a momentum: first order = velocity at y = -dE/dx.

    It lowers the energy.
    """
    system, x = SYSTEMS[name](), randn(6, D).requires_grad_()
    (slope,) = torch.autograd.grad(system.potential(x), x)
    assert relative_error(system.gradient_flow(x), system.velocity(x, -slope)) < TINY
    assert system.potential(x + 1e-4 * system.gradient_flow(x)) < system.potential(x)


@ALL
def test_fields_pass_gradients_and_count_one_kernel_evaluation(name: str) -> None:
    system = SYSTEMS[name]()
    x, y = randn(3, D).requires_grad_(), randn(3, D, seed=5).requires_grad_()
    parts(system, x, y)
    system.at(x).both(y)
    system.hamiltonian(x, y)
    assert system.kernel_calls == 4
    assert torch.autograd.gradcheck(lambda x, y: (system.force(x, y), system.velocity(x, y)), (x, y))


@ALL
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_dtype_is_kept(name: str, dtype: torch.dtype) -> None:
    S, P = symmetric().to(dtype), positive().to(dtype)
    builders: dict[str, Callable[[], flows.System]] = {
        "softmax": lambda: flows.SoftmaxAttention(S, P),
        "linear": lambda: flows.LinearAttention(P, S),
        "quadratic": lambda: flows.Quadratic(P),
        "stein-bilinear": lambda: flows.Stein(quartic, flows.bilinear_kernel(P)),
    }
    path = flows.simulate(builders.get(name, SYSTEMS[name])(), randn(4, D).to(dtype) / 3, steps=3, h=0.01)
    assert path.x.dtype == path.y.dtype == path.potential.dtype == dtype


# --- the paper's per-particle equations, one number at a time, with 1/n_i for every mean


def softmax_double_loop(x: Tensor, y: Tensor, A: Tensor, B: Tensor, causal: bool, form: str) -> Three:
    """(velocity, force, first order)."""
    sees = [range(i + 1 if causal else len(x)) for i in range(len(x))]
    z = [sum(math.exp(x[i] @ A @ x[j]) for j in vis) / len(vis) for i, vis in enumerate(sees)]
    rho = [(y[i] @ B @ y[i] / z[i] ** 2).item() for i in range(len(x))]
    velocity, force, first = torch.empty_like(x), torch.zeros_like(x), torch.zeros_like(x)
    for i, vis in enumerate(sees):
        velocity[i] = B @ y[i] / z[i]
        for j in vis:
            M_ij = math.exp(x[i] @ A @ x[j]) / len(vis)
            others = rho[j] / 2 if form == "paper" else 0.0
            force[i] += M_ij * (rho[i] / 2 + others + 1) * (A @ x[j])
            first[i] += M_ij / z[i] * (B @ A @ x[j])
    return velocity, force, first


def linear_double_loop(x: Tensor, y: Tensor, A: Tensor, V: Tensor, causal: bool) -> Three:
    """(velocity, force, first order)."""
    velocity, force, first = torch.zeros_like(x), x @ V.mT, torch.zeros_like(x)
    for i in range(len(x)):
        n = i + 1 if causal else len(x)
        for j in range(n):
            velocity[i] += y[j] * (x[j] @ A @ x[i]) / n
            force[i] -= (y[i] @ y[j]) * (A @ x[j]) / n
            first[i] += V @ x[j] * (x[j] @ A @ x[i]) / n
    return velocity, force, first


def parts(system: flows.System, x: Tensor, y: Tensor) -> Three:
    return system.velocity(x, y), system.force(x, y), system.gradient_flow(x)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("form", ["paper", "own"])
def test_softmax_matrix_form_equals_double_loop(form: Form, causal: bool) -> None:
    A, B, x, y = symmetric(), positive(), randn(7, D), randn(7, D, seed=5)
    got = parts(flows.SoftmaxAttention(A, B, causal=causal, form=form), x, y)
    assert max(map(relative_error, got, softmax_double_loop(x, y, A, B, causal, form))) < TINY


@pytest.mark.parametrize("causal", [False, True])
def test_linear_matrix_form_equals_double_loop(causal: bool) -> None:
    A, V, x, y = positive(), symmetric(), randn(7, D), randn(7, D, seed=5)
    got = parts(flows.LinearAttention(A, V, causal=causal), x, y)
    assert max(map(relative_error, got, linear_double_loop(x, y, A, V, causal))) < TINY


@pytest.mark.parametrize("kernel", ["gaussian", "bilinear"])
def test_stein_matrix_form_equals_double_loop(kernel: str) -> None:
    A, x, y = positive(), randn(5, D), randn(5, D, seed=5)
    k = flows.gaussian_kernel(0.8) if kernel == "gaussian" else flows.bilinear_kernel(A)
    system, N = flows.Stein(quartic, k), len(x)
    velocity, force, svgd = torch.zeros_like(x), torch.zeros_like(x), torch.zeros_like(x)
    for i in range(N):
        u = x[i].clone().requires_grad_()
        (dU,) = torch.autograd.grad(quartic(u), u)
        force[i] = -dU
        for j in range(N):
            k_ij = k(u[None], x[j][None]).squeeze()
            (dk,) = torch.autograd.grad(k_ij, u)
            velocity[i] += k_ij.detach() * y[j] / N
            force[i] -= (y[i] @ y[j]) * dk / N
            v = x[j].clone().requires_grad_()
            k_ji = k(v[None], x[i][None]).squeeze()
            dk_j, dU_j = torch.autograd.grad(k_ji, v)[0], torch.autograd.grad(quartic(v), v)[0]
            svgd[i] += (dk_j - k_ji.detach() * dU_j) / N
    assert relative_error(system.velocity(x, y), velocity) < TINY
    assert relative_error(system.force(x, y), force) < TINY
    assert relative_error(system.svgd(x), svgd) < TINY


def test_bilinear_stein_flow_of_the_quadratic_potential_is_linear_attention() -> None:
    A, V, x, y = positive(), symmetric(), randn(2, 7, D), randn(2, 7, D, seed=5)
    linear = flows.LinearAttention(A, V)
    stein = flows.Stein(flows.quadratic_potential(V), flows.bilinear_kernel(A))
    assert max(map(relative_error, parts(stein, x, y), parts(linear, x, y))) < TINY
    assert relative_error(stein.hamiltonian(x, y), linear.hamiltonian(x, y)) < TINY


def test_svgd_reaches_its_target() -> None:
    """With the repulsion, SVGD samples exp(-U): mean and variance of a shifted Gaussian."""
    system = flows.Stein(lambda x: ((x - 1) ** 2).sum(-1) / 2, flows.gaussian_kernel(1.0))
    x = randn(64, 2) * 0.2
    with torch.no_grad():
        for _ in range(400):
            x = x + 0.3 * system.svgd(x)
    assert (x.mean(0) - 1).abs().max() < 0.02
    assert (x.var(0) - 1).abs().max() < 0.2


# --- causality


@pytest.mark.parametrize("causal", [False, True])
def test_own_force_is_the_gradient_of_each_tokens_own_hamiltonian(causal: bool) -> None:
    system = flows.SoftmaxAttention(symmetric(), positive(), causal=causal, form="own")
    x, y = randn(2, 7, D).requires_grad_(), randn(2, 7, D, seed=5).requires_grad_()
    dx, dy = torch.autograd.grad(system.own_hamiltonian(x, y).sum(), (x, y))
    assert relative_error(system.force(x, y), -dx) < TINY
    assert relative_error(system.velocity(x, y), dy) < TINY


@pytest.mark.parametrize("form", ["own", "paper", "linear"])
def test_causal_fields_see_no_future_and_no_length(form: Form) -> None:
    """Rows 0..t of the field depend on tokens 0..t only, and a prefix alone gives the same rows."""
    A, B, x, y, t = positive(), symmetric(), randn(8, D), randn(8, D, seed=5), 4
    softmax = form in get_args(Form)
    system = flows.SoftmaxAttention(B, A, True, form) if softmax else flows.LinearAttention(A, B, causal=True)
    x_edit, y_edit = x.clone(), y.clone()
    x_edit[t + 1 :], y_edit[t + 1 :] = 3.0, -2.0
    prefix, edited = parts(system, x[: t + 1], y[: t + 1]), parts(system, x_edit, y_edit)
    for whole, short, other in zip(parts(system, x, y), prefix, edited, strict=True):
        assert torch.equal(whole[: t + 1], other[: t + 1])
        assert relative_error(short, whole[: t + 1]) < TINY


def test_gradient_of_the_masked_hamiltonian_leaks() -> None:
    """What must never be done: -dH/dx of the masked whole-sequence Hamiltonian moves token 0 when token 7 is edited."""
    system = flows.SoftmaxAttention(symmetric(), positive(), causal=True)
    x, y = randn(8, D), randn(8, D, seed=5)
    x_edit = x.clone()
    x_edit[7] = 3.0
    here, there = (torch.func.grad(lambda u: system.hamiltonian(u, y))(u)[0] for u in (x, x_edit))
    assert (here - there).norm() / here.norm() > 1e-2


class TestMeanField:
    """Forces at a probe particle as the number of particles grows."""

    PROBE = torch.tensor([[0.3, -0.2, 0.4]], dtype=torch.float64)

    def probe_forces(self, N: int) -> tuple[Tensor, Tensor]:
        cloud, momenta = 0.5 * randn(N - 1, D, seed=11) + 0.5, 0.5 * randn(N - 1, D, seed=12) + 0.5
        x, y = torch.cat((self.PROBE, cloud)), torch.cat((self.PROBE, momenta))
        softmax = flows.SoftmaxAttention(symmetric(), positive()).force(x, y)[0]
        linear = flows.LinearAttention(positive(), symmetric()).force(x, y)[0]
        return softmax, linear

    def test_one_over_n_scaling_converges(self) -> None:
        limit = self.probe_forces(8000)
        for part in (0, 1):
            errors = [relative_error(self.probe_forces(N)[part], limit[part]) for N in (20, 2000)]
            assert errors[1] < 0.1
            assert errors[1] < errors[0] / 2

    def test_the_papers_n_scaling_does_not(self) -> None:
        """N/2 sum_j M_ij 2 A x_j, as the text has it, grows like N^2 at zero momentum."""
        A, sizes, norms = symmetric(), [100, 1000, 4000], []
        for N in sizes:
            x = torch.cat((self.PROBE, 0.5 * randn(N - 1, D, seed=11) + 0.5))
            M = (x @ A @ x.mT).exp()
            norms.append((N / 2 * 2 * M @ x @ A)[0].norm().item())
        slope = math.log(norms[-1] / norms[0]) / math.log(sizes[-1] / sizes[0])
        assert abs(slope - 2) < 0.1


BAD: dict[str, tuple[Callable[[], object], str]] = {
    "A not symmetric": (lambda: flows.SoftmaxAttention(randn(3, 3), positive()), "A must be symmetric"),
    "A not square": (lambda: flows.SoftmaxAttention(randn(3, 2), positive()), "A must be a square matrix"),
    "A of integers": (lambda: flows.Quadratic(torch.eye(3, dtype=torch.int64)), "K must have a floating-point dtype"),
    "B not positive": (lambda: flows.SoftmaxAttention(symmetric(), -positive()), "B must be positive definite"),
    "sizes differ": (lambda: flows.SoftmaxAttention(symmetric(), positive(4)), "A and B must agree in shape"),
    "unknown form": (lambda: flows.SoftmaxAttention(symmetric(), positive(), form="owm"), "did you mean 'own'"),  # type: ignore[arg-type]
    "linear A": (lambda: flows.LinearAttention(symmetric() - 5 * torch.eye(3), symmetric()), "A must be positive"),
    "linear V": (lambda: flows.LinearAttention(positive(), randn(3, 3)), "V must be symmetric"),
    "not finite": (lambda: flows.Quadratic(torch.full((2, 2), torch.nan)), "not finite"),
    "kernel length": (lambda: flows.gaussian_kernel(0.0), "must be positive"),
    "x of wrong width": (lambda: flows.Quadratic(positive()).at(randn(4, 2)), r"shape \(\.\.\., N, 3\)"),
    "no particles": (lambda: flows.Quadratic(positive()).at(randn(0, 3)), "N >= 1"),
    "x and y differ": (lambda: flows.Quadratic(positive()).force(randn(4, 3), randn(5, 3)), "same shape"),
    "potential shape": (lambda: flows.Wasserstein(lambda x: x.sum()).at(randn(4, 3)), "one value per particle"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_says_what_is_wrong(case: str) -> None:
    call, message = BAD[case]
    with pytest.raises(ValueError, match=message):
        call()
