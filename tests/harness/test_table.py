"""An artefact, a harm, a command: it is refused in one sentence, or it says so and comes to the very same result.

In both cases nothing half-written is left. A new promise about damage joins by one row.
"""

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness.artefacts import COMPARE, TRAIN
from tests.harness.damage import figures
from tests.harness.guard import inside, run
from tests.harness.harms import (
    Harm,
    cut,
    edited,
    flip,
    full,
    gone,
    more,
    put,
    read_only,
    swap,
    unreadable,
    with_manifest,
)

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="capabilities are Linux's"),
    pytest.mark.filterwarnings("ignore"),
]
RESUME = ["train", "--resume=true", "--out=run"]
NEW_RUN = [*TRAIN[:-1], "--out=new"]
PREPARE = ["data", "prepare", "--corpus=storybook:80", "--tokenizer=byte", "--out=new"]
SAMPLE, EXPORT, INFO = (
    ["sample", "run", "--max_new_tokens=3"],
    ["export", "run", "new"],
    ["data", "info", "--data=data"],
)
AUDIT = ["audit", "run", "--length=4", "--json=new"]
EVAL = ["eval", "run", "--data=data"]
NEWEST = "run/checkpoints/step-00000006"
DENIED, LARGE, DAMAGED = "Permission denied", "too large", "is damaged: its checksum differs"
Row = tuple[str, Harm, list[str], str]

# artefact, harm, command, the sentence
REFUSED: list[Row] = [
    *((".", read_only, command, DENIED) for command in (EXPORT, AUDIT, NEW_RUN, PREPARE)),
    (".", read_only, ["compare", "small.yaml", "--out=new"], DENIED),
    ("run", read_only, RESUME, DENIED),
    ("compare", read_only, COMPARE, DENIED),
    ("run", unreadable, SAMPLE, DENIED),
    ("run/train.yaml", unreadable, EXPORT, DENIED),
    ("run/config.json", unreadable, RESUME, DENIED),
    ("run/metrics.jsonl", unreadable, ["report", "run", "--out=new"], DENIED),
    ("run/checkpoints", unreadable, RESUME, DENIED),
    ("data/sheet.json", unreadable, EVAL, DENIED),
    ("data/validation.bin", unreadable, RESUME, DENIED),
    ("export/config.json", unreadable, ["audit", "export", "--length=4"], DENIED),
    ("export/model.safetensors", unreadable, ["sample", "export"], DENIED),
    ("export/tokenizer.json", unreadable, ["eval", "export", "--data=data"], DENIED),
    ("small.yaml", unreadable, COMPARE, DENIED),
    ("compare/steps.json", unreadable, COMPARE, DENIED),
    ("compare/runs", unreadable, COMPARE, DENIED),
    (".", full(12_000), EXPORT, LARGE),  # not even the weights, which a library of its own writes
    (".", full(17_000), EXPORT, LARGE),
    (".", full(500), AUDIT, LARGE),
    (".", full(9_000), PREPARE, LARGE),
    # what decides a result
    *(
        (f"run/{name}", flip(place), command, f"{name} {DAMAGED}: put it back")
        for name, place in (("train.yaml", 0.1), ("config.json", 0.5), ("tokenizer.json", 0.9))
        for command in (SAMPLE, RESUME, EXPORT)
    ),
    *(("run/run.json", put(content), SAMPLE, "run.json") for content in (b"", b"{", b"[]", b"{}", b'{"files": 3}')),
    (
        "run/run.json",
        edited("other tokens", lambda record: record["data"]["sha256"].update(train="0" * 64)),
        RESUME,
        "are not those that the run in",
    ),
    ("data/train.bin", flip(0.1), [*INFO, "--check"], f"train.bin {DAMAGED}"),
    ("data/train.bin", cut(1000), NEW_RUN, "train.bin is missing or cut short"),
    ("data/sheet.json", cut(200), NEW_RUN, "is not JSON"),
    ("data/sheet.json", put(b"[]"), INFO, "must hold named values"),
    ("data/sheet.json", put(b'{"splits": 3}'), INFO, "sheet.json is damaged"),
    ("data/sheet.json", swap(b'"sha256": "', b'"sha256": "0'), NEW_RUN, "is not the one that made its tokens"),
    ("data/tokenizer.json", put(b"{}"), [*INFO, "--check"], "tokenizer.json"),
    ("export/model.safetensors", cut(1000), ["sample", "export"], "model.safetensors"),
    ("export/config.json", put(b"{"), ["audit", "export", "--length=4"], "config.json"),
]
# what is full while a command goes on with what it has: refused, and of use once there is room
INTERRUPTED: list[Row] = [
    (".", full(9_000), ["compare", "small.yaml", "--out=new"], LARGE),
    (".", full(9_000), COMPARE, LARGE),  # all is trained: only tables and pages are written
    (".", full(9_000), NEW_RUN, LARGE),
]
# artefact, harm, command, what it says beside the same figures
BORNE: list[Row] = [
    (f"{NEWEST}/optimizer.safetensors", cut(1000), RESUME, "continuing at step 4"),
    (f"{NEWEST}/optimizer.safetensors", flip(), RESUME, "step-00000006 is damaged"),
    (f"{NEWEST}/optimizer.safetensors", gone, RESUME, "passed over"),
    (f"{NEWEST}/state.json", flip(), RESUME, "step-00000006 is damaged"),
    (f"{NEWEST}/manifest.json", flip(), RESUME, "step-00000006 is damaged"),
    *(
        (f"{NEWEST}/manifest.json", edited(name, add), RESUME, "names other files than a checkpoint has")
        for name, add in {
            "device": lambda files: files.update({"/dev/zero": {"bytes": 1, "sha256": ""}}),
            "above": lambda files: files.update({"../../config.json": {"bytes": 1, "sha256": ""}}),
            "more": lambda files: files.update({"more.bin": {"bytes": 1, "sha256": ""}}),
        }.items()
    ),
    *(
        (f"{NEWEST}/model.safetensors", with_manifest(content), RESUME, "is damaged")
        for content in (b"", b"\xff" * 64, b"\x08" + b"\0" * 7 + b"{" * 8)
    ),
    ("run/metrics.jsonl", more('{"step": 7, "lo'), RESUME, ""),  # half written by a crash
    ("run/model.safetensors", flip(0.9), SAMPLE, f"model.safetensors {DAMAGED}; it is passed over"),
]


