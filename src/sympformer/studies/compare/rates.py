"""Which learning rates are tried, in which models, and which one is taken."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from sympformer.config_checks import check_types
from sympformer.errors import InputError

Losses = Mapping[str, Mapping[float, float]]  # model -> rate -> validation loss, inf where it diverged


@dataclass(frozen=True)
class ChooseIn:
    """One rate for all cells that have a level of a factor in common, chosen in some of them."""

    factor: str
    """The factor whose levels have a rate each."""
    cells: list[str]
    """Where it is chosen: levels of the other factors, joined as in a cell's name. The rate with the lowest mean of
    their validation losses is taken for all cells of the level."""

    def __post_init__(self) -> None:
        check_types(self)
        if not self.cells:
            raise InputError("choose_in.cells must name the cells that choose, at least one")


@dataclass(frozen=True)
class RateGroup:
    """Models that share one rate, and those among them whose runs choose it: a model by itself, or a factor's level."""

    name: str
    members: tuple[str, ...]
    chosen_in: tuple[str, ...]
    given: tuple[float, ...]

    def mean_losses(self, losses: Losses) -> dict[float, float]:
        """Rate -> mean validation loss of the models that choose; what is no number counts as infinitely bad."""
        tried = [losses[name] for name in self.chosen_in if name in losses]
        if len(tried) < len(self.chosen_in):
            return {}
        sums = {rate: sum(of[rate] for of in tried) for rate in tried[0] if all(rate in of for of in tried)}
        return {rate: total / len(tried) if math.isfinite(total) else math.inf for rate, total in sums.items()}

    def next_rates(self, losses: Losses, extend: int) -> list[float]:
        """What to try next: the rates given, then one beyond while the best is the outermost, `extend` each way."""
        means = self.mean_losses(losses)
        if len(self.given) < 2 or not means:
            return list(self.given) if len(self.given) > 1 else []
        tried = sorted(means)
        best = min(tried, key=lambda rate: means[rate])
        if not math.isfinite(means[best]) or best not in (tried[0], tried[-1]):
            return []
        neighbour, beyond = (
            (tried[1], [rate for rate in tried if rate < min(self.given)])
            if best == tried[0]
            else (tried[-2], [rate for rate in tried if rate > max(self.given)])
        )
        return [float(f"{best * best / neighbour:.6g}")] if len(beyond) < extend else []

    def best(self, losses: Losses) -> float | None:
        """The rate with the lowest mean; None where every one diverged somewhere. A single rate is given."""
        if len(self.given) == 1:
            return float(self.given[0])
        finite = {rate: mean for rate, mean in self.mean_losses(losses).items() if math.isfinite(mean)}
        return min(finite, key=lambda rate: finite[rate]) if finite else None

    def disagreement(self, losses: Losses) -> str | None:
        """A sentence where the models that choose would not all have chosen what was taken."""
        taken = self.best(losses)
        if len(self.given) < 2 or taken is None:
            return None
        own = {name: min(losses[name], key=lambda rate: losses[name][rate]) for name in self.chosen_in}
        if set(own.values()) == {taken}:
            return None
        wishes = ", ".join(
            f"{name} {rate:g} (better by {losses[name][taken] - losses[name][rate]:.4f})" if rate != taken else
            f"{name} that one"
            for name, rate in own.items()
        )  # fmt: skip
        return f"{self.name}: rate {taken:g} has the lowest mean; by themselves its cells would have: {wishes}."
