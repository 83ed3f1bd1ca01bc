"""Factors and their levels, and the models that follow: the product, less what no model can be built of."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any

from sympformer.errors import InputError
from sympformer.training.choices import choose_model, model_options

Options = dict[str, Any]
Factors = Mapping[str, Mapping[str, Mapping[str, Any]]]


@dataclass(frozen=True)
class Factorial:
    """All combinations of the factors' levels. shared: the options that all models have."""

    factors: Factors
    shared: Options

    @cached_property
    def cells(self) -> dict[str, tuple[str, ...]]:
        """The name of every combination, built or refused, and its levels: the levels joined, in the factors' order."""
        self._check()
        found: dict[str, tuple[str, ...]] = {}
        for levels in product(*self.factors.values()) if self.factors else ():
            name = "-".join(levels)
            if name in found:
                raise InputError(
                    f"the levels {found[name]} and {levels} would both be called {name}: rename one of them"
                )
            found[name] = levels
        return found

    @cached_property
    def models(self) -> dict[str, Options]:
        """Name -> options of the cells that can be built."""
        return {name: self.options(name) for name in self.cells if name not in self.refused}

    @cached_property
    def refused(self) -> dict[str, str]:
        """Name -> why there is no such model. A level that fits nowhere is a mistake, and raised."""
        refused: dict[str, str] = {}
        for name in self.cells:
            options = model_options(self.shared, self.options(name))
            try:
                choose_model(options)
            except InputError as error:
                refused[name] = str(error)
        for i, (factor, levels) in enumerate(self.factors.items()):
            for level in levels:
                cells = [name for name, of in self.cells.items() if of[i] == level]
                if all(name in refused for name in cells):
                    raise InputError(f"factors.{factor}.{level}: no model can be built of it: {refused[cells[0]]}")
        return refused

    def options(self, name: str) -> Options:
        """What the levels of a cell say together."""
        merged: Options = {}
        for (factor, levels), level in zip(self.factors.items(), self.cells[name], strict=True):
            for option, value in levels[level].items():
                if merged.setdefault(option, value) != value:
                    raise InputError(
                        f"factors.{factor}.{level} gives {option} = {value!r}, and another factor of the cell {name} "
                        f"gives {merged[option]!r}: an option belongs to one factor"
                    )
        return merged

    def rest_of(self, name: str, factor: str) -> str:
        """A cell's levels of the other factors, joined."""
        place = list(self.factors).index(factor)
        return "-".join(level for i, level in enumerate(self.cells[name]) if i != place)

    def _check(self) -> None:
        for factor, levels in self.factors.items():
            if not isinstance(levels, Mapping) or len(levels) < 2:
                raise InputError(f"factors.{factor} must name two levels or more")
            for level, options in levels.items():
                if not isinstance(level, str) or not isinstance(options, Mapping):
                    raise InputError(f"factors.{factor}.{level} must hold options, {{}} for none, got {options!r}")
