"""Damaged files: a command on them is refused, or says so, or comes to the very same result. Nothing else."""

import json
import os
import random
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from sympformer.training.folder import METRICS
from tests.harness.artefacts import TRAIN
from tests.harness.guard import Ending, Tally, inside, run

SAID = ("is damaged", "passed over", "older weights")


def flip(draw: random.Random, file: Path) -> None:
    content = bytearray(file.read_bytes()) or bytearray(b"\0")
    content[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
    file.write_bytes(content)


def truncate(draw: random.Random, file: Path) -> None:
    content = file.read_bytes()
    file.write_bytes(content[: draw.randrange(len(content) or 1)])


def zero(draw: random.Random, file: Path) -> None:
    content = bytearray(file.read_bytes())
    start = draw.randrange(len(content) or 1)
    content[start : start + 100] = bytes(len(content[start : start + 100]))
    file.write_bytes(content)


def scramble(draw: random.Random, file: Path) -> None:
    file.write_bytes(draw.randbytes(draw.randint(1, 200)))


def change_a_digit(draw: random.Random, file: Path) -> None:
    """What no parser sees."""
    content = bytearray(file.read_bytes())
    digits = [i for i, byte in enumerate(content[:100_000]) if 48 <= byte <= 57]
    if digits:
        place = draw.choice(digits)
        content[place] = 48 + (content[place] - 47) % 10
    file.write_bytes(content)


def remove(draw: random.Random, file: Path) -> None:
    file.unlink()


def device(draw: random.Random, file: Path) -> None:
    file.unlink()
    file.symlink_to("/dev/zero")


def pipe(draw: random.Random, file: Path) -> None:
    file.unlink()
    os.mkfifo(file)


DAMAGES: list[Callable[[random.Random, Path], None]] = [
    flip, flip, flip, truncate, zero, scramble, change_a_digit, change_a_digit, remove, device, pipe,
]  # fmt: skip


def figures(folder: Path) -> Any:
    """The weights, metrics and samples of a run, without its clock."""
    from sympformer.training.folder import TIMED, RunFolder

    rows = [{k: v for k, v in row.items() if k not in TIMED} for row in RunFolder(folder).metrics()]
    newest = sorted((folder / "checkpoints").glob("step-*"))[-1]
    return rows, (newest / "model.safetensors").read_bytes(), (newest / "optimizer.safetensors").read_bytes()


def use_run() -> list[Ending | Any]:
    endings: list[Any] = [run("sample", "run", "--max_new_tokens=8"), run("eval", "run", "--which=last")]
    endings.append(run("train", "--resume=true", "--out=run"))
    return [*endings, figures(Path("run"))] if endings[-1].code == 0 else endings


def use_data() -> list[Ending | Any]:
    endings: list[Any] = [run("data", "info", "--data=data", "--preview=20"), run(*TRAIN[:-1], "--out=new")]
    return [*endings, figures(Path("new"))] if endings[-1].code == 0 else endings


def use_export() -> list[Ending | Any]:
    return [
        run("sample", "export", "--max_new_tokens=8"),
        run("audit", "export", "--length=4"),
    ]


def use_comparison() -> list[Ending | Any]:
    ending = run("compare", "small.yaml", "--out=compare")
    if ending.code != 0:
        return [ending]
    results = json.loads(Path("compare/results.json").read_text())
    for model in results["models"]:
        for name in ("seconds", "seconds_to_baseline", "curves", "tokens_per_second", "memory_mb"):
            model.pop(name)
    return [ending, results["models"]]


USES: dict[str, Callable[[], list[Any]]] = {
    "run": use_run, "run ": use_run, "data": use_data, "export": use_export, "compare": use_comparison,
}  # fmt: skip


def attack(folder: Path, work: Path, count: int, seed: int = 0) -> Tally:
    """Damage so many files, each in a fresh copy, and use what was damaged."""
    draw, tally = random.Random(seed), Tally()
    right: dict[str, list[Any]] = {}
    for i in range(count):
        use = draw.choice(list(USES))
        what = use.strip()
        copy = work / "copy"
        if what not in right:
            right[what] = _used(folder, copy, what, lambda: None)
        # nothing is computed from lines of metrics, which have no checksum
        files = sorted(p.relative_to(folder) for p in (folder / what).rglob("*") if p.is_file() and p.name != METRICS)
        file, harm = draw.choice(files), draw.choice(DAMAGES)
        found = _used(folder, copy, what, partial(harm, draw, copy / file))
        tally.cases += 1
        for ending in found:
            if isinstance(ending, Ending) and ending.broken:
                tally.note(ending.broken, f"{i} {harm.__name__} {file}: {ending.err.strip().splitlines()[-1:]}")
        if silent(found, right[what]):
            tally.note("silent acceptance", f"{i} {harm.__name__} {file}")
    return tally


def _used(folder: Path, copy: Path, what: str, harm: Callable[[], None]) -> list[Any]:
    shutil.rmtree(copy, ignore_errors=True)
    copy.mkdir()
    for name in {what, "data", "small.yaml"}:
        if (folder / name).is_dir():
            shutil.copytree(folder / name, copy / name)
        else:
            shutil.copy(folder / name, copy / name)
    with inside(copy):
        harm()
        return USES[what]()


def silent(found: list[Any], right: list[Any]) -> bool:
    """Whether something was taken that is not right, and nobody said a word."""
    for mine, theirs in zip(found, right, strict=False):
        if isinstance(mine, Ending):
            if mine.code not in (0, theirs.code) or mine.broken or any(word in mine.err + mine.out for word in SAID):
                return False  # refused, counted elsewhere, or said
            if mine.out != theirs.out:
                return True
        elif mine != theirs:
            return True
    return False