@pytest.fixture
def copy(one_of_everything: Path, tmp_path: Path) -> Iterator[Path]:
    shutil.copytree(one_of_everything, tmp_path / "copy", symlinks=True, ignore=shutil.ignore_patterns("fifo*"))
    with inside(tmp_path / "copy"):
        yield tmp_path / "copy"


def named(row: Row) -> str:
    place, harm, command, _ = row
    return f"{place}-{getattr(harm, '__name__', harm)}-{command[0]}"


def refused(row: Row, copy: Path) -> str:
    """The sentence with which the command ends."""
    place, harm, command, says = row
    with harm(copy / place):
        ending = run(*command)
    assert (ending.code, ending.broken) == (2, None), ending
    assert not list(copy.rglob(".sympformer-*"))
    sentence = ending.err.strip().splitlines()[-1]
    assert says in sentence
    return sentence


@pytest.mark.parametrize("row", REFUSED, ids=map(named, REFUSED))
def test_refused(row: Row, copy: Path) -> None:
    sentence = refused(row, copy)
    assert row[1] is not unreadable or Path(row[0]).name in sentence
    assert not (copy / "new").exists()


@pytest.mark.parametrize("row", INTERRUPTED, ids=map(named, INTERRUPTED))
def test_interrupted(row: Row, copy: Path) -> None:
    refused(row, copy)
    assert run(*(row[2] if row[2][0] == "compare" else [*RESUME[:-1], "--out=new"])).code == 0


@pytest.mark.parametrize("row", BORNE, ids=map(named, BORNE))
def test_borne(row: Row, copy: Path, one_of_everything: Path) -> None:
    """Twice: a result that was mended is not mended again."""
    place, harm, command, says = row
    with harm(copy / place):
        first, second = run(*command), run(*command)
    assert (first.code, first.broken) == (second.code, second.broken) == (0, None), first
    assert says in first.err
    assert figures(copy / "run") == figures(one_of_everything / "run")
