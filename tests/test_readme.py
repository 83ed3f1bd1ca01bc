"""What the README and the docs show works: every command and block runs as printed, by the wheel that is made of it."""

import json
import os
import re
import runpy
import shlex
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from sympformer.cli import COMMANDS, main
from tests import printed

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text()
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]


def test_python_blocks_run_and_print_what_they_say(capsys: pytest.CaptureFixture[str]) -> None:
    first, *others = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    assert 8 <= len([line for line in first.splitlines() if line.strip()]) <= 12
    code = "\n".join([first, *others])  # the later ones go on from it
    exec(compile(code, "README.md", "exec"), {})
    said = re.findall(r"energy from ([\d.]+) to ([\d.]+), and to ([\d.]+)", code)
    start, classical, accelerated = map(float, said[0])
    printed = [
        [float(number) for number in re.findall(r"\d+\.\d+", line)] for line in capsys.readouterr().out.splitlines()
    ]
    assert printed == [pytest.approx([start, classical], abs=0.01), pytest.approx([start, accelerated], abs=0.01)]


def test_one_calm_page() -> None:
    assert len(README.splitlines()) <= 110
    assert [line for line in README.splitlines() if len(line) > 110 and not line.startswith("|")] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_linked_files_exist(page: Path) -> None:
    for target in re.findall(r"\]\((?!http|#)([^)#]+)(?:#[^)]*)?\)", page.read_text()):
        assert (page.parent / target).exists(), target


def test_every_page_can_be_reached() -> None:
    """From the README, or from the front page of the site."""
    starts = [ROOT / "README.md", ROOT / "docs" / "index.md"]
    linked = {
        (start.parent / target).resolve()
        for start in starts
        for target in re.findall(r"\]\(([^)#]+\.md)\)", start.read_text())
    }
    assert {page for page in PAGES if page.is_relative_to(ROOT / "docs")} - linked - set(starts) == set()


@pytest.mark.parametrize("script", sorted((ROOT / "docs").rglob("*.py")), ids=lambda script: script.name)
def test_scripts_of_the_docs_find_what_they_import(script: Path) -> None:
    runpy.run_path(str(script), run_name="imported")


# --- commands, as printed

# in this order each finds what an earlier one has made; the log and the theory print none
DOCS = (
    "index", "data", "training", "audit", "probes", "comparing", "huggingface", "flows", "machines",
    "layers", "accelerate", "watch", "extending",
)  # fmt: skip
ORDER = ["README.md", *(f"docs/{name}.md" for name in DOCS)]


def all_commands() -> Iterator[tuple[str, str]]:
    for page in ORDER:
        for command in printed.commands((ROOT / page).read_text()):
            yield page, command


def test_every_page_with_something_to_run_is_run() -> None:
    for page in sorted((ROOT / "docs").glob("*.md")):
        text = page.read_text()
        assert f"docs/{page.name}" in ORDER or not [*printed.commands(text), *printed.blocks(text)], page.name
    for test in printed.ELSEWHERE.values():
        assert (ROOT / test).is_file()


def test_commands_exist() -> None:
    shown = set(re.findall(r"^sympformer (\w+)", README, re.MULTILINE))
    assert shown
    assert shown <= set(COMMANDS)


@cache
def help_of(*words: str) -> str:
    """The page that a command's --help prints."""
    import contextlib
    import io

    with contextlib.redirect_stdout(io.StringIO()) as page:
        assert main([*words, "--help"]) == 0
        for mapping in re.findall(r"--(\S+)\.help", page.getvalue()):
            assert main([*words, f"--{mapping}.help"]) == 0
    return page.getvalue()


@pytest.mark.parametrize(
    ("page", "command"), [pair for pair in dict.fromkeys(all_commands()) if "sympformer " in pair[1]]
)
def test_help_shows_every_word_and_option_that_is_printed(page: str, command: str) -> None:
    words = shlex.split(command[command.index("sympformer ") :])[1:]
    depth = 2 if words[0] == "data" else 1
    text = help_of(*words[:depth])
    for option in printed.options(shlex.join(words)):
        assert re.search(rf"^  {re.escape(option)}[ \n]", text, re.MULTILINE), option
    if len(words) > depth and not words[depth].startswith("--"):  # a word that opens the command
        assert re.match(rf"usage: sympformer {' '.join(words[:depth])} \[?[A-Z]", text)


