"""Good checkpoints stay, a model of no numbers is silent, and two processes do not write into one folder."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import sympformer as sf
from sympformer.errors import DivergenceError, InputError
from sympformer.training.checkpoint import Checkpoints, read_checkpoint
from sympformer.training.config import TrainConfig
from sympformer.training.folder import RunFolder
from sympformer.training.run import train
from tests.training.conftest import ConfigMaker, assert_same_run, flip, weights


def resumed(run: Path) -> Path:
    return train(TrainConfig(out=str(run)), resume=True, bar=False).folder


@pytest.mark.parametrize("keep_last", [1, 3])
def test_damaged_checkpoints_do_not_drive_out_good_ones(
    keep_last: int, make_config: ConfigMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = make_config(checkpoint_every=1, keep_last=keep_last)
    run = train(config.replace(keep_last=8)).folder
    for step in (5, 6, 7, 8):
        flip(run / "checkpoints" / f"step-{step:08d}" / "model.safetensors")
    kept: list[list[int]] = []
    original = Checkpoints.save

    def save(self: Checkpoints, *args: Any) -> None:
        original(self, *args)
        kept.append([step for step in self.steps() if is_good(self.path(step))])

    monkeypatch.setattr(Checkpoints, "save", save)
    train(config, resume=True)
    assert kept == [list(range(step + 1 - keep_last, step + 1)) for step in (5, 6, 7, 8)]


def is_good(folder: Path) -> bool:
    try:
        return bool(read_checkpoint(folder))
    except InputError:
        return False


def test_a_model_of_no_numbers_does_not_speak(finished: Path) -> None:
    run = sf.open_model(finished)
    with torch.no_grad():
        run.model.tokens.weight.fill_(float("nan"))
    with pytest.raises(DivergenceError, match="not finite"):
        run.sample("A")


# --- two processes and one folder

# A command after "@" waits for a checkpoint of the first, which is killed when it has ended.
AT_ONCE = """
import glob, os, signal, sys, time, torch
torch.set_num_threads(1)
from sympformer import cli
children = []
for i, words in enumerate(sys.argv[1].split("|")):
    while words.startswith("@") and not glob.glob("run/checkpoints/step-*"):
        time.sleep(0.01)
    if (pid := os.fork()) == 0:
        os.dup2(os.open(f"said{i}", os.O_WRONLY | os.O_CREAT), 2)
        os._exit(cli.main(words.strip("@").split()))
    children.append(pid)
if "@" in sys.argv[1]:
    print(os.waitstatus_to_exitcode(os.waitpid(children.pop(), 0)[1]))
    os.kill(children[0], signal.SIGKILL)
for pid in children:
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""


def at_once(folder: Path, *commands: str) -> tuple[list[int], str]:
    """Run commands of the command line at the same time: exit codes, and what was said."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "SYMPFORMER_CACHE": str(folder / "cache")}
    command = [sys.executable, "-c", AT_ONCE, "|".join(commands)]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    said = "".join(file.read_text() for file in folder.glob("said*"))
    assert "Traceback" not in said
    return [int(line) for line in done.stdout.splitlines() if line.lstrip("-").isdigit()], said


def command(prepared: Path, seed: int, *more: str) -> str:
    options = "--steps 30 --batch_size 2 --eval_tokens 64 --sample_tokens 4 --checkpoint_every 2 --eval_every 5"
    model = "--model.n_layer 1 --model.n_head 2 --model.d_model 16 --model.block_size 16"
    return f"train --data.folder {prepared} {options} {model} --seed {seed} {' '.join(more)}"


def test_two_runs_into_one_folder_and_two_without_a_name(prepared: Path, tmp_path: Path) -> None:
    codes, said = at_once(tmp_path, *(command(prepared, i, "--out one" * (i < 3)) for i in (1, 2, 3, 4)))
    assert (sorted(codes[:2]), codes[2:]) == ([0, 2], [0, 0])
    assert any(words in said for words in ("in use by now", "holds a run", "is left alone"))
    run = RunFolder.open(tmp_path / "one")
    assert run.checkpoints.steps()[-1] == 30
    alone = train(run.config.replace(out=str(tmp_path / "alone")), bar=False).folder
    assert_same_run(alone, run.path)
    names = sorted(path.name for path in (tmp_path / "runs").iterdir() if not path.name.startswith("."))
    assert names == [f"softmax-exp-euler-bytes{end}" for end in ("", "-2")]
    assert {RunFolder(tmp_path / "runs" / name).config.seed for name in names} == {3, 4}


def test_a_run_that_is_alive_is_not_resumed(prepared: Path, copied: Path, tmp_path: Path) -> None:
    before = weights(copied)
    with (
        RunFolder(copied).locked(),
        pytest.raises(InputError, match=r"another process is training in .*run: wait until it ends, or stop it"),
    ):
        resumed(copied)
    assert weights(resumed(copied)).keys() == before.keys()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    endless = command(prepared, 1, "--out run").replace("--steps 30", "--steps 100000")
    codes, said = at_once(elsewhere, endless, "@train --resume --out run")
    assert codes == [2, -9]  # the first was still alive
    assert "another process is training in run" in said
    with RunFolder(elsewhere / "run").locked():
        pass  # a killed run leaves no lock behind
