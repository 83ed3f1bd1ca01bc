"""SIGKILL at any moment of train, compare, prepare, export and report; the same command then comes to the same end."""

import json
import multiprocessing
import os
import random
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load

from sympformer import cli
from tests.harness.artefacts import COMPARE, EXPORT, PREPARE, TRAIN, small
from tests.harness.damage import figures
from tests.harness.guard import HANG, Tally, inside


def content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def models(folder: Path) -> Any:
    return [model["last"] for model in json.loads((folder / "results.json").read_text())["models"]]


def without_command(folder: Path) -> dict[str, Any]:
    """An export but for what tells of the command; weights tensor by tensor, since their header has no fixed order."""
    files: dict[str, Any] = content(folder)
    weights = load(files.pop("model.safetensors"))
    files |= {name: tensor.numpy().tobytes() for name, tensor in weights.items()}
    return {name: value for name, value in files.items() if name not in ("sympformer_run.json", "README.md")}


# name -> (command, the same again, what it needs, what it makes, what must be the same)
CASES: dict[str, tuple[list[str], list[str], list[str], str, Callable[[Path], Any]]] = {
    "train": (TRAIN, ["train", "--resume=true", "--out=run"], ["data"], "run", figures),
    "prepare": (PREPARE, PREPARE, [], "data", content),
    "export": (EXPORT, EXPORT, ["run", "data"], "export", without_command),
    "compare": (COMPARE, COMPARE, ["data", "small.yaml"], "compare", models),
    "report": (["report", "compare"], ["report", "compare"], ["compare", "data", "small.yaml"], "compare", models),
}


def child(command: list[str], seconds: float | None) -> tuple[int | None, float]:
    """A command in a process of its own, killed after so long; its exit code (None: killed) and its time.

    It is forked from a server that has imported all and computed nothing: a fork of this process, whose threads have
    computed, could wait for them for ever.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([name for name in sys.modules if name.startswith(("sympformer.", "tests.harness."))])
    process = context.Process(target=_run, args=(command, Path.cwd(), Path(os.environ["SYMPFORMER_CACHE"])))
    started = time.monotonic()
    process.start()
    process.join(HANG if seconds is None else seconds)
    took, killed = time.monotonic() - started, process.is_alive()
    process.kill()
    process.join()
    return None if killed else process.exitcode, took


def _run(command: list[str], folder: Path, cache: Path) -> None:
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.dup2(null, 2)
    torch.set_num_threads(1)
    code = 99  # a traceback
    try:
        with small(cache), inside(folder):
            code = cli.main(command)
    finally:
        os._exit(code)


def attack(folder: Path, work: Path, count: int, seed: int = 0) -> Tally:
    """So many kills, each followed by the same command."""
    draw, tally, lasts = random.Random(seed), Tally(), dict[str, float]()
    child(["configs"], 10 * HANG)  # starts the server, whose time is nobody's
    for i in range(count):
        name = list(CASES)[i % len(CASES)]
        command, again, needs, makes, same = CASES[name]
        if name not in lasts:
            lasts[name] = _fresh(folder, work, needs, command, None)[1]
        if _fresh(folder, work, needs, command, draw.uniform(0.0, lasts[name]))[0] not in (None, 0):
            tally.note("traceback", f"{i} {name}")
        with inside(work):
            made = (Path(makes) / "run.json").exists() if name == "train" else False
            whole = name == "export" and Path("export/config.json").exists()
            code, _ = child(again if name != "train" or made else command, None) if not whole else (0, 0.0)
            tally.cases += 1
            if code is None:
                tally.note(f"hang over {HANG} s", f"{i} {name}")
            elif code != 0:
                tally.note("loss", f"{i} {name}: the same command ended with {code}")
            elif same(Path(makes)) != same(folder / makes):
                tally.note("loss", f"{i} {name}: another result")
            # a kill behind the last rename leaves a lock that nobody holds; the next one that writes there removes it
            elif left := [path for path in Path().rglob(".sympformer-*") if path.suffix != ".lock"]:
                tally.note("leftover", f"{i} {name}: {left[0]}")
    return tally


def _fresh(
    folder: Path, work: Path, needs: list[str], command: list[str], seconds: float | None
) -> tuple[int | None, float]:
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir()
    for name in needs:
        if (folder / name).is_dir():
            shutil.copytree(folder / name, work / name)
        else:
            shutil.copy(folder / name, work / name)
    with inside(work):
        return child(command, seconds)
