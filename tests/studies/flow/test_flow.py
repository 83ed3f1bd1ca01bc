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
from sympformer.studies.flow.command import best_step, calls_to_target, flow, race, start_of
from sympformer.studies.flow.race import run
from sympformer.studies.flow.systems import make_damping, make_system

SMALL: dict[str, Any] = {"dim": 2, "particles": 6, "condition": 5.0, "max_calls": 40}


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def path_of(potential: list[float], calls_per_step: int = 1) -> flows.Path:
    S = len(potential)
    x = torch.zeros(S, 1, 2)
    energy = torch.tensor(potential, dtype=torch.float64)
    calls = calls_per_step * torch.arange(S)
    return flows.Path(x=x, y=x, t=torch.arange(S), potential=energy, kinetic=energy * 0, oracle_calls=calls)


@pytest.mark.parametrize(
    ("potential", "per_step", "calls"),
    [
        ([1.0, 0.5, 0.1, 0.05], 1, 2),
        ([1.0, 0.05, 0.5, 0.05, 0.1], 1, 3),  # comes back once: the second arrival counts
        ([1.0, 0.05, 0.05, 0.2], 1, None),  # does not stay
        ([1.0, 0.05, float("nan"), 0.05], 1, 3),
        ([0.1, 0.1], 1, 0),
        ([1.0, 0.5, 0.05], 4, 8),
    ],
)
def test_calls_to_target_counts_the_arrival_for_good(potential: list[float], per_step: int, calls: int | None) -> None:
    assert calls_to_target(path_of(potential, per_step), 0.1) == calls


def test_best_step_of_the_gradient_flow_on_one_oscillator_is_newtons() -> None:
    """On K = 4 I the Euler step h = 1/4 lands on the minimum with one call."""
    system = flows.Quadratic(4 * torch.eye(2, dtype=torch.float64))
    x0 = start_of(5, 2, generator())
    best = best_step(system, x0, "gradient_flow", flows.Nesterov(), 0.01 * float(system.energy(x0)), 50)
    assert best.calls == 1
    assert 4 * best.step == pytest.approx(1, abs=0.1)
    assert calls_to_target(best.path, 0.01 * float(system.energy(x0))) == 1


def test_best_step_beats_every_step_of_its_grid() -> None:
    system = make_system("quadratic", 3, 20.0, generator())
    x0 = start_of(5, 3, generator(1))
    target = 0.01 * float(system.energy(x0))
    grid = (2.0, 1.0, 0.5, 0.25)
    best = best_step(system, x0, "symplectic_euler", flows.Nesterov(), target, 60, steps=grid)
    alone = [run(system, x0, "symplectic_euler", flows.Nesterov(), h, target, 60).calls for h in grid]
    assert best.calls is not None
    assert best.calls <= min(calls for calls in alone if calls is not None)


def test_a_step_that_is_too_large_is_called_diverged() -> None:
    system = make_system("linear", 2, 5.0, generator())
    x0 = start_of(6, 2, generator(1))
    result = run(system, x0, "gradient_flow", flows.Nesterov(), 1e3, 0.0, 100)
    assert result.diverged
    assert result.calls is None
    assert torch.isfinite(result.path.x).all()


def test_a_race_counts_four_calls_for_a_step_of_rk4() -> None:
    system = make_system("quadratic", 2, 5.0, generator())
    result = race(system, start_of(4, 2, generator()), ["rk4"], flows.Nesterov(), 40, step=0.5)
    assert set(result.runs) == {"gradient_flow", "rk4"}
    assert result.runs["rk4"].path.oracle_calls.tolist() == list(range(0, 41, 4))
    assert result.target == pytest.approx(0.01 * result.start)


def test_the_target_of_an_unbounded_energy_is_where_the_gradient_flow_ends() -> None:
    system = make_system("softmax", 2, 5.0, generator())
    result = race(system, start_of(6, 2, generator()), ["ab2"], flows.Nesterov(), 100, step=0.1)
    gradient = result.runs["gradient_flow"]
    assert result.bound is None
    assert gradient.calls is not None
    at_arrival = gradient.path.potential[gradient.path.oracle_calls == gradient.calls]
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
    assert best.calls is not None
    assert gradient.calls is not None
    with capsys.disabled():
        print(f"\n  oracle calls to 1 %: {best.integrator} {best.calls}, gradient flow {gradient.calls}")
    assert best.calls_per_step == 1
    for path, calls in ((best.path, best.calls), (gradient.path, gradient.calls)):  # held well beyond the crossing
        assert path.oracle_calls[-1] == 500 >= 3 * calls
        assert (path.potential[path.oracle_calls >= calls] <= 0.01 * result.start).all()
    assert 5 * best.calls <= gradient.calls


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
    assert "not reached within 40 calls" in (tmp_path / "slow" / "table.md").read_text()
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
    ({"max_calls": 3}, "max_calls must be at least 4"),
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
