"""The playground in a real browser, driven: sliders, choices, dragging, keys, the address; two widths, two themes."""

import itertools
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import Tensor

from sympformer import flows
from sympformer.cli import main
from sympformer.flows import INTEGRATORS
from sympformer.studies.flow.race import curved_valley
from sympformer.studies.play.page import play
from tests.browser import Visitor, visits
from tests.flows.cases import DAMPINGS, randn

if TYPE_CHECKING:
    from playwright.sync_api import Page
if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Opened by somebody who asks for little motion, so nothing runs before it is told to."""
    path = tmp_path_factory.mktemp("play") / "page.html"
    play(path)
    return path


def positions(page: "Page", run: int = 0) -> list[float]:
    return list(page.evaluate(f"[...Playground.runs[{run}].x]"))


def slide(page: "Page", name: str, value: float) -> None:
    page.locator(f"#{name}").evaluate(
        "(field, value) => { field.value = value; for (const kind of ['input', 'change'])"
        " field.dispatchEvent(new Event(kind, {bubbles: true})); }",
        value,
    )


def place(page: "Page", particle: int) -> tuple[float, float]:
    """Where a particle of the left picture is on the screen."""
    return tuple(page.evaluate(f"Playground.place({particle})"))


def test_the_command_writes_a_page_or_a_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["play", "--out", str(tmp_path / "new" / "p.html")]) == 0
    text = (tmp_path / "new" / "p.html").read_text(encoding="utf-8")
    assert not re.findall(r"https?://|src=|@import|url\(", text)
    assert main(["play", "--out", str(tmp_path / "new" / "p.html" / "below.html")]) == 2
    assert "cannot write the page" in capsys.readouterr().err


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [1400, 390])
def test_it_renders(visit: Visitor, file: Path, width: int, dark: bool) -> None:
    seen = visit(file, width=width, dark=dark)
    assert seen.fits()
    for name in ("view-0", "view-1", "energy", "phase"):
        coloured = seen.page.locator(f"#{name}").evaluate(
            "canvas => canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data"
            ".some((value, k, all) => k % 4 === 2 && value > all[k - 1] + 60)"
        )
        assert coloured, f"{name} has not the colours of the style sheet"
    assert (seen.troubles, seen.requests) == ([], [])


def test_it_runs_by_itself_and_stops(visit: Visitor, file: Path) -> None:
    seen = visit(file)
    seen.page.click("#run")
    seen.page.wait_for_function("() => Playground.runs[0].k >= 5")
    assert seen.page.locator("#run").get_attribute("aria-pressed") == "true"
    seen.page.locator("#view-0").press(" ")
    k = seen.page.evaluate("Playground.runs[0].k")
    seen.page.wait_for_timeout(150)
    assert seen.page.evaluate("Playground.runs[0].k") == k
    seen.page.click("#again")
    assert seen.page.evaluate("Playground.runs.map(run => run.k)") == [0, 0]
    assert seen.troubles == []


def test_sliders_change_what_they_say(visit: Visitor, file: Path) -> None:
    page = visit(file).page
    page.select_option("#integrator", "rk4")
    page.click("#step")
    assert [page.locator(f"#kernel-{run}").inner_text() for run in (0, 1)] == ["4", "4"]  # both spend the same
    page.select_option("#integrator", "etd_ab2")
    slide(page, "n", 128)
    assert len(positions(page)) == 256
    page.click("#step")
    before = positions(page)
    for name, value in {"a1": 0.5, "ba": 45, "r": 1.5, "m": 0.7, "h": 0.1}.items():
        slide(page, name, value)
        assert float(page.locator(f"#{name} + output").inner_text()) == value
    assert positions(page) == before  # the same particles go on, under other laws
    settings = page.evaluate("Playground.described(0, Playground.settings(), [0, 0])")
    assert settings["damping"] == {"r": 1.5, "m": 0.7, "t0": 1}
    assert settings["h"] == 0.1
    page.select_option("#integrator", "nesterov")  # it asks for no damping
    assert not page.locator("#r").is_visible()
    slide(page, "a1", -1)
    assert page.locator("#a1 + output").inner_text() == "0.05"  # must be positive here
    page.select_option("#system", "softmax_own")
    assert page.locator("#about p:visible").count() == 1
    slide(page, "a1", -1)
    assert page.locator("#a1 + output").inner_text() == "\N{MINUS SIGN}1"


def test_a_particle_goes_where_it_is_dragged(visit: Visitor, file: Path) -> None:
    page = visit(file).page
    page.click("#step")
    left, top = place(page, 5)
    page.mouse.move(left, top)
    page.mouse.down()
    page.mouse.move(left + 60, top - 40, steps=3)
    page.mouse.up()
    assert page.locator("#chosen").input_value() == "6"
    assert place(page, 5) == pytest.approx((left + 60, top - 40), abs=0.5)
    for run in (0, 1):  # in both flows, at rest
        assert page.evaluate(f"[...Playground.runs[{run}].y].slice(10, 12)") == [0, 0]
    assert positions(page, 0)[10:12] == positions(page, 1)[10:12]
    page.locator("#view-0").press("ArrowRight")
    moved = place(page, 5)
    assert moved[0] > left + 62
    assert moved[1] == pytest.approx(top - 40, abs=0.5)


def test_a_finger_drags_on_a_phone(visit: Visitor, file: Path) -> None:
    seen = visit(file, width=390, touch=True)
    page = seen.page
    page.locator("#view-0").scroll_into_view_if_needed()
    x, y = place(page, 0)
    session = page.context.new_cdp_session(page)
    for kind, dx in (("touchStart", 0), ("touchMove", 20), ("touchMove", 45), ("touchEnd", None)):
        points = [] if dx is None else [{"x": x + dx, "y": y + dx}]
        session.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})
    assert place(page, 0) == pytest.approx((x + 45, y + 45), abs=1)
    assert seen.troubles == []


def test_an_address_holds_the_settings(visit: Visitor, file: Path) -> None:
    page = visit(file).page
    page.select_option("#system", "stein")
    slide(page, "length", 0.7)
    slide(page, "n", 12)
    page.click("#draw")
    other = visit(file, fragment=page.evaluate("location.hash")).page
    assert other.evaluate("Playground.settings()") == page.evaluate("Playground.settings()")
    assert [positions(other, run) for run in (0, 1)] == [positions(page, run) for run in (0, 1)]


@pytest.mark.parametrize(
    ("fragment", "said"),
    [
        ("#system=<script>alert(1)</script>&a1=x&n=1e9&state=AAAA", "left out: system, a1."),
        ("#system=linear&n=12&h=NaN&state=%F0%9F%98%80&integrator=__proto__", "left out: integrator, h."),
        ("#%00%E2%80%AE=&&&==", ""),
    ],
)
def test_a_hostile_address_is_data(visit: Visitor, file: Path, fragment: str, said: str) -> None:
    seen = visit(file, fragment=fragment)
    assert said in (seen.page.locator("#said").text_content() or "")
    seen.page.click("#step")
    assert all(abs(value) < 100 for value in positions(seen.page))
    assert len(positions(seen.page)) <= 512
    assert seen.page.locator("#system").input_value() == "linear"
    assert (seen.troubles, seen.requests) == ([], [])


def test_a_step_too_large_is_said(visit: Visitor, file: Path) -> None:
    seen = visit(file, fragment="#system=quadratic&a1=2&h=1&h1=0.1&integrator=presymp_euler&r=0")
    seen.page.locator("#step").evaluate("button => { for (let k = 0; k < 60; k++) button.click(); }")
    said: Any = seen.page.locator("#said").text_content()
    assert "with momentum left all bounds" in said
    assert seen.page.evaluate("Playground.runs[1].k") == 60  # the other goes on
    assert seen.troubles == []


# --- the page's mathematics is that of `sympformer.flows`: every system with every integrator, step by step
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
def page(browser: "Browser", file: Path) -> "Any":
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
