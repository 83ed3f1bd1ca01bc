"""Several processes under torchrun, with DDP and FSDP2; processes that are killed, told to stop, out of disk."""

import math
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import sympformer as sf
from sympformer.training.config import TrainConfig
from sympformer.training.folder import RunFolder
from sympformer.training.run import train
from tests.training.conftest import MODEL, SIZES, ConfigMaker, assert_same_run, metrics

WORKER = str(Path(__file__).parent / "worker.py")
TORCHRUN = ("-m", "torch.distributed.run", "--nproc-per-node=2", "--standalone")
ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1"}
VARIED = ("softmax-exp-euler", "softmax-etd-ab2", "linear-presymp-euler", "softmax-yuriiformer", "softmax-baseline")
pytestmark = pytest.mark.slow


def run(*command: str) -> str:
    done = subprocess.run([sys.executable, *command], capture_output=True, text=True, env=ENVIRONMENT, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def written(folder: Path, config: TrainConfig, name: str) -> str:
    (folder / f"{name}.yaml").write_text(config.to_yaml())
    return str(folder / f"{name}.yaml")


def figures(folder: Path, name: str) -> list[float]:
    return [record[name] for record in metrics(folder) if name in record]


def back_to(folder: Path, step: int, copy: Path) -> Path:
    """A copy of a run that has come to an earlier checkpoint only."""
    shutil.copytree(folder, copy)
    for later in RunFolder(copy).checkpoints.steps():
        if later > step:
            shutil.rmtree(RunFolder(copy).checkpoints.path(later))
    return copy


# --- two processes, all of their runs in two launches


@pytest.fixture(scope="module")
def place(prepared: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs of one process (one-NAME) and of two (two-NAME), and runs that the others have continued."""
    folder, base = tmp_path_factory.mktemp("two"), {"data": {"folder": str(prepared)}, **SIZES, "log_every": 1}
    base |= {"model": MODEL, "steps": 12, "checkpoint_every": 4, "keep_last": 9}

    def config(out: str, **options: Any) -> TrainConfig:
        return TrainConfig.from_dict(base | options | {"out": str(folder / out)})

    one = {f"one-{n}": config(f"one-{n}", accumulate=n) for n in (1, 4)}
    one |= {f"one-{name}": config(f"one-{name}", model=MODEL | {"variant": name}, accumulate=2) for name in VARIED}
    for name in one:
        train(one[name], bar=False)
    two = {f"two-{s}-{n}": config(f"two-{s}-{n}", accumulate=n, strategy=s) for s in ("ddp", "fsdp2") for n in (1, 4)}
    for i, name in enumerate(VARIED):
        rough = {"precision": "bfloat16", "strategy": ("ddp", "fsdp2")[i % 2], "accumulate": 2}
        two[f"two-{name}"] = config(f"two-{name}", model=MODEL | {"variant": name}, **rough)
    files = [written(folder, two[name], name) for name in two]
    for strategy, step in (("ddp", 4), ("fsdp2", 8)):  # taken on from one process
        copy = back_to(folder / "one-1", step, folder / f"on-{strategy}")
        files.append("+" + written(folder, TrainConfig.from_dict({"out": str(copy), "strategy": strategy}), copy.name))
    run(*TORCHRUN, WORKER, "runs", *files)
    again = []
    for name in ("two-ddp-1", "two-fsdp2-4", "two-softmax-exp-euler", "two-softmax-etd-ab2"):
        copy = back_to(folder / name, 4, folder / f"again-{name}")
        again.append("+" + written(folder, TrainConfig(out=str(copy)), copy.name))
    run(*TORCHRUN, WORKER, "runs", *again)
    return folder


@pytest.mark.parametrize("strategy", ["ddp", "fsdp2"])
@pytest.mark.parametrize("accumulate", [1, 4])
def test_two_processes_are_one(strategy: str, accumulate: int, place: Path) -> None:
    one, two = place / f"one-{accumulate}", place / f"two-{strategy}-{accumulate}"
    for name in ("loss", "validation_loss"):
        assert figures(two, name) == pytest.approx(figures(one, name), abs=1e-5)
    # a gradient's norm moves more with the last bit of a weight than the loss does
    assert figures(two, "gradient_norm") == pytest.approx(figures(one, "gradient_norm"), rel=1e-3)
    layers = [[row["layers"] for row in metrics(folder) if "layers" in row][-1] for folder in (one, two)]
    assert all(a == pytest.approx(b, abs=1e-4) for a, b in zip(*layers, strict=True))
    assert sf.open_model(two).sample("One", 5).startswith("One")  # in this one process


@pytest.mark.parametrize("variant", VARIED)
def test_two_processes_in_bfloat16(variant: str, place: Path) -> None:
    one, two = place / f"one-{variant}", place / f"two-{variant}"
    for name in ("loss", "validation_loss"):
        ours, theirs = figures(two, name), figures(one, name)
        assert all(map(math.isfinite, ours))
        assert ours != theirs, "this was float32"
        assert ours == pytest.approx(theirs, abs=0.1)
    assert figures(two, "loss")[0] == pytest.approx(figures(one, "loss")[0], abs=0.01)  # the same weights still
    assert {str(tensor.dtype) for tensor in sf.open_model(two).model.state_dict().values()} == {"torch.float32"}


@pytest.mark.parametrize("name", ["two-ddp-1", "two-fsdp2-4", "two-softmax-exp-euler", "two-softmax-etd-ab2"])
def test_a_resumed_run_of_two_is_the_same_run(name: str, place: Path) -> None:
    assert_same_run(place / name, place / f"again-{name}")


@pytest.mark.parametrize("strategy", ["ddp", "fsdp2"])
def test_a_run_goes_on_with_another_number_of_processes(strategy: str, place: Path) -> None:
    assert figures(place / f"on-{strategy}", "loss") == pytest.approx(figures(place / "one-1", "loss"), abs=1e-5)


# --- told to stop

# seldom a line of metrics: the processes must not wait for one before they ask each other
STOPPED: dict[str, Any] = {"steps": 24, "log_every": 23, "eval_every": 7, "checkpoint_every": 9}
CASES = {
    "SIGINT to torchrun": ("torchrun", signal.SIGINT),
    "SIGTERM to one worker": ("worker", signal.SIGTERM),
    "SIGTERM to all of them": ("all", signal.SIGTERM),
}


@contextmanager
def torchrun(folder: Path, seconds: float, config: TrainConfig) -> Iterator[subprocess.Popen[bytes]]:
    """`sympformer train` in two processes with steps of `seconds`; what they say goes to folder/said."""
    (folder / "beats").mkdir()
    said = (f"--log-dir={folder / 'said'}", "--redirects=3")
    program = (WORKER, "paced", folder / "beats", seconds, "train", "--config", written(folder, config, "paced"))
    command = [sys.executable, *TORCHRUN, *said, *map(str, program)]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process = subprocess.Popen(command, env=ENVIRONMENT, **quiet)  # type: ignore[call-overload]
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()


def worker_at(folder: Path, rank: int, step: int, process: subprocess.Popen[bytes]) -> int:
    """Wait until a worker has come to a step; its process id."""
    end, file = time.monotonic() + 120, folder / "beats" / str(rank)
    while time.monotonic() < end and process.poll() is None:
        if file.exists() and int(file.read_text().split()[1]) >= step:
            return int(file.read_text().split()[0])
        time.sleep(0.01)
    raise AssertionError(f"worker {rank} did not come to step {step}")


def test_two_processes_stop_together_and_continue(prepared: Path, tmp_path: Path) -> None:
    config = TrainConfig.from_dict({"data": {"folder": str(prepared)}, "model": MODEL} | SIZES | STOPPED)
    files = [written(tmp_path, config.replace(out=str(tmp_path / "whole")), "whole")]
    for case, (to, number) in CASES.items():
        folder = tmp_path / to
        folder.mkdir()
        with torchrun(folder, 0.3, config.replace(out=str(folder / "run"))) as process:
            workers = [worker_at(folder, rank, 4, process) for rank in (0, 1)]
            for pid in {"torchrun": [process.pid], "worker": workers[1:], "all": [*workers, process.pid]}[to]:
                os.kill(pid, number)
            told = time.monotonic()
            assert process.wait(timeout=60) != 0, case
            assert time.monotonic() - told < 25, case  # torchrun would kill after 30
        said = "".join(path.read_text() for path in (folder / "said").rglob("stderr.log"))
        stopped = RunFolder(folder / "run").checkpoints.steps()
        assert len(stopped) == 1, case
        assert 5 <= stopped[0] < 9, case  # before the first regular one
        assert said.count(f"stopped at step {stopped[0]} of 24, saved") == 1, said
        assert "Traceback" not in said, said
        assert not list((folder / "run" / "checkpoints").glob(".*")), case
        files.append("+" + written(tmp_path, TrainConfig(out=str(folder / "run")), to))
    run(*TORCHRUN, WORKER, "runs", *files)
    for to, _ in CASES.values():
        assert_same_run(tmp_path / "whole", tmp_path / to / "run")


# --- killed, and out of disk


def test_killed_at_random_moments(make_config: ConfigMaker, tmp_path: Path) -> None:
    options = {"steps": 240, "log_every": 2, "eval_every": 7, "checkpoint_every": 3, "sample_every": 20}
    whole = train(make_config(out=str(tmp_path / "whole"), **options)).folder
    config = make_config(out=str(tmp_path / "killed"), **options)
    run(WORKER, "killed", written(tmp_path, config, "killed"), "6")
    assert_same_run(whole, tmp_path / "killed")


FULL_DISK = """
mount -t tmpfs -o size=1200k tmpfs "$1" || exit 77
"$2" "$3" runs "$4"; code=$?
ls "$1/run/checkpoints"
mount -o remount,size=64m "$1"
"$2" "$3" runs "+$4" && cp -r "$1/run" "$5"
exit $code
"""


def test_a_disk_that_fills_up(make_config: ConfigMaker, tmp_path: Path) -> None:
    """On a small tmpfs: one sentence, a usable checkpoint, and after making room the same run as ever."""
    options = {"steps": 40, "checkpoint_every": 2, "keep_last": 30}
    train(make_config(out=str(tmp_path / "whole"), **options))
    (tmp_path / "disk").mkdir()
    file = written(tmp_path, make_config(out=str(tmp_path / "disk" / "run"), **options), "full")
    if shutil.which("unshare") is None:
        pytest.skip("needs the command unshare")
    places = [str(tmp_path / "disk"), sys.executable, WORKER, file, str(tmp_path / "after")]
    command = ["unshare", "-r", "-m", "sh", "-c", FULL_DISK, "sh", *places]
    done = subprocess.run(command, capture_output=True, text=True, env=ENVIRONMENT, timeout=200)
    if done.returncode == 77 or "unshare" in done.stderr:
        pytest.skip("may not mount a tmpfs here")
    assert done.returncode == 1, done.stderr[-3000:]  # the error, as Python shows it
    assert "InputError: the disk of" in done.stderr
    assert ".sympformer-" not in done.stdout
    assert_same_run(tmp_path / "whole", tmp_path / "after")
