"""The result of a race in words and numbers: a table for the terminal and for Markdown, and JSON."""

import json
import math
from typing import TYPE_CHECKING, Any

from sympformer.provenance import this_code
from sympformer.studies.flow.race import Race, Run
from sympformer.tables import Head, markdown_table, terminal_table

if TYPE_CHECKING:
    from rich.table import Table

HEADS = [
    Head("method", left=True),
    *(Head(text, wrap=True) for text in ("step", "calls a step", "oracle calls to target", "speed-up")),
]


def outcome(run: Run, max_calls: int) -> str:
    """Oracle calls to the target, or in words why there are none."""
    if run.diverged:
        return "diverged"
    return f"not reached within {max_calls} calls" if run.calls is None else str(run.calls)


def target_in_words(race: Race) -> str:
    """What the methods have to reach."""
    if race.bound is not None:
        return f"Target: the energy falls to 1 % of its initial value ({race.start:.4g}) and stays there."
    return (
        "Target: the energy has no lower bound, so it is the energy at the end of the gradient flow's run,"
        f" {race.target:.4g} (start: {race.start:.4g})."
    )


def rows(race: Race) -> list[tuple[str, ...]]:
    """One row a method, fastest first."""
    table: list[tuple[str, ...]] = []
    for run in race.ranked():
        cells = (run.integrator, f"{run.step:.3g}", str(run.calls_per_step), outcome(run, race.max_calls))
        table.append((*cells, _speed_up(run, race)))
    return table


def _speed_up(run: Run, race: Race) -> str:
    """The gradient flow's calls over this run's; a lower limit if the gradient flow has not arrived."""
    gradient = race.runs["gradient_flow"]
    if not run.calls or gradient.diverged:
        return "-"
    return f"{gradient.calls / run.calls:.1f} x" if gradient.calls else f"> {race.max_calls / run.calls:.1f} x"


def markdown(race: Race, title: str, notes: list[str]) -> str:
    """The table as Markdown, with its notes."""
    return (
        "\n".join([f"# {title}\n", markdown_table(HEADS, rows(race)), *(f"{note}\n" for note in notes)]).rstrip() + "\n"
    )


def terminal(race: Race, title: str) -> "Table":
    """The table for the terminal."""
    return terminal_table(title, HEADS, rows(race))


def to_json(race: Race, options: dict[str, Any], notes: list[str]) -> str:
    """Everything the table and the energy plot show, with the options that made it."""
    target = {"energy": race.target, "start": race.start, "lower_bound": race.bound, "meaning": target_in_words(race)}
    document = {
        **this_code().to_dict(),
        "options": options,
        "target": target,
        "max_calls": race.max_calls,
        "notes": notes,
        "methods": [_method(run, race.max_calls) for run in race.ranked()],
    }
    return json.dumps(document, indent=2, allow_nan=False) + "\n"


def _method(run: Run, max_calls: int) -> dict[str, Any]:
    energy = [value if math.isfinite(value) else None for value in run.path.potential.tolist()]
    return {
        "name": run.integrator,
        "step": run.step,
        "calls_per_step": run.calls_per_step,
        "calls_to_target": run.calls,
        "outcome": outcome(run, max_calls),
        "diverged": run.diverged,
        "oracle_calls": run.path.oracle_calls.tolist(),
        "energy": energy,
    }
