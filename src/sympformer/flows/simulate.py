"""Run a system with an integrator and keep what happened."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from sympformer.errors import DivergenceError, InputError
from sympformer.flows import checks
from sympformer.flows.damping import LogLinear, Nesterov
from sympformer.flows.integrators import Integrator, Step, get_integrator
from sympformer.flows.system import System
from sympformer.progress import steps_with_progress

BOUND = 1e9
Callback = Callable[[int, Tensor, Tensor], bool | None]


@dataclass(frozen=True)
class Path:
    """A trajectory of S saved states.

    x, y: (S, ..., N, d). t, oracle_calls: (S,). potential, kinetic: (S, ...). oracle_calls counts from the start.
    """

    x: Tensor
    y: Tensor
    t: Tensor
    potential: Tensor
    kinetic: Tensor
    oracle_calls: Tensor

    @property
    def hamiltonian(self) -> Tensor:
        """kinetic + potential."""
        return self.kinetic + self.potential

    def __len__(self) -> int:
        return len(self.t)


def simulate(
    system: System,
    x0: Tensor,
    y0: Tensor | None = None,
    *,
    steps: int,
    h: float | Tensor | Sequence[float],
    integrator: str | Integrator = "etd_ab2",
    damping: LogLinear | None = None,
    factor: float | Tensor | None = None,
    save_every: int = 1,
    callback: Callback | None = None,
    progress: bool | None = None,
    bound: float = BOUND,
) -> Path:
    """Follow x' = velocity, y' = force - alpha(t) y for `steps` steps.

    x0: positions (..., N, d). y0: momenta, default zero.
    h: one step size, or one per step (a tensor keeps its gradients).
    integrator: a name in INTEGRATORS or an instance. damping: default Nesterov's 3/t from t0 = 1.
    factor: the momentum factor of plain_euler; None is (k-1)/(k+2).
    save_every: keep every such state, and always the first and the last.
    callback(k, x, y): called after step k; returning True stops there.
    progress: True, False, or None for a bar when the run takes more than two seconds on a terminal.
    bound: how many times larger than at the start (or than 1) positions and momenta may become; inf for any growth.

    Raises DivergenceError at the first state that is not finite, or beyond the bound.
    """
    checks.particles(x0, system.dim, "x0")
    y0 = torch.zeros_like(x0) if y0 is None else y0
    checks.same_shape(x0, y0)
    sizes = _step_sizes(h, steps)
    if not bound > 0:
        raise InputError(f"bound must be positive, got {bound}")
    if save_every < 1:
        raise InputError(f"save_every must be at least 1, got {save_every}")
    method = get_integrator(integrator) if isinstance(integrator, str) else integrator
    name = integrator if isinstance(integrator, str) else type(integrator).__name__
    damping = Nesterov() if damping is None else damping

    x, y, t, history = x0, y0, torch.as_tensor(damping.t0, dtype=torch.float64), method.init()
    calls_before = system.kernel_calls
    largest = bound * max(1.0, x0.detach().abs().max().item(), y0.detach().abs().max().item())
    saved = [(x, y, t, 0)]
    for i in steps_with_progress(steps, f"flow: {name}", progress):
        size = sizes[i]
        step = Step(i, t.to(x), size.to(x), size.to(x), damping, factor)
        x, y, history = method.step(system.at, x, y, step, history)
        t = t + size
        _check_state(
            x, y, largest, f"at step {i + 1} (t = {t.item():.4g}): use a step smaller than h = {size.item():.4g}", name
        )
        stop = callback is not None and bool(callback(i + 1, x, y))
        if stop or (i + 1) % save_every == 0 or i + 1 == steps:
            saved.append((x, y, t, system.kernel_calls - calls_before))
        if stop:
            break
    return _collect(system, saved)


def _step_sizes(h: float | Tensor | Sequence[float], steps: int) -> Tensor:
    if steps < 1:
        raise InputError(f"steps must be at least 1, got {steps}")
    sizes = torch.as_tensor(h, dtype=torch.float64)
    if sizes.ndim > 1 or (sizes.ndim == 1 and len(sizes) != steps):
        raise InputError(f"h must be one number or one per step ({steps}), got shape {tuple(sizes.shape)}")
    checks.positive("h", sizes)
    return sizes.expand(steps)


def _check_state(x: Tensor, y: Tensor, largest: float, place: str, name: str) -> None:
    """Finite, and not larger than a flow that follows its equation would become."""
    if not bool(torch.isfinite(x).all() and torch.isfinite(y).all()):
        raise DivergenceError(f"{name} left the finite numbers {place} or more damping")
    found = {"positions": x.detach().abs().max().item(), "momenta": y.detach().abs().max().item()}
    what = max(found, key=found.__getitem__)
    if found[what] > largest:
        raise DivergenceError(
            f"{name} is unstable: its {what} grew to {found[what]:.3g}, beyond {largest:.3g}, {place} or more damping,"
            " or allow the growth with bound="
        )


def _collect(system: System, saved: list[tuple[Tensor, Tensor, Tensor, int]]) -> Path:
    xs, ys, ts, calls = zip(*saved, strict=True)
    return Path(
        x=torch.stack(xs),
        y=torch.stack(ys),
        t=torch.stack(ts),
        potential=torch.stack([system.potential(x) for x in xs]),
        kinetic=torch.stack([system.kinetic(x, y) for x, y in zip(xs, ys, strict=True)]),
        oracle_calls=torch.tensor(calls),
    )
