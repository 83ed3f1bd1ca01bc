"""`sympformer flow`: run particle flows, race the integrators, draw tokens and energies.

$ sympformer flow                                     # linear attention, 64 tokens in 8 dimensions
$ sympformer flow --system stein --dim 2 --condition 10 --out runs/stein
$ sympformer flow --integrators ab2,etd_ab2 --r 0 --m 0.5 --step 0.5
"""

import json
import math
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from sympformer import files
from sympformer.errors import InputError, unknown_name
from sympformer.flows import INTEGRATORS, LogLinear
from sympformer.progress import steps_with_progress
from sympformer.provenance import this_code
from sympformer.studies.flow import pictures
from sympformer.studies.flow.race import STEPS, Course, FormName, Race, Run, SystemName, make_system, race
from sympformer.tables import Head, markdown_table, terminal_table

SHARED_STEP = 0.1  # for energies without a lower bound, where no step is best
LEAST_PASSES = 8  # four evaluations, of two passes each in form "paper"
MEMORY = 4e9  # bytes; more than that is a slip of the keyboard
HEADS = [Head("method", left=True)] + [
    Head(text, wrap=True) for text in ("step", "passes a step", "kernel passes to target", "speed-up")
]
TITLES: dict[str, str] = {
    "linear": "linear attention",
    "softmax": "softmax attention",
    "quadratic": "harmonic oscillators",
    "wasserstein": "Wasserstein flow in a curved valley",
    "stein": "Stein flow in a curved valley",
}


def flow(
    system: SystemName = "linear",
    dim: int = 8,
    particles: int = 64,
    integrators: str = "all",
    r: float = 3.0,
    m: float = 0.0,
    t0: float = 1.0,
    step: float | None = None,
    max_passes: int = 400,
    condition: float = 100.0,
    causal: bool = False,
    form: FormName | None = None,
    seed: int = 0,
    out: Path = Path("runs/flow"),
    format: Literal["png", "pdf", "svg"] = "png",
) -> None:
    """Run particle flows from one start and compare them by kernel passes, counted as a model would pay them.

    Writes tokens.png, energy.png, table.md and flow.json. The gradient flow is always run: it is the yardstick.

    Args:
        system: What moves: linear or softmax attention, quadratic (oscillators), wasserstein, stein (a curved valley).
        dim: Dimension of a token, at least 2; above 2 the pictures show two principal components.
        particles: Number of tokens.
        integrators: Names separated by commas, or all.
        r: Strength of the 1/t damping in alpha(t) = r/t + m.
        m: Strength of the constant damping.
        t0: Where the clock starts; above 0 if r is.
        step: One step size for all methods; unless given every method searches its own best.
        max_passes: Kernel passes that every method may spend.
        condition: Ratio of the largest to the smallest eigenvalue of the system's matrix.
        causal: Whether tokens see earlier tokens only (linear and softmax attention).
        form: The force of softmax attention, paper (unless given) or own.
        seed: Seed of the matrices and of the start.
        out: Folder for the results.
        format: Format of the pictures.
    """
    options = {name: str(value) if isinstance(value, Path) else value for name, value in locals().items()}
    names = _names(integrators)
    _check_ranges(particles, dim, max_passes, step, t0, seed)
    damping = LogLinear(r, m, t0)
    generator = torch.Generator().manual_seed(seed)
    moving = make_system(system, dim, condition, generator, causal, form)
    course = Course(moving, start_of(particles, dim, generator), damping, max_passes)
    shared = SHARED_STEP if step is None and moving.lower_bound is None else step
    total = len({"gradient_flow", *names}) * (len(STEPS) if shared is None else 1)
    with files.locked(out):
        try:
            out.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"cannot make the folder {out} ({error.strerror}): choose another place") from error
        with few_threads(particles), closing(steps_with_progress(total, "racing")) as ticks:  # type: ignore[type-var]
            result = race(course, names, shared, tick=lambda: next(ticks, None))
        notes = notes_of(result, damping, shared, step)
        headings = pictures.headings(result, TITLES[system] + (", causal" if causal else ""), shared)
        found: dict[str, str | bytes] = {
            f"tokens.{format}": pictures.drawn(pictures.token_strip(result, headings[0]), format),
            f"energy.{format}": pictures.drawn(pictures.energy_plot(result, headings[1]), format),
            "table.md": "\n".join([f"# {headings[1]}\n", markdown_table(HEADS, rows(result)), "\n\n".join(notes), ""]),
            "flow.json": to_json(result, options, notes),
        }
        for earlier in (out / f"{name}.{suffix}" for name in ("tokens", "energy") for suffix in ("png", "pdf", "svg")):
            earlier.unlink(missing_ok=True)
        for name, content in found.items():
            files.write(out / name, content)
    from rich.console import Console

    console = Console(highlight=False)
    console.print(terminal_table(TITLES[system], HEADS, rows(result)))
    for note in (*notes, f"Written to {out}: {', '.join(found)}"):
        console.print(note, soft_wrap=True, markup=False)


