"""What the system, foreign files and odd command lines do: one sentence and an exit code, never a traceback."""

import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sympformer import cli, data
from sympformer.training import TrainConfig, run_training
from tests.training.conftest import MODEL


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two steps."""
    folder = tmp_path_factory.mktemp("system")
    prepared = data.prepare("storybook:60", "byte", folder / "bytes", validation=0.2).folder
    sizes = {"steps": 2, "batch_size": 2, "eval_tokens": 64, "sample_tokens": 4}
    config = {"model": MODEL, "data": {"folder": str(prepared)}, "out": str(folder / "run")}
    return run_training(TrainConfig.from_dict(config | sizes), bar=False).folder


def error_of(capsys: pytest.CaptureFixture[str], *args: str) -> str:
    capsys.readouterr()
    assert cli.main(args) == 2
    said = capsys.readouterr().err
    assert said.startswith("sympformer: error: ")
    assert said.count("\n") == 1
    return said


# --- the system


def test_whoever_reads_us_may_leave(run: Path) -> None:
    command = f"{sys.executable} -m sympformer sample {run} --n 2000 --max_new_tokens 2 | head -n 1"
    done = subprocess.run(["bash", "-c", f"set -o pipefail; {command}"], capture_output=True, text=True, timeout=120)
    assert done.stderr == ""
    assert done.returncode == 141


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (PermissionError(13, "Permission denied", "/x/log.txt"), "Permission denied (/x/log.txt)"),
        (OSError(28, "No space left on device"), "No space left on device"),
        (OSError(24, "Too many open files"), "Too many open files"),
        (MemoryError(), "not enough memory"),
        (RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: 9 bytes"), "not enough memory"),
        (ImportError("libtorch.so: failed to map segment from shared object"), "not enough memory"),
    ],
)
def test_what_the_system_refuses(
    error: Exception, message: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(command: str) -> Any:
        raise error

    monkeypatch.setattr(cli, "load", fail)
    assert message in error_of(capsys, "train")


def test_bugs_keep_their_tracebacks(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(command: str) -> Any:
        raise RuntimeError("a bug")

    monkeypatch.setattr(cli, "load", fail)
    with pytest.raises(RuntimeError, match="a bug"):
        cli.main(["train"])


def test_too_few_descriptors(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken = max(map(int, os.listdir("/proc/self/fd")))
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 3), hard))
    try:
        code = cli.main(["sample", str(run)])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert (code, taken > 2) == (2, True)
    assert "Too many open files" in capsys.readouterr().err


def test_devices_in_a_foreign_folder(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing is read from them, wherever they are."""
    import shutil

    prepared, copy = run.parent / "bytes", tmp_path / "bytes"
    for name in (path.name for path in prepared.iterdir()):
        shutil.copytree(prepared, copy)
        (copy / name).unlink()
        (copy / name).symlink_to("/dev/zero")
        error_of(capsys, "data", "info", str(copy), "--check=true")
        shutil.rmtree(copy)
    error_of(
        capsys, "data", "prepare", "--corpus=storybook:30", "--tokenizer=gpt2:/dev/zero", f"--out={tmp_path / 'x'}"
    )
    (tmp_path / "hf").mkdir()
    (tmp_path / "hf" / "config.json").write_text('{"model_type": "sympformer"}')
    (tmp_path / "hf" / "tokenizer.json").symlink_to("/dev/zero")
    for command in (["import", str(tmp_path / "hf"), str(tmp_path / "x")], ["audit", str(tmp_path / "hf")]):
        assert "not a regular file" in error_of(capsys, *command)
