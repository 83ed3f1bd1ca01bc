"""`sympformer flow`: the race, its pictures, its table, and what it says to bad input."""

import json
from pathlib import Path
from runpy import run_path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from PIL import Image

from sympformer import flows
from sympformer.errors import InputError
from sympformer.flows.elliptic import FAMILIES
from sympformer.models import ModelConfig, build_model
from sympformer.models.describe import kernel_passes
from sympformer.studies.flow.command import flow, start_of
from sympformer.studies.flow.race import Course, arrival_of, make_system, passes_a_step, race

SMALL: dict[str, Any] = {"dim": 2, "particles": 6, "condition": 5.0, "max_passes": 40}
FROZEN = [name for name, kind in flows.INTEGRATORS.items() if issubclass(kind, flows.FrozenIntegrator)]


def course(system: Any, dim: int = 2, particles: int = 6, condition: float = 5.0, max_passes: int = 40) -> Course:
    generator = torch.Generator().manual_seed(0)
    moving = make_system(system, dim, condition, generator) if isinstance(system, str) else system
    return Course(moving, start_of(particles, dim, generator), flows.Nesterov(), max_passes)


@pytest.mark.parametrize(
    ("potential", "per_step", "passes"),
    [
        ([1.0, 0.5, 0.1, 0.05], 1, 2),
        ([1.0, 0.05, 0.5, 0.05, 0.1], 1, 3),  # comes back once: the second arrival counts
        ([1.0, 0.05, 0.05, 0.2], 1, None),  # does not stay
        ([1.0, 0.05, float("nan"), 0.05], 1, 3),
        ([0.1, 0.1], 1, 0),
        ([1.0, 0.5, 0.05], 4, 8),
    ],
)
def test_only_the_arrival_for_good_counts(potential: list[float], per_step: int, passes: int | None) -> None:
    energy = torch.tensor(potential, dtype=torch.float64)
    assert arrival_of(energy, per_step * torch.arange(len(potential)), 0.1) == passes


def test_best_step_of_the_gradient_flow_on_one_oscillator_is_newtons() -> None:
    """On K = 4 I the Euler step h = 1/4 lands on the minimum with one pass."""
    alone = course(flows.Quadratic(4 * torch.eye(2, dtype=torch.float64)), max_passes=50)
    best = alone.best_step("gradient_flow", 0.01 * float(alone.system.potential(alone.x0)))
    assert best.arrival == 1
    assert 4 * best.step == pytest.approx(1, abs=0.1)


def test_best_step_beats_every_step_of_its_grid() -> None:
    own, grid = course("quadratic", 3, 5, 20.0, 60), (2.0, 1.0, 0.5, 0.25)
    target = 0.01 * float(own.system.potential(own.x0))
    best = own.best_step("symplectic_euler", target, grid)
    assert best.arrival is not None
    arrivals = [own.run("symplectic_euler", h, target).arrival for h in grid]
    assert best.arrival <= min(passes for passes in arrivals if passes is not None)


def test_a_step_that_is_too_large_is_called_diverged() -> None:
    for step in (1e3, 1e12):  # after some steps, and in the first
        result = course("linear", max_passes=100).run("gradient_flow", step, 0.0)
        assert result.diverged
        assert result.arrival is None
        assert torch.isfinite(result.path.x).all()


@pytest.mark.parametrize("name", FROZEN)
@pytest.mark.parametrize(("system", "form"), [("linear", None), ("softmax", "own"), ("softmax", "paper")])
def test_a_step_costs_the_passes_that_a_layer_is_counted_to_make(system: Any, form: Any, name: str) -> None:
    """Where a model takes the scheme; it refuses the one that would pay twice for the same kernel."""
    passes = passes_a_step(make_system(system, 2, 5.0, torch.Generator(), form=form), name)
    sizes: dict[str, Any] = {"n_layer": 3, "n_head": 2, "d_model": 8, "block_size": 4, "vocab_size": 16}
    options: dict[str, Any] = sizes | ({"form": form} if form else {}) | {"start_momentum": "embedded"}
    if system == "linear" and name == "symplectic_euler":
        assert passes == 2
        with pytest.raises(InputError, match="needs a second scan"):
            ModelConfig(attention=system, integrator=name, **options)
    else:
        assert kernel_passes(build_model(ModelConfig(attention=system, integrator=name, **options))) == 3 * passes


