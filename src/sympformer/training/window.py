"""The losses and gradient norms since the last line of metrics, read from the device as rarely as possible."""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from sympformer.errors import DivergenceError
from sympformer.training.engine import Engine

NAMES = ("loss", "gradient_norm", "scalar_gradient_norm")
SKIPS_ALLOWED = 20  # float16: gradients that overflow are skipped while the scale adapts, but not for ever


class Window:
    """Collects one row of figures a step; `read` brings them to the CPU and stops the run if one is not finite."""

    def __init__(self, rows: list[list[float]], scaled: bool) -> None:
        """rows: those a checkpoint kept. scaled: float16, whose gradients may overflow now and then."""
        self.rows = rows
        self._scaled, self._waiting, self._skipped = scaled, list[Tensor](), 0

    def add(self, loss: Tensor, norm: Tensor, scalar_norm: Tensor) -> None:
        """Take a step's figures, still on the device."""
        self._waiting.append(torch.stack((loss, norm, scalar_norm)))

    def read(self, step: int, engine: Engine, advice: Callable[[], str]) -> None:
        """Bring the figures over, averaged over processes. step: steps done. Raises DivergenceError."""
        if not self._waiting:
            return
        figures = engine.mean(torch.stack(self._waiting))
        first = step - len(self._waiting) + 1
        self._waiting = []
        for place, row in enumerate(figures.tolist()):
            self._check(first + place, row, advice)
            self.rows.append(row)

    def mean_and_clear(self) -> dict[str, float]:
        """The means since the last time."""
        means = {
            name: sum(column) / len(column) for name, column in zip(NAMES, zip(*self.rows, strict=True), strict=True)
        }
        self.rows.clear()
        return means

    def _check(self, step: int, row: list[float], advice: Callable[[], str]) -> None:
        bad = [name for name, value in zip(NAMES, row, strict=True) if not math.isfinite(value)]
        if not bad:
            self._skipped = 0
            return
        if self._scaled and "loss" not in bad:
            self._skipped += 1
            row[1:] = [value if math.isfinite(value) else 0.0 for value in row[1:]]
            if self._skipped <= SKIPS_ALLOWED:
                return
        what = "loss" if "loss" in bad else "gradient"
        raise DivergenceError(f"the {what} is not finite at step {step}; {advice()}")
