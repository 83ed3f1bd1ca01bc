"""`sympformer flow`: run particle flows, race the integrators, draw tokens and energies.

$ sympformer flow                                     # linear attention, 64 tokens in 8 dimensions
$ sympformer flow --system stein --dim 2 --condition 10 --out runs/stein
$ sympformer flow --integrators ab2,etd_ab2 --damping constant --m 0.5 --step 0.5
$ sympformer flow --start student-t --nu 5 --dim 2 --particles 400   # tokens beside the equations of their moments
"""

import math
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from sympformer.atomic import staged_files
from sympformer.errors import InputError, unknown_name
from sympformer.flows import INTEGRATORS, LinearAttention, LogLinear, System
from sympformer.flows.attention import Form
from sympformer.flows.elliptic import Elliptic
from sympformer.progress import steps_with_progress
from sympformer.studies.flow import table
from sympformer.studies.flow.law import StartName, check_start, compare, make_family, start_law
from sympformer.studies.flow.plots import Colour
from sympformer.studies.flow.race import STEPS, Race, race
from sympformer.studies.flow.systems import TITLES, DampingName, SystemName, make_damping, make_system

Format = Literal["png", "pdf", "svg"]
SHARED_STEP = 0.1  # for energies without a lower bound, where no step is best
LEAST_PASSES = 8  # four evaluations, of two passes each in form "paper"
MEMORY = 4e9  # bytes; more than that is a slip of the keyboard
PICTURES = (
    "flow.gif",
    *(f"{name}.{suffix}" for name in ("tokens", "energy", "law") for suffix in ("png", "pdf", "svg")),
)


def flow(
    system: SystemName = "linear",
    dim: int = 8,
    particles: int = 64,
    integrators: list[str] | str = "all",
    damping: DampingName = "nesterov",
    r: float | None = None,
    m: float | None = None,
    t0: float | None = None,
    factor: float | None = None,
    step: float | Literal["best"] = "best",
    max_passes: int = 400,
    condition: float = 100.0,
    causal: bool = False,
    form: Form | None = None,
    start: StartName | None = None,
    nu: float | None = None,
    beta: float | None = None,
    lam: float | None = None,
    chi: float | None = None,
    psi: float | None = None,
    colour: Colour = "token",
    seed: int = 0,
    out: Path = Path("runs/flow"),
    gif: bool = True,
    format: Format = "png",
) -> None:
    """Run particle flows from one start and compare them by kernel passes, counted as a model would pay them.

    Writes tokens.png, energy.png, flow.gif, table.md and flow.json. The gradient flow is always run: it is the
    yardstick. With a start law there is a law.png as well: the tokens beside the equations of their moments.

    Args:
        system: What moves: linear or softmax attention, quadratic (oscillators), wasserstein, stein (a curved valley).
        dim: Dimension of a token, at least 2; above 2 the pictures show two principal components.
        particles: Number of tokens.
        integrators: Names separated by commas, or all.
        damping: alpha(t) = r/t (nesterov), m (constant) or r/t + m (log-linear).
        r: Strength of the 1/t damping, 3 unless given.
        m: Strength of the constant damping, 0.3 (constant) or 0.1 (log-linear) unless given.
        t0: Where the clock starts, 1 unless given; above 0 if r is.
        factor: Momentum factor of plain_euler, at least 0 and below 1; (k-1)/(k+2) unless given.
        step: One step size for all methods, or best: every method searches its own.
        max_passes: Kernel passes that every method may spend.
        condition: Ratio of the largest to the smallest eigenvalue of the system's matrix.
        causal: Whether tokens see earlier tokens only (linear and softmax attention).
        form: The force of softmax attention, paper (unless given) or own.
        start: The elliptic law that the tokens come from (linear attention); standard normal unless given.
        nu: Degrees of freedom of the student-t start, above 2; 5 unless given.
        beta: Power of the power-exponential start; 0.5 unless given.
        lam: Order of the generalised-hyperbolic start; -0.5 unless given.
        chi: First scale of the generalised-hyperbolic start; 1 unless given.
        psi: Second scale of the generalised-hyperbolic start; 1 unless given.
        colour: Tokens coloured by where they start or by how fast they move.
        seed: Seed of the matrices and of the start.
        out: Folder for the results.
        gif: Whether to write the animation.
        format: Format of the still pictures.
    """
    options = {name: str(value) if isinstance(value, Path) else value for name, value in locals().items()}
    names = _names(integrators)
    _check_numbers(particles, dim, max_passes, step, factor, seed)
    schedule = make_damping(damping, r, m, t0)
    generator = torch.Generator().manual_seed(seed)
    particle_system = make_system(system, dim, condition, generator, causal, form)
    law = _law(start, particle_system, particles, dim, generator, nu=nu, beta=beta, lam=lam, chi=chi, psi=psi)
    x0 = start_of(particles, dim, generator) if law is None else law.sample(particles, generator)
    title = TITLES[system] + (", causal" if causal else "")
    with torch.no_grad(), staged_files(out, PICTURES) as folder:
        shared = _shared_step(particle_system, step)
        result = _race(particle_system, x0, names, schedule, max_passes, shared, factor)
        notes = _notes(result, schedule, shared, step == "best")
        if law is not None:
            notes += _write_law(folder, particle_system, law, x0, schedule, options)
        files = _write(result, folder, title, shared, notes, options)
        (folder / "flow.json").write_text(table.to_json(result, options, notes))
    _show(result, title, notes, out, [*files, "flow.json"])


def start_of(particles: int, dim: int, generator: torch.Generator) -> Tensor:
    """Standard normal positions (particles, dim) in float64."""
    return torch.randn(particles, dim, generator=generator, dtype=torch.float64)


