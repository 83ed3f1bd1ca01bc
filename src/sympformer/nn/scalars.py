"""Learned scalars: step sizes, damping, momentum factors, gains, each kept in its domain by a smooth map."""

import math
from collections.abc import Callable, Mapping
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

Domain = Literal["positive", "fraction"]
SMALLEST = 1e-12  # of a positive scalar: multistep schemes divide by the step before

MAPS: dict[Domain, Callable[[Tensor], Tensor]] = {
    # no step of size zero, by which the next would divide
    "positive": lambda raw: nn.functional.softplus(raw).clamp_min(SMALLEST),
    "fraction": torch.sigmoid,
}


class ScalarSpec(NamedTuple):
    """A scalar's start, its domain ((0, inf) through softplus, (0, 1) through sigmoid), whether it learns."""

    start: float
    domain: Domain
    learn: bool = True

    def raw(self) -> float:
        """The unconstrained number that maps to the start."""
        if self.domain == "positive":
            return self.start + math.log(-math.expm1(-self.start))  # inverse of softplus, no overflow
        return math.log(self.start / (1 - self.start))


class Scalars(nn.Module):
    """The scalars of n layers: a matrix (scalars, layers) of raw values for each domain, so that a pass pays for two
    small maps, however many there are. Calling it gives vectors (layers,) by name; fixed ones are plain numbers."""

    group = "scalar"

    def __init__(self, specs: Mapping[str, ScalarSpec], n: int = 1) -> None:
        super().__init__()
        self.specs, self.n = dict(specs), n
        self.names = {domain: [k for k, s in specs.items() if s.learn and s.domain == domain] for domain in MAPS}
        for domain, names in self.names.items():
            self.register_parameter(domain, nn.Parameter(torch.empty(len(names), n)) if names else None)
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Back to the starts."""
        for domain, parameter in self.named_parameters():
            parameter.copy_(self.start(domain))

    def start(self, domain: str) -> Tensor:
        """The raw values of a domain that map to the starts."""
        names = self.names[domain]  # type: ignore[index]
        return torch.tensor([[self.specs[name].raw()] * self.n for name in names])

    def forward(self) -> dict[str, Tensor | float]:
        values: dict[str, Tensor | float] = {name: spec.start for name, spec in self.specs.items()}
        for domain, names in self.names.items():
            if names:
                values |= zip(names, MAPS[domain](self.get_parameter(domain)).unbind(), strict=True)
        return values

    @torch.no_grad()
    def report(self) -> list[dict[str, float]]:
        """Present values as numbers, by layer, in the order of the specs."""
        values = {name: v.tolist() if isinstance(v, Tensor) else [v] * self.n for name, v in self().items()}
        return [{name: column[k] for name, column in values.items()} for k in range(self.n)]
