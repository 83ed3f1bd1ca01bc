"""What a run writes between checkpoints: metrics, samples, and TensorBoard's files if asked."""

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from sympformer.errors import missing_extra
from sympformer.training.config import TrainConfig
from sympformer.training.metrics import MetricsFiles, keep_records
from sympformer.training.run import SAMPLES


class RunFiles:
    """All of them, opened for a run that has done `step` steps."""

    def __init__(self, folder: Path, config: TrainConfig, columns: list[str], step: int) -> None:
        self.metrics = MetricsFiles(folder, columns, step)
        self.samples = SamplesFile(folder / SAMPLES, step)
        self.board = board(folder, step) if config.tensorboard else None

    def write(self, record: dict[str, Any]) -> None:
        self.metrics.write(record)
        if self.board is not None:
            for name, value in record.items():
                if isinstance(value, float):
                    self.board.add_scalar(name, value, record["step"])

    def close(self) -> None:
        self.metrics.close()
        if self.board is not None:
            self.board.close()


def board(folder: Path, step: int) -> Any:
    """TensorBoard's writer; what an earlier session wrote beyond `step` is hidden."""
    require_tensorboard()
    from torch.utils.tensorboard import SummaryWriter

    return SummaryWriter(str(folder / "tensorboard"), purge_step=step + 1)


def require_tensorboard() -> None:
    """Raise where TensorBoard is asked for and not installed."""
    if find_spec("tensorboard") is None:
        raise missing_extra("tensorboard = True", "TensorBoard", "tensorboard")


class SamplesFile:
    """Appends samples; those of steps that a resumed run makes again are dropped at the start."""

    def __init__(self, file: Path, step: int) -> None:
        self._file = file
        self._steps = {record["step"] for record in keep_records(file, step)}

    def write(self, step: int, prompt: str, text: str) -> None:
        """Append a sample, unless that of the step is there: a finished run may be taken up again."""
        if step in self._steps:
            return
        self._steps.add(step)
        with self._file.open("a", encoding="utf-8") as out:
            out.write(json.dumps({"step": step, "prompt": prompt, "text": text}) + "\n")
