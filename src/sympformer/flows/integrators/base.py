"""What an integrator is: `init` makes the history it needs, `step` takes (x, y) one step further.

An integrator knows nothing of systems or layers. It is handed an oracle, a function from positions to a `Field`, and
a `Step` that holds the clock, the step sizes and the damping, all of which may be tensors that learn. A language
model hands it another oracle and another `Step` at every layer; `simulate` hands it the same oracle every time.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor

from sympformer.flows.damping import Damping, Scalar
from sympformer.flows.systems.base import Bound, Field

Oracle = Callable[[Tensor], Field]
State = tuple[Tensor, Tensor, Any]  # x, y, history


@dataclass(frozen=True)
class Step:
    """One time step: number k = 0, 1, ..., clock t at its start, step sizes, damping.

    `factor` is the momentum factor of the schemes that replace 1 - alpha h by a number of their own (plain_euler);
    None means Nesterov's (k-1)/(k+2). `bound` is applied to the new momentum: a layer's LN_y, nothing for particles.
    """

    k: int
    t: Scalar
    h_x: Scalar
    h_y: Scalar
    damping: Damping
    factor: Scalar | None = None
    bound: Bound = None


class Integrator(ABC):
    """Abstract base. `order` is the order on the damped system, `oracle_calls` the kernel evaluations a step."""

    order: ClassVar[int]
    oracle_calls: ClassVar[int] = 1

    def init(self) -> Any:
        """The history before the first step; None for one-step methods."""
        return None

    @abstractmethod
    def step(self, oracle: Oracle, x: Tensor, y: Tensor, step: Step, history: Any) -> State:
        """(x_next, y_next, history_next)."""