def _law(
    start: str | None, system: System, particles: int, dim: int, generator: torch.Generator, **given: float | None
) -> Elliptic | None:
    """The law that the tokens start from; None for the standard normal one, which is not followed."""
    if start is None:
        if unused := [option for option, value in given.items() if value is not None]:
            raise InputError(f"{unused[0]} is an option of a start law; name one with start, or leave it out")
        return None
    check_start(system, particles, dim)
    return start_law(make_family(start, **given), dim, generator)


def _write_law(
    folder: Path, system: System, law: Elliptic, x0: Tensor, damping: LogLinear, options: dict[str, Any]
) -> list[str]:
    """The picture of the tokens beside their moments; what it shows, in sentences."""
    from sympformer.studies.flow import law_plots, plots

    assert isinstance(system, LinearAttention), "checked when the law was made"
    result = compare(system, law, x0, damping)
    heading = f"Linear attention from a {options['start']} start: the law keeps its shape"
    plots.save(law_plots.law_plot(result, heading), folder / f"law.{options['format']}")
    return result.notes()


def _names(integrators: list[str] | str) -> list[str]:
    if integrators == "all":
        return list(INTEGRATORS)
    names = integrators.split(",") if isinstance(integrators, str) else integrators
    names = [name.strip() for name in names if name.strip()]
    for name in names:
        if name not in INTEGRATORS:
            raise unknown_name("integrator", name, INTEGRATORS)
    if not names:
        raise InputError("integrators is empty; name at least one, or leave it out to run all")
    return names


def _check_numbers(
    particles: int, dim: int, max_passes: int, step: float | str, factor: float | None, seed: int
) -> None:
    if particles < 1:
        raise InputError(f"particles must be at least 1, got {particles}")
    if max_passes < LEAST_PASSES:
        raise InputError(f"max_passes must be at least {LEAST_PASSES}, what one step of rk4 may cost, got {max_passes}")
    if step != "best" and not (isinstance(step, (int, float)) and math.isfinite(step) and step > 0):
        raise InputError(f"step must be a positive number or 'best', got {step!r}")
    if factor is not None and not 0 <= factor < 1:
        raise InputError(f"factor must be at least 0 and below 1, got {factor}")
    if not 0 <= seed < 2**63:
        raise InputError(f"seed must be at least 0 and below 2^63, got {seed}")
    need = 8 * (4 * particles**2 + 4 * max_passes * particles * dim)
    if need > MEMORY:
        raise InputError(
            f"{particles} particles in {dim} dimensions over {max_passes} passes need about {need / 1e9:.3g} GB;"
            " use fewer of one of them"
        )


def _shared_step(system: System, step: float | str) -> float | None:
    if step != "best":
        return float(step)
    return SHARED_STEP if system.lower_bound is None else None


def _race(
    system: System, x0: Tensor, names: list[str], damping: LogLinear, max_passes: int, step: float | None,
    factor: float | None,
) -> Race:  # fmt: skip
    """The race with a bar."""
    total = len({"gradient_flow", *names}) * (len(STEPS) if step is None else 1)
    with closing(steps_with_progress(total, "racing")) as ticks:  # type: ignore[type-var]
        return race(
            system, x0, names, damping, max_passes, step=step, factor=factor, tick=lambda: next(ticks, None)
        )  # fmt: skip


def _notes(result: Race, damping: LogLinear, shared: float | None, wanted_best: bool) -> list[str]:
    notes = [table.target_in_words(result)]
    if shared is None:
        notes.append("Every method runs at its own best constant step, found on a logarithmic grid.")
    elif wanted_best:
        notes.append(f"All methods take the step {shared:g}: without a lower bound a larger one always arrives sooner.")
    notes.append(f"Damping: {damping.r:g}/t + {damping.m:g} from t = {damping.t0:g}.")
    if {"plain_euler", "nesterov"} & result.runs.keys():
        notes[-1] += " plain_euler and nesterov have a momentum factor of their own instead."
    dear = [run.integrator for run in result.ranked() if run.passes_a_step > INTEGRATORS[run.integrator].evaluations]
    if dear:
        notes.append(
            f"Kernel passes are counted as a model would pay them: {', '.join(dear)} pay{'s' if len(dear) == 1 else ''}"
            " two for an evaluation, because sums over this kernel hold momenta."
        )
    return notes


def _write(
    result: Race, folder: Path, title: str, shared: float | None, notes: list[str], options: dict[str, Any]
) -> list[str]:
    """Pictures and table; the names of the files."""
    from sympformer.studies.flow import animation, plots

    suffix, colour = options["format"], options["colour"]
    strip, energy = plots.titles(result, title, shared)
    plots.save(plots.token_strip(result, strip, colour), folder / f"tokens.{suffix}")
    plots.save(plots.energy_plot(result, energy), folder / f"energy.{suffix}")
    files = [f"tokens.{suffix}", f"energy.{suffix}", *([f"law.{suffix}"] if options["start"] else [])]
    if options["gif"]:
        frames: Iterable[int] = steps_with_progress(animation.FRAMES, "drawing")
        animation.animate(result, folder / "flow.gif", colour, frames)
        files.append("flow.gif")
    (folder / "table.md").write_text(table.markdown(result, energy, notes))
    return [*files, "table.md"]


def _show(result: Race, title: str, notes: list[str], out: Path, files: list[str]) -> None:
    from rich.console import Console

    console = Console(highlight=False)
    console.print(table.terminal(result, title))
    for note in notes:
        console.print(note, soft_wrap=True, markup=False)
    console.print(f"Written to {out}: {', '.join(files)}", soft_wrap=True, markup=False)