def test_reference_methods_pay_for_no_momentum() -> None:
    for form in ("own", "paper"):
        system = make_system("softmax", 2, 5.0, torch.Generator(), form=form)
        costs = [passes_a_step(system, name) for name in ("gradient_flow", "nesterov", "rk4")]
        assert costs == [1, 1, 8 if form == "paper" else 4]
    result = race(course("quadratic"), ["rk4"], step=0.5)
    assert result.runs["rk4"].passes.tolist() == list(range(0, 41, 4))
    assert result.target == pytest.approx(0.01 * result.start)


def test_the_target_of_an_unbounded_energy_is_where_the_gradient_flow_ends() -> None:
    result = race(course("softmax", max_passes=100), ["ab2"], step=0.1)
    gradient: Any = result.runs["gradient_flow"]
    assert result.bound is None
    assert float(gradient.path.potential[gradient.passes == gradient.arrival]) == result.target < 10 * result.start


@pytest.mark.slow
def test_acceleration_needs_a_fifth_of_the_oracle_calls() -> None:
    """A = I, V = -Q diag(logspace(-2, 0, 8)) Q', 64 standard normal particles, every method at its own best step."""
    own = course("linear", 8, 64, 100.0, 500)
    assert isinstance(own.system, flows.LinearAttention)
    spectrum = torch.linalg.eigvalsh(-own.system.V)
    torch.testing.assert_close(spectrum, torch.logspace(-2, 0, 8, dtype=torch.float64), rtol=1e-12, atol=1e-14)
    result = race(own, flows.ACCELERATED)
    best, gradient = result.best(flows.ACCELERATED), result.runs["gradient_flow"]
    assert best is not None
    assert best.passes_a_step == 1
    for held in (best, gradient):  # well beyond the crossing
        assert held.arrival is not None
        assert held.passes[-1] == 500 >= 3 * held.arrival
        assert (held.path.potential[held.passes >= held.arrival] <= 0.01 * result.start).all()
    assert (best.arrival, gradient.arrival) == (23, 133)  # a fifth and less; the README's figures
    assert result.runs["symplectic_euler"].passes.tolist() == list(range(0, 501, 2)), "a second scan"


