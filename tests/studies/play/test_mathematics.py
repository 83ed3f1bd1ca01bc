"""The page's mathematics is that of `sympformer.flows`: every system with every integrator, step by step."""

import itertools
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import Tensor

from sympformer import flows
from sympformer.flows import INTEGRATORS
from sympformer.studies.flow.race import curved_valley
from sympformer.studies.play.page import play
from tests.browser import visits
from tests.flows.cases import DAMPINGS, randn

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

STEPS, TOLERANCE = 100, 1e-9
A, B = (0.45, 0.2, 0.5), (1.2, 0.7, -0.3)  # eigenvalues and angle


def symmetric(first: float, second: float, angle: float) -> Tensor:
    Q = rotation(angle)
    return Q @ torch.diag(torch.tensor([first, second], dtype=torch.float64)) @ Q.mT


def rotation(angle: float) -> Tensor:
    c, s = math.cos(angle), math.sin(angle)
    return torch.tensor([[c, -s], [s, c]], dtype=torch.float64)


def valley(x: Tensor) -> Tensor:
    return curved_valley(rotation(A[2]), torch.tensor(A[:2], dtype=torch.float64), x)


# name -> the system in Python, its step. Softmax attention has no lower end: it must not run away within the steps.
CASES: dict[str, tuple[Callable[[], flows.System], float]] = {
    "softmax_own": (lambda: flows.SoftmaxAttention(symmetric(*A), symmetric(*B), form="own"), 0.025),
    "softmax_paper": (lambda: flows.SoftmaxAttention(symmetric(*A), symmetric(*B), form="paper"), 0.025),
    "linear": (lambda: flows.LinearAttention(symmetric(*A), -symmetric(*B)), 0.05),
    "quadratic": (lambda: flows.Quadratic(symmetric(*A)), 0.05),
    "stein": (lambda: flows.Stein(valley, flows.gaussian_kernel(0.8)), 0.05),
}
PAIRS = list(itertools.product(CASES, INTEGRATORS))

# What the test hands to the page; matrices are made there, from eigenvalues and angle.
RUN = """({name, integrator, damping, h, x0, y0, A, B, steps}) => {
  const system = {name, A: Flows.symmetric(...A), B: Flows.symmetric(...B), valley: A, length: 0.8};
  const run = Flows.run({system, integrator, damping, h, x0, y0}), path = [];
  for (let k = 0; ; k++) {
    const energies = [run.flow.potential(run.x), run.flow.kinetic(run.x, run.y)];
    path.push({x: [...run.x], y: [...run.y], t: run.t, energies, evaluations: run.evaluations});
    if (k === steps) return path;
    run.advance();
  }
}"""


@pytest.fixture(scope="module")
def page(browser: "Browser", tmp_path_factory: pytest.TempPathFactory) -> "Any":
    file = tmp_path_factory.mktemp("play") / "page.html"
    play(file)
    with visits(browser) as visit:
        yield visit(file).page


def damping_of(system: str, integrator: str) -> flows.LogLinear:
    """Every integrator meets every damping, on one system or another."""
    kinds = list(DAMPINGS.values())
    return kinds[(list(CASES).index(system) + list(INTEGRATORS).index(integrator)) % len(kinds)]()


@pytest.mark.parametrize(("system", "integrator"), PAIRS, ids=map("-".join, PAIRS))
def test_the_path_is_that_of_the_package(page: "Page", system: str, integrator: str) -> None:
    make, h = CASES[system]
    x0, y0, damping = randn(7, 2, seed=3), 0.3 * randn(7, 2, seed=4), damping_of(system, integrator)
    want = flows.simulate(make(), x0, y0, steps=STEPS, h=h, integrator=integrator, damping=damping, progress=False)
    numbers = {"r": damping.r, "m": damping.m, "t0": damping.t0}
    got = page.evaluate(RUN, {
        "name": system, "integrator": integrator, "damping": numbers, "h": h, "x0": x0.flatten().tolist(),
        "y0": y0.flatten().tolist(), "A": A, "B": B, "steps": STEPS,
    })  # fmt: skip
    assert [state["evaluations"] for state in got] == want.oracle_calls.tolist()
    assert relative([state["t"] for state in got], want.t) < TOLERANCE
    assert relative([state["x"] for state in got], want.x.flatten(1)) < TOLERANCE
    assert relative([state["y"] for state in got], want.y.flatten(1)) < TOLERANCE
    energies = torch.stack((want.potential, want.kinetic), -1)
    assert relative([state["energies"] for state in got], energies) < TOLERANCE
    assert (want.x[-1] - want.x[0]).abs().max() > 0.05  # it went somewhere


def relative(got: list[Any], want: Tensor) -> float:
    """The largest difference at any step, relative to the largest number of that step."""
    size = want.abs().flatten(1).amax(1) if want.ndim > 1 else want.abs()
    difference = (torch.tensor(got, dtype=torch.float64) - want).abs()
    return float(((difference.flatten(1).amax(1) if want.ndim > 1 else difference) / size).max())


def test_the_page_offers_what_the_package_has(page: "Page") -> None:
    """The script's own tables, the choices on the page, the package."""
    for name, table, known in (("integrator", "integrators", INTEGRATORS), ("system", "systems", CASES)):
        offered = page.locator(f"#{name} option").evaluate_all("all => all.map(option => option.value)")
        assert sorted(offered) == sorted(page.evaluate(f"Object.keys(Flows.{table})")) == sorted(known)


@pytest.mark.parametrize(("r", "m"), [(3, 0), (0, 0.3), (0, 0), (10, 3), (0.1, 3), (10, 0.01)])
def test_the_damping_at_the_ends_of_its_sliders(page: "Page", r: float, m: float) -> None:
    damping = flows.LogLinear(r=r, m=m)
    times = [(t, h) for t in (1.0, 1.5, 400.0) for h in (0.005, 0.25, 1.0)]
    code = """({r, m, times}) => {
      const damping = Flows.logLinear({r, m, t0: 1});
      return times.map(([t, h]) => [damping.alpha(t), damping.sigma(t, h), damping.weight(t, h)]);
    }"""
    got = torch.tensor(page.evaluate(code, {"r": r, "m": m, "times": times}), dtype=torch.float64)
    want = [[float(f) for f in (damping.alpha(t), damping.sigma(t, h), damping.weight(t, h))] for t, h in times]
    assert torch.allclose(got, torch.tensor(want, dtype=torch.float64), rtol=1e-13, atol=0)
