"""Stop signals among several processes: torchrun or one worker is told to stop; the run is saved and goes on."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from sympformer.training import TrainConfig
from sympformer.training.checkpoint import CheckpointFolder
from sympformer.training.signals import MOST_STEPS, SharedStop, StopSignal
from tests.training.conftest import MODEL
from tests.training.test_processes import HERE, two_processes
from tests.training.test_runs import assert_same_run

TORCHRUN = (sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", "--standalone")
# seldom a line of metrics: the processes must not wait for one before they ask each other
OPTIONS: dict[str, Any] = {"steps": 24, "log_every": 23, "eval_every": 7, "checkpoint_every": 9}


@contextmanager
def torchrun(folder: Path, seconds: float, config: TrainConfig) -> Iterator[subprocess.Popen[bytes]]:
    """`sympformer train` in two processes with steps of `seconds`; what they say goes to folder/said."""
    (folder / "beats").mkdir()
    (folder / "paced.yaml").write_text(config.to_yaml())
    said = (f"--log-dir={folder / 'said'}", "--redirects=3")
    program = (HERE / "paced.py", folder / "beats", seconds, "train", "--config", folder / "paced.yaml")
    command = [*TORCHRUN, *said, *map(str, program)]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()


def worker_at(folder: Path, rank: int, step: int, process: subprocess.Popen[bytes]) -> int:
    """Wait until a worker has come to a step; its process id."""
    end = time.monotonic() + 120
    while time.monotonic() < end and process.poll() is None:
        if (folder / "beats" / str(rank)).exists():
            pid, at = map(int, (folder / "beats" / str(rank)).read_text().split())
            if at >= step:
                return pid
        time.sleep(0.01)
    raise AssertionError(f"worker {rank} did not come to step {step}")


def what_they_said(folder: Path, name: str) -> list[str]:
    return [path.read_text() for path in sorted((folder / "said").rglob(name))]


@pytest.fixture(scope="module")
def whole(prepared: Path, tmp_path_factory: pytest.TempPathFactory) -> TrainConfig:
    """The run of two processes that nobody stops."""
    folder = tmp_path_factory.mktemp("whole")
    rest = {"batch_size": 4, "warm_up": 2, "eval_tokens": 256, "sample_tokens": 5, "out": str(folder / "run")}
    config = TrainConfig.from_dict({"data": {"folder": str(prepared)}, "model": MODEL} | rest | OPTIONS)
    two_processes(config, folder)
    return config


CASES = {
    "SIGTERM to torchrun": ("torchrun", signal.SIGTERM),
    "SIGINT to torchrun": ("torchrun", signal.SIGINT),
    "SIGTERM to one worker": ("worker", signal.SIGTERM),
    "SIGTERM to all of them": ("all", signal.SIGTERM),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_two_processes_stop_together_and_continue(case: str, whole: TrainConfig, tmp_path: Path) -> None:
    to, number = CASES[case]
    config = whole.replace(out=str(tmp_path / "run"))
    with torchrun(tmp_path, 0.3, config) as process:
        workers = [worker_at(tmp_path, rank, 4, process) for rank in (0, 1)]
        for pid in {"torchrun": [process.pid], "worker": workers[1:], "all": [*workers, process.pid]}[to]:
            os.kill(pid, number)
        told = time.monotonic()
        assert process.wait(timeout=60) != 0
        assert time.monotonic() - told < 15  # torchrun would kill after 30
    said = "".join(what_they_said(tmp_path, "stderr.log"))
    assert "Traceback" not in said
    stopped = CheckpointFolder(tmp_path / "run" / "checkpoints").steps("step")
    assert len(stopped) == 1
    assert 5 <= stopped[0] < 9  # before the first regular one
    assert said.count(f"stopped at step {stopped[0]} of 24, saved") == 1
    assert not list((tmp_path / "run" / "checkpoints").glob(".*"))
    resume = ("-m", "sympformer", "train", "--resume", "--out", str(tmp_path / "run"))
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run([*TORCHRUN, *resume], env=environment, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr[-3000:]
    assert f"continuing at step {stopped[0]}" in done.stderr
    assert_same_run(Path(str(whole.out)), tmp_path / "run")


# --- the parts


class Twins:
    """Stands for the engine of one of two processes; `other` is what the other one says."""

    world = 2

    def __init__(self, rank: int, other: tuple[float, float] = (0.0, 0.0)) -> None:
        self.first, self.other, self.asked = rank == 0, other, 0

    def greatest(self, *values: float) -> list[float]:
        self.asked += 1
        return list(map(max, values, self.other))


@pytest.mark.parametrize(("seconds", "steps", "asked"), [(5.0, 6, 6), (0.5, 8, 4), (0.0001, 3 * MOST_STEPS + 1, 4)])
def test_processes_ask_each_other_once_a_second(
    seconds: float, steps: int, asked: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    monkeypatch.setattr("sympformer.training.signals.time.monotonic", lambda: now[0])
    twins: Any = Twins(0)
    shared = SharedStop(twins, StopSignal(), 0)
    for step in range(1, steps + 1):
        now[0] += seconds
        assert shared.received(step) is None
    assert twins.asked == asked


def test_a_process_that_was_not_told_stops_too() -> None:
    twins: Any = Twins(1, (float(signal.SIGINT), 0.1))
    assert SharedStop(twins, StopSignal(), 3).received(4) == signal.SIGINT


def test_a_second_signal_stops_at_once_but_an_echo_does_not() -> None:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a program in the background may ignore it
    with StopSignal(echo=60.0) as stop:
        for _ in range(3):
            os.kill(os.getpid(), signal.SIGINT)
    assert stop.received == signal.SIGINT
    with StopSignal() as stop:
        os.kill(os.getpid(), signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    assert signal.signal(signal.SIGINT, before) is signal.default_int_handler
