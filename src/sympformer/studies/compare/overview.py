"""What a comparison is going to train, before it does: `sympformer compare FILE --plan`."""

from typing import TYPE_CHECKING

from sympformer import tables
from sympformer.studies.compare.comparison import Comparison
from sympformer.studies.compare.matching import parameters
from sympformer.studies.compare.rates import RateGroup
from sympformer.tables import Head

if TYPE_CHECKING:
    from rich.table import Table

HEADS = [
    Head("model", True),
    Head("parameters"),
    Head("learning rate", True, wrap=True),
    Head("options", True, wrap=True),
]


def overview(comparison: Comparison) -> "Table":
    """Every model with its parameters, its rate or where that is chosen, and its own options."""
    from rich.markup import escape

    config, plan = comparison.config, comparison.plan
    group_of = {name: group for group in config.rate_groups for name in group.members}
    rows = []
    for name, cfg in comparison.model_configs.items():
        shared = config.common.model
        own = {key: value for key, value in plan.model_options(name).items() if shared.get(key) != value}
        options = ", ".join(f"{key} {str(value).lower()}" for key, value in own.items())
        rows.append([name, f"{parameters(cfg):,}", _rate(group_of[name], name), options])
    return tables.terminal_table(comparison.root.name, HEADS, [list(map(escape, cells)) for cells in rows])


def _rate(group: RateGroup, name: str) -> str:
    rates = ", ".join(f"{rate:g}" for rate in group.given)
    if len(group.given) == 1:
        return rates
    others = [cell for cell in group.chosen_in if cell != name]
    if name in group.chosen_in:
        return f"of {rates}" + (f", with {', '.join(others)}" if others else "")
    return f"that of {', '.join(group.chosen_in)}"


def sentences(comparison: Comparison) -> list[str]:
    """How many runs there are, of how much, and what is refused or was matched."""
    config = comparison.config
    chosen = sum(len(g.given) * len(g.chosen_in) for g in config.rate_groups if len(g.given) > 1)
    lines = []
    if chosen and config.choose is not None:
        lines.append(
            f"{chosen} runs choose the rates, and more where one is the outermost: {config.choose.describe()}."
        )
    lines.append(f"{len(config.models) * len(config.seeds)} runs are reported: {config.budget.describe()}.")
    return lines + comparison.plan.matches() + config.refusals()
