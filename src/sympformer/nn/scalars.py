"""Learned scalars: step sizes, damping, momentum factors, weights, each kept in its domain by a smooth map."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Generic, Literal, NamedTuple, TypeVar, get_args

import torch
from torch import Tensor, nn

Domain = Literal["positive", "fraction", "real"]
SMALLEST = 1e-12  # of a positive scalar: multistep schemes divide by the step before
Row = TypeVar("Row")

MAPS: dict[Domain, Callable[[Tensor], Tensor]] = {
    # no step of size zero, by which the next would divide
    "positive": lambda raw: nn.functional.softplus(raw).clamp_min(SMALLEST),
    "fraction": torch.sigmoid,
    "real": lambda raw: raw,
}


class ScalarSpec(NamedTuple):
    """A scalar's start, its domain ((0, inf) through softplus, (0, 1) through sigmoid, or all), whether it learns."""

    start: float
    domain: Domain
    learn: bool = True

    def raw(self) -> float:
        """The unconstrained number that maps to the start."""
        if self.domain == "positive":
            return self.start + math.log(-math.expm1(-self.start))  # inverse of softplus, no overflow
        if self.domain == "fraction":
            return math.log(self.start / (1 - self.start))
        return self.start


class LearnedScalars(nn.Module, Generic[Row]):
    """The scalars of one layer. Calling it gives them as a `row`, a named tuple; fixed ones are plain numbers.

    All learned raw values of a domain live in one vector, so that a layer pays for two small maps, not for ten.
    """

    group = "scalar"

    def __init__(self, row: Callable[..., Row], specs: Mapping[str, ScalarSpec]) -> None:
        super().__init__()
        self.row, self.specs = row, dict(specs)
        self.names: dict[Domain, list[str]] = {domain: [] for domain in get_args(Domain)}
        for name, spec in specs.items():
            if spec.learn:
                self.names[spec.domain].append(name)
        for domain, names in self.names.items():
            self.register_parameter(domain, nn.Parameter(torch.empty(len(names))) if names else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Back to the starts."""
        for domain, names in self.names.items():
            if names:
                with torch.no_grad():
                    self.get_parameter(domain).copy_(self.start(domain))

    def start(self, domain: Domain) -> Tensor:
        """The raw vector of a domain that maps to the starts."""
        return torch.tensor([self.specs[name].raw() for name in self.names[domain]])

    def values(self) -> dict[str, Tensor | float]:
        """By name: 0-dimensional tensors (learned) and floats (fixed)."""
        return self._mapped({domain: self.get_parameter(domain) for domain, names in self.names.items() if names})

    def forward(self) -> Row:
        return self.row(**self.values())

    @classmethod
    def together(cls, many: Sequence["LearnedScalars[Row]"]) -> Row:
        """The scalars of several layers of one kind as one row of vectors (layers,): each map runs once for all."""
        first = many[0]

        def stacked(domain: Domain) -> Tensor:
            """The raw values of all layers, (scalars, layers)."""
            return torch.stack([scalars.get_parameter(domain) for scalars in many], 1)

        return first.row(**first._mapped({domain: stacked(domain) for domain, names in first.names.items() if names}))

    def _mapped(self, raw: Mapping[Domain, Tensor]) -> dict[str, Tensor | float]:
        """Raw values, one to a row, mapped into their domains, by name; fixed ones are numbers."""
        values: dict[str, Tensor | float] = {n: s.start for n, s in self.specs.items() if not s.learn}
        for domain, numbers in raw.items():
            values |= zip(self.names[domain], MAPS[domain](numbers).unbind(), strict=True)
        return values

    def numbers(self) -> Row:
        """The same as floats, for use without gradients."""
        return self.row(**self.report())

    @torch.no_grad()
    def report(self) -> dict[str, float]:
        """Present values as numbers, in the order of the specs."""
        values = self.values()
        return {name: float(values[name]) for name in self.specs}
