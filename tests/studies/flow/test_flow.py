"""`sympformer flow`: the race, its pictures, its table, and what it says to bad input."""

import json
import subprocess
import sys
from pathlib import Path as FilePath
from typing import Any

import pytest
import torch

from sympformer import flows
from sympformer.atomic import staged_files
from sympformer.errors import InputError
from sympformer.models import ModelConfig, build_model
from sympformer.models.describe import kernel_passes
from sympformer.studies.flow.command import flow, start_of
from sympformer.studies.flow.race import arrival_of, best_step, passes_a_step, race, run
from sympformer.studies.flow.systems import make_damping, make_system

SMALL: dict[str, Any] = {"dim": 2, "particles": 6, "condition": 5.0, "max_passes": 40}
FROZEN = [name for name, kind in flows.INTEGRATORS.items() if issubclass(kind, flows.FrozenIntegrator)]


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


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
    system = flows.Quadratic(4 * torch.eye(2, dtype=torch.float64))
    x0 = start_of(5, 2, generator())
    best = best_step(system, x0, "gradient_flow", flows.Nesterov(), 0.01 * float(system.energy(x0)), 50)
    assert best.arrival == 1
    assert 4 * best.step == pytest.approx(1, abs=0.1)
    assert arrival_of(best.path.potential, best.passes, 0.01 * float(system.energy(x0))) == 1


def test_best_step_beats_every_step_of_its_grid() -> None:
    system = make_system("quadratic", 3, 20.0, generator())
    x0 = start_of(5, 3, generator(1))
    target = 0.01 * float(system.energy(x0))
    grid = (2.0, 1.0, 0.5, 0.25)
    best = best_step(system, x0, "symplectic_euler", flows.Nesterov(), target, 60, steps=grid)
    alone = [run(system, x0, "symplectic_euler", flows.Nesterov(), h, target, 60).arrival for h in grid]
    assert best.arrival is not None
    assert best.arrival <= min(passes for passes in alone if passes is not None)


def test_a_step_that_is_too_large_is_called_diverged() -> None:
    system = make_system("linear", 2, 5.0, generator())
    x0 = start_of(6, 2, generator(1))
    result = run(system, x0, "gradient_flow", flows.Nesterov(), 1e3, 0.0, 100)
    assert result.diverged
    assert result.arrival is None
    assert torch.isfinite(result.path.x).all()


def test_a_race_counts_four_passes_for_a_step_of_rk4() -> None:
    system = make_system("quadratic", 2, 5.0, generator())
    result = race(system, start_of(4, 2, generator()), ["rk4"], flows.Nesterov(), 40, step=0.5)
    assert set(result.runs) == {"gradient_flow", "rk4"}
    assert result.runs["rk4"].passes.tolist() == list(range(0, 41, 4))
    assert result.target == pytest.approx(0.01 * result.start)


@pytest.mark.parametrize("name", FROZEN)
@pytest.mark.parametrize(("system", "form"), [("linear", None), ("softmax", "own"), ("softmax", "paper")])
def test_a_step_costs_the_passes_that_a_layer_is_counted_to_make(system: Any, form: Any, name: str) -> None:
    """Where a model takes the scheme; it refuses the one that would pay twice for the same kernel."""
    passes = passes_a_step(make_system(system, 2, 5.0, generator(), form=form), name)
    options = {"form": form} if form else {}
    sizes: dict[str, Any] = {"n_layer": 3, "n_head": 2, "d_model": 8, "block_size": 4, "vocab_size": 16}
    if system == "linear" and name == "symplectic_euler":
        assert passes == 2
        with pytest.raises(InputError, match="needs a second scan"):
            ModelConfig(attention=system, integrator=name, **sizes, **options)
    else:
        cfg = ModelConfig(attention=system, integrator=name, **sizes, **options)
        assert kernel_passes(build_model(cfg)) == 3 * passes


def test_reference_methods_pay_for_no_momentum() -> None:
    for form in ("own", "paper"):
        system = make_system("softmax", 2, 5.0, generator(), form=form)
        costs = {name: passes_a_step(system, name) for name in ("gradient_flow", "nesterov", "rk4")}
        assert costs == {"gradient_flow": 1, "nesterov": 1, "rk4": 8 if form == "paper" else 4}