@pytest.mark.parametrize("system", ["linear", "softmax", "quadratic", "wasserstein", "stein"])
def test_every_system_writes_its_files(system: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "deep" / "run"
    flow(system=system, integrators="ab2,symplectic_euler", step=0.2, out=out, format="svg", **SMALL)
    flow(system=system, integrators="ab2,symplectic_euler", step=0.2, out=out, **SMALL)
    names = {"energy.png", "flow.json", "table.md", "tokens.png"}
    assert {file.name for file in out.iterdir()} == names, "pictures of the earlier run stayed behind"
    for name in ("tokens.png", "energy.png"):
        with Image.open(out / name) as picture:
            assert picture.size[0] == 1200
    document = json.loads((out / "flow.json").read_text())
    assert {method["name"] for method in document["methods"]} == {"gradient_flow", "ab2", "symplectic_euler"}
    assert document["options"]["system"] == system
    unbounded = "no lower bound" in (out / "table.md").read_text()
    assert unbounded == (system == "softmax") == (document["target"]["lower_bound"] is None)
    assert "symplectic_euler" in capsys.readouterr().out


@pytest.mark.parametrize("options", [{"causal": True}, {"system": "softmax", "causal": True, "form": "own"}])
def test_causal_systems_and_principal_components(options: dict[str, Any], tmp_path: Path) -> None:
    flow(**options, integrators="exp_euler", step=0.2, out=tmp_path, **SMALL | {"dim": 5, "particles": 1})
    assert (tmp_path / "tokens.png").stat().st_size > 1000


def test_words_for_runs_that_do_not_arrive(tmp_path: Path) -> None:
    for step, words in ((1e-4, "not reached within 40 passes"), (1e4, "diverged")):
        flow(integrators="rk4,ab2", step=step, out=tmp_path, **SMALL)
        assert words in (tmp_path / "table.md").read_text()


def test_a_seed_repeats_exactly_and_methods_search_their_own_steps(tmp_path: Path) -> None:
    def result(seed: int) -> tuple[dict[str, Any], bytes]:
        flow(integrators="etd_ab2", seed=seed, out=tmp_path, **SMALL)
        document: dict[str, Any] = json.loads((tmp_path / "flow.json").read_text())
        return {method["name"]: method for method in document["methods"]}, (tmp_path / "tokens.png").read_bytes()

    first = result(3)
    assert first[0]["gradient_flow"]["step"] != first[0]["etd_ab2"]["step"]
    assert result(3) == first
    assert result(4) != first


def test_an_out_that_is_a_file_is_found_before_the_work(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("keep me")
    for out in (file, file / "below"):
        with pytest.raises(InputError, match="cannot"):
            flow(out=out)
    assert file.read_text() == "keep me"


# --- docs/scripts: tokens beside the equations of their law's moments, and the animation
SCRIPTS = Path(__file__).parents[3] / "docs" / "scripts"
law: Any = SimpleNamespace(**run_path(str(SCRIPTS / "law.py")))
animation: Any = SimpleNamespace(**run_path(str(SCRIPTS / "animation.py")))


@pytest.mark.parametrize("start", law.STARTS)
def test_tokens_obey_the_moment_equations(start: str) -> None:
    """Exactly from their own moments, up to sampling error from the law's; on until the energy has fallen."""
    assert start.replace("-", "_") in FAMILIES
    assert len(law.STARTS) == len(FAMILIES)
    found = law.follow(start, 200, seed=3)
    assert found.gap(found.own) < 1e-5
    assert 1e-3 < found.gap(found.expected) < 0.6
    assert found.gap(found.own) < 1e-3 * found.gap(found.expected)
    torch.testing.assert_close(found.path.t, found.own.t)
    assert found.path.potential[-1] < 0.1 * found.path.potential[0]


def test_more_tokens_come_nearer_to_the_law() -> None:
    few, many = (law.follow("gaussian", particles, seed=3) for particles in (50, 5_000))
    assert many.gap(many.expected) < min(0.1, 0.4 * few.gap(few.expected))


def test_strong_damping_takes_smaller_steps() -> None:
    found = law.follow("student-t", 200, damping=flows.Constant(100.0))
    assert found.path.t[1] - found.path.t[0] <= 0.011
    assert found.gap(found.own) < 1e-5


def test_the_ellipses_hold_the_same_tokens_all_along() -> None:
    """In the plane the law's shape is the tokens' shape, moved: the shares inside hardly change."""
    found = law.follow("student-t", 4000)
    covariance = found.kappa * found.expected.Sigma
    for deviations in (1, 2):
        shares = [
            law.share_inside(found.path.x[k], found.expected.m[k], covariance[k], deviations)
            for k in range(0, len(covariance), 10)
        ]
        assert max(shares) - min(shares) < 0.02
        assert min(shares) > 0.4


def test_the_picture_has_tokens_ellipses_and_curves() -> None:
    above, below = law.law_plot(law.follow("logistic", 60, dim=3), "heading").subfigs
    assert [len(axis.collections) for axis in above.axes] == [1] * 5
    for axis in above.axes:
        assert [len(line.get_xdata()) for line in axis.lines].count(121) == 4  # two of the law, two of the tokens
    assert [axis.get_ylabel() for axis in below.axes] == ["mean", "standard deviation"]


def test_the_animation(tmp_path: Path) -> None:
    generator = torch.Generator().manual_seed(0)
    x0 = torch.randn(6, 2, generator=generator, dtype=torch.float64)
    course = Course(make_system("linear", 2, 5.0, generator), x0, flows.Nesterov(), 40)
    animation.animate(race(course, ["ab2"], 0.3), tmp_path / "flow.gif", frames=5)
    with Image.open(tmp_path / "flow.gif") as gif:
        assert gif.n_frames == 5  # type: ignore[attr-defined]
