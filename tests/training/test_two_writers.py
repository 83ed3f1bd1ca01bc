"""Two processes and one folder, as whole runs: nothing is mixed, and the one who is refused is told why."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sympformer.errors import InputError
from sympformer.training import TrainConfig, load_run, run_training
from sympformer.training.run import lock_run
from tests.training.conftest import ConfigMaker
from tests.training.test_runs import assert_same_run

# A command after "@" waits for a checkpoint of the others, and kills them when it has ended.
TWICE = """
import glob, os, signal, sys, time
if "train" in sys.argv[1]:
    import torch
    torch.set_num_threads(1)
from sympformer import cli
children = []
for words in sys.argv[1].split("|"):
    read, write = os.pipe()
    while words.startswith("@") and not glob.glob("run/checkpoints/step-*"):
        time.sleep(0.01)
    if (pid := os.fork()) == 0:
        os.dup2(write, 2)
        os.dup2(write, 1)
        os._exit(cli.main(words.strip("@").split()))
    os.close(write)
    children.append((pid, read))
for pid, read in sorted(children, reverse="@" in sys.argv[1]):
    said = open(read).read()
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), said.replace(chr(10), " "))
    if "@" in sys.argv[1] and pid != children[0][0]:
        os.kill(children[0][0], signal.SIGKILL)
"""


def at_once(folder: Path, *commands: str) -> list[tuple[int, str]]:
    """Run commands of the command line at the same time: exit codes, and what was said."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "SYMPFORMER_CACHE": str(folder / "cache")}
    command = [sys.executable, "-c", TWICE, "|".join(commands)]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stdout
    return [(int(line.split(" ", 1)[0]), line.split(" ", 1)[1]) for line in done.stdout.splitlines()]


def train(prepared: Path, seed: int, *more: str) -> str:
    options = "--steps 30 --batch_size 2 --eval_tokens 64 --sample_tokens 4 --checkpoint_every 2 --eval_every 5"
    model = "--model.n_layer 1 --model.n_head 2 --model.d_model 16 --model.block_size 16"
    return f"train --data.folder {prepared} {options} {model} --seed {seed} {' '.join(more)}"


def test_two_runs_into_one_folder(prepared: Path, tmp_path: Path) -> None:
    (first, said_1), (second, said_2) = at_once(tmp_path, *(train(prepared, seed, "--out one") for seed in (1, 2)))
    assert sorted((first, second)) == [0, 2]
    assert ("in use by now" in said_1 + said_2) or ("holds a run" in said_1 + said_2)
    run = load_run(tmp_path / "one", "last")
    assert run.checkpoint.progress.step == 30
    alone = run.config.replace(out=str(tmp_path / "alone"))
    run_training(alone, bar=False)
    assert_same_run(tmp_path / "alone", tmp_path / "one")


def test_two_runs_without_a_name_have_two(prepared: Path, tmp_path: Path) -> None:
    endings = at_once(tmp_path, *(train(prepared, seed) for seed in (1, 2, 3)))
    assert [code for code, _ in endings] == [0, 0, 0]
    runs = sorted((tmp_path / "runs").iterdir())
    assert [run.name for run in runs] == [f"softmax-exp-euler-bytes{end}" for end in ("", "-2", "-3")]
    assert {load_run(run).config.seed for run in runs} == {1, 2, 3}


def test_a_run_that_is_alive_is_not_resumed(make_config: ConfigMaker, capsys: pytest.CaptureFixture[str]) -> None:
    config = make_config()
    folder = run_training(config).folder
    with (
        lock_run(folder),
        pytest.raises(InputError, match=r"another process is training in .*run: wait until it ends, or stop it"),
    ):
        run_training(TrainConfig(out=config.out), resume=True)
    assert run_training(config, resume=True).steps == 8


def test_resuming_a_live_run_harms_neither(prepared: Path, tmp_path: Path) -> None:
    endless = train(prepared, 1, "--out run").replace("--steps 30", "--steps 100000")
    (code, said), (first, _) = at_once(tmp_path, endless, "@train --resume --out run")
    assert (code, "another process is training in run" in said) == (2, True), said
    assert first == -9  # it was still alive
    with lock_run(tmp_path / "run"):
        pass  # a killed run leaves no lock behind


def test_two_ways_to_prepare_one_folder(tmp_path: Path) -> None:
    commands = [f"data prepare --corpus storybook:{n} --tokenizer byte --out data" for n in (300, 301)]
    endings = at_once(tmp_path, *commands)
    assert sorted(code for code, _ in endings) == [0, 2]
    assert "prepared in another way" in "".join(said for _, said in endings)
    assert [path.name for path in tmp_path.iterdir()] == ["data"]
    same = at_once(tmp_path, *[commands[0].replace("--out data", "--out new")] * 2)
    assert [code for code, _ in same] == [0, 0]
    assert sum("is up to date" in said for _, said in same) == 1