def start_of(particles: int, dim: int, generator: torch.Generator) -> Tensor:
    """Standard normal positions (particles, dim) in float64."""
    return torch.randn(particles, dim, generator=generator, dtype=torch.float64)


def _names(integrators: str) -> list[str]:
    names = list(INTEGRATORS) if integrators == "all" else [n.strip() for n in integrators.split(",") if n.strip()]
    if unknown := [name for name in names if name not in INTEGRATORS]:
        raise unknown_name("integrator", unknown[0], INTEGRATORS)
    if not names:
        raise InputError("integrators is empty; name at least one, or leave it out to run all")
    return names


def _check_ranges(particles: int, dim: int, max_passes: int, step: float | None, t0: float, seed: int) -> None:
    for name, value, fits, must in (
        ("particles", particles, particles >= 1, "at least 1"),
        ("max_passes", max_passes, max_passes >= LEAST_PASSES, f"at least {LEAST_PASSES}, a step of rk4 may cost that"),
        ("step", step, step is None or 0 < step < math.inf, "a positive number, or left out"),
        ("t0", t0, 0 <= t0 < math.inf, "a finite number, at least 0"),
        ("seed", seed, 0 <= seed < 2**63, "at least 0 and below 2^63"),
    ):
        if not fits:
            raise InputError(f"{name} must be {must}, got {value}")
    need = 8 * (4 * particles**2 + 4 * max_passes * particles * dim)
    if need > MEMORY:
        what = f"{particles} particles in {dim} dimensions over {max_passes} passes"
        raise InputError(f"{what} need about {need / 1e9:.3g} GB; use fewer of one of them")


@contextmanager
def few_threads(particles: int) -> Iterator[None]:
    """One thread while the matrices are small: two that wait for each other on a busy machine are many times slower."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1 if particles <= 512 else threads)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


# --- in words and numbers


def notes_of(result: Race, damping: LogLinear, shared: float | None, wanted: float | None) -> list[str]:
    """What a reader of the table has to know; first the target."""
    notes = [f"Target: the energy falls to 1 % of its initial value ({result.start:.4g}) and stays there."]
    if result.bound is None:
        where = f"{result.target:.4g} (start: {result.start:.4g})"
        notes = [f"Target: the energy has no lower bound, so it is that where the gradient flow's run ends, {where}."]
    if shared is None:
        notes.append("Every method runs at its own best constant step, found on a logarithmic grid.")
    elif wanted is None:
        notes.append(f"All methods take the step {shared:g}: without a lower bound a larger one always arrives sooner.")
    notes.append(f"Damping: {damping.r:g}/t + {damping.m:g} from t = {damping.t0:g}.")
    if {"plain_euler", "nesterov"} & result.runs.keys():
        notes[-1] += " plain_euler and nesterov have a momentum factor of their own instead."
    dear = [run.integrator for run in result.ranked() if run.passes_a_step > INTEGRATORS[run.integrator].evaluations]
    if dear:
        notes.append(f"Two kernel passes an evaluation, as a model would pay them: {', '.join(dear)}.")
    return notes


def outcome(run: Run, max_passes: int) -> str:
    """Kernel passes to the target, or in words why there are none."""
    waits = run.arrival is None and not run.diverged
    return pictures.arrival_in_words(run) + (f" within {max_passes} passes" if waits else "")


def rows(result: Race) -> list[tuple[str, ...]]:
    """One row a method, fastest first."""

    def gain(run: Run) -> str:
        """The gradient flow's passes over this run's; a lower limit if the gradient flow has not arrived."""
        gradient = result.runs["gradient_flow"]
        if not run.arrival or gradient.diverged:
            return "-"
        more = "> " if gradient.arrival is None else ""
        return f"{more}{(gradient.arrival or result.max_passes) / run.arrival:.1f} x"

    return [
        (run.integrator, f"{run.step:.3g}", str(run.passes_a_step), outcome(run, result.max_passes), gain(run))
        for run in result.ranked()
    ]


def to_json(result: Race, options: dict[str, Any], notes: list[str]) -> str:
    """Everything the table and the energy plot show, with the options that made it."""
    target = {"energy": result.target, "start": result.start, "lower_bound": result.bound, "meaning": notes[0]}
    methods = [
        {
            "name": run.integrator,
            "step": run.step,
            "passes_a_step": run.passes_a_step,
            "passes_to_target": run.arrival,
            "outcome": outcome(run, result.max_passes),
            "passes": run.passes.tolist(),
            "energy": [value if math.isfinite(value) else None for value in run.path.potential.tolist()],
        }
        for run in result.ranked()
    ]
    document = this_code().to_dict() | {"options": options, "target": target, "max_passes": result.max_passes}
    return json.dumps(document | {"notes": notes, "methods": methods}, indent=2, allow_nan=False) + "\n"
