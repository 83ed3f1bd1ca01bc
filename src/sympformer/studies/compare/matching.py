"""The size at which a model has as many parameters as another."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import count

import torch

from sympformer.errors import InputError
from sympformer.models import ModelConfig, build_model
from sympformer.models.describe import parameter_counts

BY = ("d_model", "n_layer")
TOO_FAR = 1000  # sizes that are looked at; larger ones are no match for anything


@dataclass(frozen=True)
class Match:
    """A size found, and the parameters it gives beside those that were wanted."""

    by: str
    size: int
    parameters: int
    wanted: int

    def describe(self, name: str, other: str) -> str:
        """In a sentence."""
        return (
            f"{name} has {self.by} = {self.size}, where its {self.parameters:,} parameters are nearest to the "
            f"{self.wanted:,} of {other} ({100 * (self.parameters / self.wanted - 1):+.1f} %)."
        )


def check_match(name: str, match: object) -> None:
    """Refuse what does not name a model and a size."""
    if not isinstance(match, Mapping) or set(match) != {"parameters", "by"} or match["by"] not in BY:
        raise InputError(
            f"models.{name}.match must name a model and a size, {{parameters: MODEL, by: d_model or n_layer}}, "
            f"got {match!r}"
        )


def parameters(cfg: ModelConfig) -> int:
    """How many a model has; nothing is allocated."""
    with torch.device("meta"):
        return sum(parameter_counts(build_model(cfg)).values())


def matched(model: Callable[[dict[str, int]], ModelConfig], by: str, wanted: int) -> Match:
    """The size nearest to so many parameters. model: the config with a size put in.

    Widths are multiples of the number of heads; those that the model refuses are passed over.
    """
    best: Match | None = None
    unit = model({}).n_head if by == "d_model" else 1
    why = "it hardly changes their number"
    for size in (unit * k for k in count(1)):
        try:
            found = Match(by, size, parameters(model({by: size})), wanted)
        except InputError as error:
            why = str(error)
        else:
            if best is None or abs(found.parameters - wanted) < abs(best.parameters - wanted):
                best = found
            if found.parameters >= wanted:
                return best
        if size > TOO_FAR * unit:
            raise InputError(f"no {by} gives about {wanted:,} parameters ({why})")
    raise AssertionError("the sizes do not end")
