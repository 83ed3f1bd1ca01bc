"""Several processes under torchrun, with DDP and FSDP2; processes that are killed, told to stop, out of disk."""

import math
import os
import shutil
import signal
import subprocess
import sys
import time
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
AGAIN = ("two-ddp-1", "two-fsdp2-4", "two-softmax-exp-euler", "two-softmax-etd-ab2")
TOLD = ("worker", "torchrun/run", "all/run")
# seldom a line of metrics: the processes must not wait for one before they ask each other
STOPPED: dict[str, Any] = {"steps": 14, "log_every": 13, "eval_every": 7, "checkpoint_every": 9}
pytestmark = pytest.mark.slow


def run(*command: str) -> str:
    done = subprocess.run([sys.executable, *command], capture_output=True, text=True, env=ENVIRONMENT, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stderr


def written(config: TrainConfig, end: str = "") -> str:
    """A config as a file beside its run."""
    file = Path(f"{config.out}{end}.yaml")
    file.parent.mkdir(exist_ok=True)
    file.write_text(config.to_yaml())
    return str(file)


def figures(folder: Path, name: str) -> list[float]:
    return [record[name] for record in metrics(folder) if name in record]


# --- two processes, all of their runs in one launch, besides those that a signal ends


@pytest.fixture(scope="module")
def place(prepared: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs of one process (one-NAME) and of two (two-NAME), those that went on from others, those that were stopped."""
    folder = tmp_path_factory.mktemp("two")
    base = {"data": {"folder": str(prepared)}, **SIZES, "log_every": 1, "keep_last": 9}
    base |= {"model": MODEL, "steps": 6, "eval_every": 3, "checkpoint_every": 2}

    def config(out: str, **options: Any) -> TrainConfig:
        return TrainConfig.from_dict(base | options | {"out": str(folder / out)})

    def continued(run: str, step: int, copy: str, **options: Any) -> list[str]:
        out = str(folder / copy)
        return [f"={folder / run}={step}={out}", "+" + written(TrainConfig(out=out, **options))]

    one = [config(f"one-{n}", accumulate=n) for n in (1, 4)]
    one += [config(f"one-{name}", model=MODEL | {"variant": name}, accumulate=2) for name in VARIED]
    for each in one:
        train(each, bar=False)
    two = [config(f"two-{s}-{n}", accumulate=n, strategy=s) for s in ("ddp", "fsdp2") for n in (1, 4)]
    for i, name in enumerate(VARIED):
        rough = {"precision": "bfloat16", "strategy": ("ddp", "fsdp2")[i % 2], "accumulate": 2}
        two.append(config(f"two-{name}", model=MODEL | {"variant": name}, **rough))
    words = list(map(written, two))
    words += continued("one-1", 2, "on-ddp", strategy="ddp") + continued("one-1", 4, "on-fsdp2", strategy="fsdp2")
    words += [word for name in AGAIN for word in continued(name, 2, f"again-{name}")]
    words += [written(config("whole", **STOPPED)), "!" + written(config("worker", **STOPPED))]
    for name, number in (("torchrun", signal.SIGINT), ("all", signal.SIGTERM)):
        stop(config(f"{name}/run", **STOPPED), number, everybody=name == "all")
    words += [
        "+" + written(TrainConfig(out=str(folder / run)), "-again") for run in ("worker", "torchrun/run", "all/run")
    ]
    said = run(*TORCHRUN, WORKER, "runs", *words)
    assert said.count("of 14, saved") == 1  # the first process says it for both
    return folder


def stop(config: TrainConfig, number: int, everybody: bool) -> None:
    """Two processes with slow steps, told to stop: torchrun alone, or all of them."""
    folder = Path(str(config.out)).parent
    file, beats = written(config), folder / "beats"
    beats.mkdir()
    program = (WORKER, "paced", beats, 0.3, "train", "--config", file)
    command = [sys.executable, *TORCHRUN, f"--log-dir={folder / 'said'}", "--redirects=3", *map(str, program)]
    with subprocess.Popen(command, env=ENVIRONMENT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            workers = [worker_at(beats / str(rank), 4, process) for rank in (0, 1)]
            for pid in [*(workers if everybody else ()), process.pid]:
                os.kill(pid, number)
            told = time.monotonic()
            assert process.wait(timeout=60) != 0
            assert time.monotonic() - told < 25  # torchrun would kill after 30
        finally:
            process.kill()
    said = "".join(path.read_text() for path in (folder / "said").rglob("stderr.log"))
    (stopped,) = RunFolder(folder / "run").checkpoints.steps()
    assert 5 <= stopped < 9  # before the first regular one
    assert said.count(f"stopped at step {stopped} of 14, saved") == 1, said
    assert "Traceback" not in said, said
    assert not list((folder / "run" / "checkpoints").glob(".*"))


def worker_at(beat: Path, step: int, process: subprocess.Popen[bytes]) -> int:
    """Wait until a worker has come to a step; its process id."""
    end = time.monotonic() + 120
    while time.monotonic() < end and process.poll() is None:
        if beat.exists() and int(beat.read_text().split()[1]) >= step:
            return int(beat.read_text().split()[0])
        time.sleep(0.01)
    raise AssertionError(f"worker {beat.name} did not come to step {step}")


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


@pytest.mark.parametrize("name", AGAIN)
def test_a_resumed_run_of_two_is_the_same_run(name: str, place: Path) -> None:
    assert_same_run(place / name, place / f"again-{name}")


@pytest.mark.parametrize("strategy", ["ddp", "fsdp2"])
def test_a_run_goes_on_with_another_number_of_processes(strategy: str, place: Path) -> None:
    assert figures(place / f"on-{strategy}", "loss") == pytest.approx(figures(place / "one-1", "loss"), abs=1e-5)


@pytest.mark.parametrize("run", TOLD)
def test_two_processes_stop_together_and_continue(run: str, place: Path) -> None:
    """SIGTERM to one worker, SIGINT to torchrun, SIGTERM to all of them."""
    assert_same_run(place / "whole", place / run)


# --- killed, and out of disk


def test_killed_at_random_moments(make_config: ConfigMaker, tmp_path: Path) -> None:
    options = {"steps": 240, "log_every": 2, "eval_every": 7, "checkpoint_every": 3, "sample_every": 20}
    whole = train(make_config(out=str(tmp_path / "whole"), **options)).folder
    run(WORKER, "killed", written(make_config(out=str(tmp_path / "killed"), **options)), "6")
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
    if shutil.which("unshare") is None:
        pytest.skip("needs the command unshare")
    options = {"steps": 40, "checkpoint_every": 2, "keep_last": 30}
    train(make_config(out=str(tmp_path / "whole"), **options))
    file = tmp_path / "full.yaml"
    file.write_text(make_config(out=str(tmp_path / "disk" / "run"), **options).to_yaml())
    (tmp_path / "disk").mkdir()
    places = map(str, (tmp_path / "disk", sys.executable, WORKER, file, tmp_path / "after"))
    command = ["unshare", "-r", "-m", "sh", "-c", FULL_DISK, "sh", *places]
    done = subprocess.run(command, capture_output=True, text=True, env=ENVIRONMENT, timeout=200)
    if done.returncode == 77 or "unshare" in done.stderr:
        pytest.skip("may not mount a tmpfs here")
    assert done.returncode == 1, done.stderr[-3000:]  # the error, as Python shows it
    assert "InputError: the disk of" in done.stderr
    assert ".sympformer-" not in done.stdout
    assert_same_run(tmp_path / "whole", tmp_path / "after")