def run_printed(python: Path, pages: list[str], folder: Path) -> list[str]:
    """Run pages with an interpreter in an empty folder; what ran."""
    folder.mkdir()
    own = {"SYMPFORMER_CACHE": str(folder / "cache"), "HF_HOME": str(folder / "hub"), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [python, ROOT / "tests" / "printed.py", ROOT, *pages],
        cwd=folder,
        env=os.environ | own,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads((folder / "done.json").read_text())


@pytest.mark.slow
@pytest.mark.skipif(find_spec("hatchling") is None, reason="the wheel is built with hatchling, of the extra dev")
def test_everything_runs_as_printed_from_a_wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In an environment of its own: the wheel, and by a .pth file the packages that are installed here."""
    import venv

    monkeypatch.delenv("PYTHONPATH", raising=False)  # the wheel is asked, and no clone
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    build: list[str | Path] = [*pip, "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", tmp_path / "dist", ROOT]
    subprocess.run(build, check=True, capture_output=True)
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    venv.create(tmp_path / "venv", with_pip=False, symlinks=True)
    python = tmp_path / "venv" / "bin" / "python"
    (packages,) = (tmp_path / "venv" / "lib").glob("*/site-packages")
    install: list[str | Path] = [*pip, "--python", python, "install", "-q", "--no-deps", "--no-index", wheel]
    subprocess.run(install, check=True, capture_output=True)
    (packages / "others.pth").write_text(sysconfig.get_path("purelib"))
    found = subprocess.run(
        [python, "-c", "import sympformer; print(sympformer.__file__)"], capture_output=True, text=True, check=True
    )
    assert found.stdout.startswith(str(packages)), "the clone would be tested instead"
    listed = subprocess.run([python.with_name("sympformer"), "configs"], capture_output=True, text=True, check=True)
    assert "sympformer train   cpu-small" in listed.stdout
    done = run_printed(python, ORDER, tmp_path / "folder")
    assert {command for _, command in all_commands() if not printed.left_out(command)} <= set(done)
    assert {"python of README.md", "python of docs/training.md", "python of docs/huggingface.md"} <= set(done)


# --- the tutorials run, at a small size, and do what their text says


def names_of(tutorial: str) -> dict[str, Any]:
    return runpy.run_path(str(ROOT / "docs" / "tutorials" / f"{tutorial}.py"), run_name="tutorial")


def test_acceleration(capsys: pytest.CaptureFixture[str]) -> None:
    """At its full size: that takes seconds."""
    names = names_of("acceleration")
    system = names["valley"]()
    classical, accelerated = names["first_order"](system), names["with_momentum"](system)
    assert accelerated < classical / 3
    assert "in 60 evaluations" in capsys.readouterr().out
    energies = names["damping"](system)
    assert energies["2"] > energies["3/t"]  # too much damping, and momentum is not worth its name


def test_every_scheme_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    names = names_of("acceleration")
    names["which_scheme"].__globals__["STEPS"] = 4
    left = names["which_scheme"](names["valley"]())
    assert list(left) == list(names["flows"].INTEGRATORS)
    assert "rk4" in (shown := capsys.readouterr().out)
    assert "after 16 evaluations" in shown


def test_your_text(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SYMPFORMER_CACHE", str(tmp_path / "cache"))
    names = names_of("your_text")
    size = names["Size"](stories=60, tokenizer="byte", steps=3, n_layer=2, d_model=16, block_size=32)
    run = names["main"](tmp_path, size)
    assert run.model.cfg.n_layer == 2
    assert "One day" in capsys.readouterr().out


def test_looking_ahead(capsys: pytest.CaptureFixture[str]) -> None:
    names = names_of("looking_ahead")
    names["main"]()
    slip, repaired, *others = capsys.readouterr().out.splitlines()
    assert slip.startswith("with a slip: ")
    assert "later tokens" in slip
    assert repaired == "repaired: passes"
    assert others in (["GPT-2 of Hugging Face: passes"], ["transformers is not installed (the extra hf has it)"])
