"""How long a run may train, and what a budget in seconds is in steps."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass

from sympformer.config_checks import check_types
from sympformer.errors import InputError


@dataclass(frozen=True)
class Budget:
    """How long a run may train: exactly one of tokens, steps and seconds, or the seconds that a model needs."""

    tokens: int | None = None
    """Training tokens."""
    steps: int | None = None
    """Optimizer steps."""
    seconds: float | None = None
    """Seconds of training; each model's speed is measured first and turns them into steps."""
    seconds_of: str | None = None
    """With tokens or steps: every model has the seconds that this one needs for them."""

    def __post_init__(self) -> None:
        check_types(self)
        given = {name: value for name, value in dataclasses.asdict(self).items() if value is not None}
        of_whom = given.pop("seconds_of", None)
        if len(given) != 1:
            raise InputError(
                f"a budget is one of tokens, steps and seconds, got {' and '.join(given) or 'none of them'}"
            )
        if of_whom is not None and self.seconds is not None:
            raise InputError(f"a budget is a number of seconds or the seconds of {of_whom} for some tokens, not both")
        for name, value in given.items():
            if not 0 < value < float("inf"):
                raise InputError(f"a budget of {value} {name} is not positive and finite")

    @property
    def timed(self) -> bool:
        """Whether models have equal seconds, and therefore steps of their own."""
        return self.seconds is not None or self.seconds_of is not None

    def steps_of(self, seconds_a_step: Mapping[str, float], total_steps: int) -> dict[str, int]:
        """Steps of every model in equal seconds. total_steps: of the model that the seconds are of."""
        seconds = self.seconds
        if seconds is None:
            assert self.seconds_of is not None  # only for a budget that is timed
            seconds = total_steps * seconds_a_step[self.seconds_of]
        return {name: max(1, round(seconds / of_step)) for name, of_step in seconds_a_step.items()}

    def describe(self) -> str:
        """In words."""
        if self.seconds is not None:
            return f"{self.seconds:g} s"
        length = f"{self.tokens:,} tokens" if self.tokens is not None else f"{self.steps:,} steps"
        return length if self.seconds_of is None else f"the seconds that {self.seconds_of} needs for {length}"
