"""Several processes: torchrun with DDP and FSDP2, and a process that is killed again and again."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from sympformer.training import TrainConfig, load_run, run_training
from sympformer.training.metrics import read_metrics
from tests.training.conftest import ConfigMaker
from tests.training.test_runs import assert_same_run

HERE = Path(__file__).parent
pytestmark = pytest.mark.slow


def run(*command: str) -> str:
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, *command], capture_output=True, text=True, env=environment, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def two_processes(config: TrainConfig, folder: Path, *words: str) -> None:
    file = folder / "config.yaml"
    file.write_text(config.to_yaml())
    run("-m", "torch.distributed.run", "--nproc-per-node=2", "--standalone", str(HERE / "twin.py"), str(file), *words)


def figures(folder: str | Path | None, name: str) -> list[float]:
    return [record[name] for record in read_metrics(Path(str(folder))) if name in record]


@pytest.mark.parametrize("strategy", ["ddp", "fsdp2"])
@pytest.mark.parametrize("accumulate", [1, 4])
def test_two_processes_are_one(strategy: str, accumulate: int, make_config: ConfigMaker, tmp_path: Path) -> None:
    one = make_config(steps=20, log_every=1, accumulate=accumulate, out=str(tmp_path / "one"))
    run_training(one)
    two = TrainConfig.from_dict(one.to_dict() | {"out": str(tmp_path / "two"), "strategy": strategy})
    two_processes(two, tmp_path)
    for name in ("loss", "validation_loss"):
        assert figures(two.out, name) == pytest.approx(figures(one.out, name), abs=1e-5)
    # a gradient's norm moves more with the last bit of a weight than the loss does
    assert figures(two.out, "gradient_norm") == pytest.approx(figures(one.out, "gradient_norm"), rel=1e-3)
    assert load_run(str(two.out)).sample("One", 5).startswith("One")  # in this one process


def test_two_processes_resume(make_config: ConfigMaker, tmp_path: Path) -> None:
    """A run of one process continued by two that split the model, then by one again, has the same losses."""
    whole = make_config(steps=12, log_every=1, checkpoint_every=4, keep_last=9, out=str(tmp_path / "whole"))
    run_training(whole)
    for step, strategy in ((8, "fsdp2"), (4, "ddp")):
        copy = tmp_path / f"copy-{step}"
        subprocess.run(["cp", "-r", str(tmp_path / "whole"), str(copy)], check=True)
        for later in range(step + 1, 13):
            for path in (copy / "checkpoints").glob(f"step-{later:08d}"):
                path.rename(copy / f"hidden-{later}")
        config = TrainConfig.from_dict(whole.to_dict() | {"out": str(copy), "strategy": strategy})
        two_processes(config, tmp_path, "resume")
        assert figures(copy, "loss") == pytest.approx(figures(whole.out, "loss"), abs=1e-5)


def test_killed_at_twenty_random_moments(make_config: ConfigMaker, tmp_path: Path) -> None:
    options = {"steps": 700, "log_every": 2, "eval_every": 7, "checkpoint_every": 3, "sample_every": 20}
    whole = make_config(out=str(tmp_path / "whole"), **options)
    run_training(whole)
    killed = make_config(out=str(tmp_path / "killed"), **options)
    (tmp_path / "config.yaml").write_text(killed.to_yaml())
    kills, _ = run(str(HERE / "crash.py"), str(tmp_path / "config.yaml"), "20", "0").split()
    assert int(kills) == 20
    assert_same_run(tmp_path / "whole", tmp_path / "killed")


FULL_DISK = """
mount -t tmpfs -o size=1200k tmpfs "$1" || exit 77
"$2" "$3/twin.py" "$4"; code=$?
ls "$1/run/checkpoints"
mount -o remount,size=64m "$1"
"$2" "$3/twin.py" "$4" resume && cp -r "$1/run" "$5"
exit $code
"""


def test_a_disk_that_fills_up(make_config: ConfigMaker, tmp_path: Path) -> None:
    """On a small tmpfs: one sentence, a usable checkpoint, and after making room the same run as ever."""
    options = {"steps": 40, "checkpoint_every": 2, "keep_last": 30}
    run_training(make_config(out=str(tmp_path / "whole"), **options))
    (tmp_path / "disk").mkdir()
    (tmp_path / "config.yaml").write_text(make_config(out=str(tmp_path / "disk" / "run"), **options).to_yaml())
    places = [tmp_path / "disk", sys.executable, HERE, tmp_path / "config.yaml", tmp_path / "after"]
    if shutil.which("unshare") is None:
        pytest.skip("needs the command unshare")
    command = ["unshare", "-r", "-m", "sh", "-c", FULL_DISK, "sh", *map(str, places)]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=200)
    if done.returncode == 77 or "unshare" in done.stderr:
        pytest.skip("may not mount a tmpfs here")
    assert done.returncode == 1, done.stderr[-3000:]  # the error, as Python shows it
    assert "InputError: the disk of" in done.stderr
    assert ".sympformer-" not in done.stdout
    assert_same_run(tmp_path / "whole", tmp_path / "after")
