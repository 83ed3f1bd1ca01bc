"""What an integrator is: `init` makes the history it needs, `step` takes (x, y) one step further.

An integrator knows nothing of systems or layers. It is handed an oracle, a function from positions to a `Field`, and
a `Step` that holds the clock, the step sizes and the damping, all of which may be tensors that learn.

Most schemes ask the oracle once, at the positions they start from: those are `FrozenIntegrator`s, and `advance` is
their step on a field that is already there. A language model has nothing but such a field to offer (one kernel pass a
layer), so it takes these schemes only: one that evaluates at other positions has no `advance` to call.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor

from sympformer.flows.damping import Damping, Scalar
from sympformer.flows.system import Field

Oracle = Callable[[Tensor], Field]
State = tuple[Tensor, Tensor, Any]  # x, y, history


@dataclass(frozen=True)
class Step:
    """One time step: number k = 0, 1, ..., clock t at its start, step sizes, damping.

    `factor` is the momentum factor of the schemes that replace 1 - alpha h by a number of their own (plain_euler);
    None means Nesterov's (k-1)/(k+2).
    """

    k: int
    t: Scalar
    h_x: Scalar
    h_y: Scalar
    damping: Damping
    factor: Scalar | None = None


class Integrator(ABC):
    """Abstract base. `order` is the order on the damped system, `evaluations` the kernel evaluations a step."""

    order: ClassVar[int]
    evaluations: ClassVar[int]
    momenta: ClassVar[int] = 1  # different momenta at which it asks one field; 0: none, or zero momentum
    damped: ClassVar[bool] = True  # it uses `step.damping`; otherwise `step.factor`, or neither

    def init(self) -> Any:
        """The history before the first step; None for one-step methods."""
        return None

    @abstractmethod
    def step(self, oracle: Oracle, x: Tensor, y: Tensor, step: Step, history: Any) -> State:
        """(x_next, y_next, history_next)."""


class FrozenIntegrator(Integrator):
    """Abstract base of the schemes with one evaluation, at x: a step needs the field there and nothing else."""

    evaluations = 1

    def step(self, oracle: Oracle, x: Tensor, y: Tensor, step: Step, history: Any) -> State:
        return self.advance(oracle(x), x, y, step, history)

    @abstractmethod
    def advance(self, field: Field, x: Tensor, y: Tensor, step: Step, history: Any) -> State:
        """(x_next, y_next, history_next) from the field at x."""
