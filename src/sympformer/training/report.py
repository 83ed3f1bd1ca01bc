"""What a run writes and says on its way: metrics, samples, a log, a progress line, TensorBoard's files if asked."""

import json
import os
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TextIO

from sympformer.errors import missing_extra
from sympformer.files import write
from sympformer.progress import Bar
from sympformer.training.folder import LOG, METRICS, SAMPLES, read_records


class Reporter:
    """The first process's; that of the others (silent) says and writes nothing."""

    def __init__(self, folder: Path, total: int, silent: bool = False, bar: bool | None = None) -> None:
        """total: steps. bar: show a progress line; None where stderr is a terminal."""
        self.folder, self.silent = folder, silent
        self._files: dict[str, TextIO] = {} if silent else {LOG: (folder / LOG).open("a", encoding="utf-8")}
        self._samples: set[int] = set()
        self._board: Any = None
        self._bar = Bar("step", total, False if silent else bar)

    def start(self, step: int, tensorboard: bool) -> None:
        """Go on with the records of a run that has done `step` steps; later ones, from before a crash, come again."""
        if self.silent:
            return
        for name in (METRICS, SAMPLES):
            kept = [record for record in read_records(self.folder / name) if record["step"] <= step]
            write(self.folder / name, "".join(json.dumps(record) + "\n" for record in kept))
            self._files[name] = (self.folder / name).open("a", encoding="utf-8")
        self._samples = {record["step"] for record in kept}
        if tensorboard:
            from torch.utils.tensorboard import SummaryWriter

            # what an earlier session wrote beyond the step is hidden
            self._board = SummaryWriter(str(self.folder / "tensorboard"), purge_step=step + 1)

    def say(self, text: str) -> None:
        """A line for the reader and the log."""
        if self.silent:
            return
        self._bar.say(text)
        self.note(text)

    def note(self, text: str) -> None:
        """A line for the log only."""
        self._append(LOG, f"{time.strftime('%Y-%m-%d %H:%M:%S')} {text}\n")

    def update(self, step: int, loss: float, best: float | None, speed: float) -> None:
        """Move the progress line."""
        if not self.silent:
            so_far = "" if best is None else f", best {best:.3f}"
            self._bar.update(step, f"loss {loss:.3f}{so_far}, {speed:,.0f} tok/s")

    def metrics(self, record: dict[str, Any]) -> None:
        """A line of metrics."""
        self._append(METRICS, json.dumps(record) + "\n")
        for name, value in record.items() if self._board is not None else ():
            if isinstance(value, float):
                self._board.add_scalar(name, value, record["step"])

    def sample(self, step: int, prompt: str, text: str) -> None:
        """A sample, unless that of the step is there: a finished run may be taken up again."""
        if step not in self._samples:
            self._samples.add(step)
            self._append(SAMPLES, json.dumps({"step": step, "prompt": prompt, "text": text}) + "\n")

    def sync(self) -> None:
        """Make sure that the metrics are on disk before a checkpoint that stands on them."""
        if METRICS in self._files:
            os.fsync(self._files[METRICS].fileno())

    def _append(self, name: str, line: str) -> None:
        if (file := self._files.get(name)) is not None:
            file.write(line)
            file.flush()

    def close(self) -> None:
        """Take the progress line away and close the files."""
        self._bar.__exit__()
        if self._board is not None:
            self._board.close()
        for file in self._files.values():
            file.close()


def require_tensorboard() -> None:
    """Raise where TensorBoard is asked for and not installed."""
    if find_spec("tensorboard") is None:
        raise missing_extra("tensorboard = True", "TensorBoard", "tensorboard")
