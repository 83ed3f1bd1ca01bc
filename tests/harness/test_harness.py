"""The harness at the size that SYMPFORMER_HARNESS asks for: command lines, corruptions, kills. All counts are zero."""

import os
import shutil
from pathlib import Path

import pytest

from tests.harness import damage, kills, lines
from tests.harness.guard import Tally

LINES, CORRUPTIONS, KILLS = map(int, os.environ.get("SYMPFORMER_HARNESS", "100,30,10").split(","))
SEED = int(os.environ.get("SYMPFORMER_HARNESS_SEED", "0"))


def check(tally: Tally, count: int) -> None:
    print(f"{tally.cases} cases, broken: {dict(tally.broken) or 'none'}")
    assert tally.cases == count
    assert not tally.broken, "\n".join(tally.examples[:40])


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_command_lines_and_configs(one_of_everything: Path, tmp_path: Path) -> None:
    """On a copy: a line may be right, and write its results over a file that the other attacks begin with."""
    check(lines.attack(Path(shutil.copytree(one_of_everything, tmp_path / "copy")), LINES, SEED), LINES)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_corruptions(one_of_everything: Path, tmp_path: Path) -> None:
    check(damage.attack(one_of_everything, tmp_path, CORRUPTIONS, SEED), CORRUPTIONS)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_kills(one_of_everything: Path, tmp_path: Path) -> None:
    check(kills.attack(one_of_everything, tmp_path / "work", KILLS, SEED), KILLS)
