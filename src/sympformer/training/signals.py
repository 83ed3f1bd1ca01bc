"""Ctrl-C and SIGTERM as a wish: the step in hand is finished and saved. A second one stops at once."""

import signal
import threading
import time
from types import FrameType, TracebackType
from typing import Any

from sympformer.training.engine import Engine

WATCHED = (signal.SIGINT, signal.SIGTERM)
ASK_SECONDS, MOST_STEPS = 1.0, 64  # between two questions among processes; torchrun kills 30 s after its signal
ECHO_SECONDS = 2.0  # a launcher passes on a signal that its processes may have had already


class StopSignal:
    """`with StopSignal() as stop:` and then look at `stop.received` between steps."""

    def __init__(self, echo: float = 0.0) -> None:
        """echo: seconds after a signal in which another one is the same wish."""
        self.received: int | None = None
        self._echo, self._since = echo, 0.0
        self._before: dict[int, Any] = {}

    def __enter__(self) -> "StopSignal":
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._note) for number in WATCHED}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._restore()

    def _note(self, number: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        if self.received is None:
            self.received, self._since = number, now
        elif now - self._since >= self._echo:
            self._restore()
            signal.raise_signal(number)

    def _restore(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before = {}


class SharedStop:
    """A stop that all processes agree on. They ask each other about once a second, however long a step takes."""

    def __init__(self, engine: Engine, stop: StopSignal, step: int) -> None:
        """step: steps done."""
        self._engine, self._stop = engine, stop
        self._asked = (time.monotonic(), step)
        self._next = step + 1

    def received(self, step: int) -> int | None:
        """The signal that any process received, the same in all. To be called after every step."""
        if self._engine.world == 1:
            return self._stop.received
        if step < self._next:
            return None
        now, (since, first) = time.monotonic(), self._asked
        # the first process's clock speaks for all, else they would not ask at the same step
        pace = (now - since) / (step - first) if self._engine.first else 0.0
        number, pace = self._engine.greatest(float(self._stop.received or 0), pace)
        self._asked = (now, step)
        self._next = step + max(1, min(MOST_STEPS, int(ASK_SECONDS / max(pace, 1e-9))))
        return int(number) or None