def test_the_target_of_an_unbounded_energy_is_where_the_gradient_flow_ends() -> None:
    system = make_system("softmax", 2, 5.0, generator())
    result = race(system, start_of(6, 2, generator()), ["ab2"], flows.Nesterov(), 100, step=0.1)
    gradient = result.runs["gradient_flow"]
    assert result.bound is None
    assert gradient.arrival is not None
    at_arrival = gradient.path.potential[gradient.passes == gradient.arrival]
    assert float(at_arrival) == result.target < 10 * result.start


@pytest.mark.slow
def test_acceleration_needs_a_fifth_of_the_oracle_calls(capsys: pytest.CaptureFixture[str]) -> None:
    """A = I, V = -Q diag(logspace(-2, 0, 8)) Q', 64 standard normal particles, every method at its own best step."""
    g = generator(0)
    system = make_system("linear", 8, 100.0, g)
    assert isinstance(system, flows.LinearAttention)
    spectrum = torch.linalg.eigvalsh(-system.V)
    torch.testing.assert_close(spectrum, torch.logspace(-2, 0, 8, dtype=torch.float64), rtol=1e-12, atol=1e-14)
    x0 = start_of(64, 8, g)
    result = race(system, x0, flows.ACCELERATED, flows.Nesterov(), 500)
    best, gradient = result.best(flows.ACCELERATED), result.runs["gradient_flow"]
    assert best is not None
    assert best.arrival is not None
    assert gradient.arrival is not None
    with capsys.disabled():
        print(f"\n  kernel passes to 1 %: {best.integrator} {best.arrival}, gradient flow {gradient.arrival}")
    assert best.passes_a_step == 1
    for held in (best, gradient):  # well beyond the crossing
        assert held.arrival is not None
        assert held.passes[-1] == 500 >= 3 * held.arrival
        assert (held.path.potential[held.passes >= held.arrival] <= 0.01 * result.start).all()
    assert 5 * best.arrival <= gradient.arrival
    geometric = result.runs["symplectic_euler"]
    assert geometric.passes.tolist() == list(range(0, 501, 2)), "a second scan for the new momentum"


@pytest.mark.parametrize("system", ["linear", "softmax", "quadratic", "wasserstein", "stein"])
def test_every_system_writes_its_files(system: Any, tmp_path: FilePath, capsys: pytest.CaptureFixture[str]) -> None:
    from PIL import Image

    out = tmp_path / "deep" / "run"
    flow(system=system, integrators="ab2,symplectic_euler", step=0.2, gif=False, out=out, **SMALL)
    assert sorted(file.name for file in out.iterdir()) == ["energy.png", "flow.json", "table.md", "tokens.png"]
    for name in ("tokens.png", "energy.png"):
        with Image.open(out / name) as picture:
            assert picture.size[0] == 1200
    document = json.loads((out / "flow.json").read_text())
    assert {method["name"] for method in document["methods"]} == {"gradient_flow", "ab2", "symplectic_euler"}
    assert document["options"]["system"] == system
    unbounded = "no lower bound" in (out / "table.md").read_text()
    assert unbounded == (system == "softmax") == (document["target"]["lower_bound"] is None)
    assert "symplectic_euler" in capsys.readouterr().out


def test_the_default_search_and_the_animation(tmp_path: FilePath) -> None:
    from PIL import Image

    flow(integrators=["symplectic_euler"], out=tmp_path, **SMALL)
    with Image.open(tmp_path / "flow.gif") as gif:
        assert gif.n_frames > 1  # type: ignore[attr-defined]
    assert (tmp_path / "flow.gif").stat().st_size < 1_500_000
    steps = {method["name"]: method["step"] for method in json.loads((tmp_path / "flow.json").read_text())["methods"]}
    assert steps["gradient_flow"] != steps["symplectic_euler"]
    flow(integrators=["symplectic_euler"], step=0.1, gif=False, format="svg", out=tmp_path, **SMALL)
    names = {file.name for file in tmp_path.iterdir()}
    assert names == {"energy.svg", "tokens.svg", "flow.json", "table.md"}, "pictures of the earlier run stayed behind"


@pytest.mark.parametrize("options", [{"causal": True}, {"system": "softmax", "causal": True, "form": "own"}])
def test_causal_systems_and_principal_components(options: dict[str, Any], tmp_path: FilePath) -> None:
    sizes = SMALL | {"dim": 5, "particles": 1}
    flow(**options, integrators="exp_euler", step=0.2, gif=False, colour="speed", out=tmp_path, **sizes)
    assert (tmp_path / "tokens.png").stat().st_size > 1000


def test_words_for_runs_that_do_not_arrive(tmp_path: FilePath) -> None:
    flow(integrators="rk4,ab2", step=1e-4, gif=False, out=tmp_path / "slow", **SMALL)
    assert "not reached within 40 passes" in (tmp_path / "slow" / "table.md").read_text()
    flow(integrators="rk4,ab2", step=1e4, gif=False, out=tmp_path / "wild", **SMALL)
    assert "diverged" in (tmp_path / "wild" / "table.md").read_text()


def test_a_seed_repeats_exactly(tmp_path: FilePath) -> None:
    def result(name: str, seed: int) -> dict[str, Any]:
        out = tmp_path / name
        flow(integrators="etd_ab2", step=0.3, gif=False, seed=seed, out=out, **SMALL)
        document: dict[str, Any] = json.loads((out / "flow.json").read_text())
        return {"methods": document["methods"], "tokens": (out / "tokens.png").read_bytes()}

    first = result("a", 3)
    assert result("b", 3) == first
    assert result("c", 4) != first


BAD: list[tuple[dict[str, Any], str]] = [
    ({"system": "lienar"}, "did you mean 'linear'"),
    ({"integrators": "ab3"}, "did you mean 'ab2'"),
    ({"integrators": []}, "integrators is empty"),
    ({"damping": "nestrov"}, "did you mean 'nesterov'"),
    ({"particles": 0}, "particles must be at least 1"),
    ({"particles": 10**6}, "GB"),
    ({"dim": 1}, "dim must be at least 2"),
    ({"step": 0.0}, "step must be a positive number"),
    ({"step": float("nan")}, "step must be a positive number"),
    ({"t0": 0.0}, "t0 must be positive when r > 0"),
    ({"t0": float("inf")}, "t0 must be a finite number"),
    ({"m": 1.0}, "nesterov damping r/t has no m"),
    ({"damping": "constant", "r": 1.0}, "constant damping m has no r"),
    ({"r": -1.0}, "r must not be negative"),
    ({"condition": 0.5}, "condition must lie between"),
    ({"max_passes": 7}, "max_passes must be at least 8"),
    ({"factor": 1.0}, "factor must be"),
    ({"seed": -1}, "seed must be"),
    ({"system": "stein", "causal": True}, "causal is an option of"),
    ({"form": "own"}, "form is an option of softmax"),
    ({"system": "softmax", "form": "onw"}, "did you mean 'own'"),
]


@pytest.mark.parametrize(("options", "message"), BAD)
def test_bad_input_is_one_sentence_and_leaves_nothing(
    options: dict[str, Any], message: str, tmp_path: FilePath
) -> None:
    with pytest.raises(InputError, match=message) as caught:
        flow(out=tmp_path / "out", **options)
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_an_out_that_is_a_file_is_found_before_the_work(tmp_path: FilePath) -> None:
    file = tmp_path / "file"
    file.write_text("keep me")
    for out in (file, file / "below"):
        with pytest.raises(InputError, match="is a file"):
            flow(out=out)
    assert file.read_text() == "keep me"


def test_staged_files_appear_together_or_not_at_all(tmp_path: FilePath) -> None:
    out = tmp_path / "out"

    def fail(error: BaseException) -> None:
        with staged_files(out) as folder:
            (folder / "half").write_text("")
            raise error

    with pytest.raises(KeyboardInterrupt):
        fail(KeyboardInterrupt())
    with pytest.raises(InputError, match="No space left"):
        fail(OSError(28, "No space left on device"))
    assert list(tmp_path.iterdir()) == []


def test_dampings() -> None:
    assert (make_damping("nesterov").r, make_damping("nesterov").m) == (3.0, 0.0)
    assert (make_damping("constant", m=0.5).r, make_damping("constant", m=0.5).m) == (0.0, 0.5)
    assert make_damping("constant", t0=0.0).t0 == 0.0
    assert (make_damping("log-linear").r, make_damping("log-linear").m) == (3.0, 0.1)


def test_importing_the_command_does_not_import_matplotlib() -> None:
    code = "import sys, sympformer.studies.flow.command; print('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"
