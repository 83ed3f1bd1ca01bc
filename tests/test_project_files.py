"""What stands beside the code stays true: workflows, templates, citation, the page for contributors, the wheel."""

import os
import re
import stat
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path
from typing import Any

import pytest
import yaml

import sympformer

ROOT = Path(__file__).resolve().parents[1]
KINDS = {".py", ".xz", ".gz", ".js", ".css", ".html", ".yaml", ".typed"}
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))


def read(name: str) -> Any:
    return yaml.safe_load((ROOT / name).read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", ["tests", "site"])
def test_workflows_run_what_a_newcomer_runs(name: str) -> None:
    (job,) = read(f".github/workflows/{name}.yml")["jobs"].values()
    commands = [step["run"] for step in job["steps"] if "run" in step]
    assert commands == [{"tests": ".ci/run", "site": "make docs"}[name]]
    assert os.stat(ROOT / ".ci" / "run").st_mode & stat.S_IXUSR
    assert "docs" in TARGETS


@pytest.mark.parametrize("file", sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("[!c]*.yml")), ids=lambda f: f.stem)
def test_issue_templates_ask_for_something(file: Path) -> None:
    form = yaml.safe_load(file.read_text(encoding="utf-8"))
    assert {"name", "description", "body"} <= form.keys()
    ids = [part["id"] for part in form["body"]]
    assert len(ids) == len(set(ids)) > 0
    assert any(part.get("validations", {}).get("required") for part in form["body"])


def test_the_citation_is_of_this_version() -> None:
    citation = read("CITATION.cff")
    assert citation["version"] == sympformer.__version__
    assert citation["cff-version"] == "1.2.0"
    assert [author["family-names"] for author in citation["preferred-citation"]["authors"]] == ["Stein", "Li", "Steidl"]


def test_contributing_names_what_is_there() -> None:
    assert set(re.findall(r"`?make ([a-z-]+)", CONTRIBUTING)) - {"and"} <= TARGETS
    for target in re.findall(r"\]\(([^)#]+)\)", CONTRIBUTING):
        assert (ROOT / target).exists(), target
    for path in re.findall(r"`((?:tests|docs|src)/[\w/.]+)`", CONTRIBUTING):
        assert (ROOT / path).exists(), path
    for path in re.findall(r"`((?:flows|studies)/[\w/.]+)`", CONTRIBUTING):
        assert (ROOT / "src" / "sympformer" / path).exists(), path


# --- the wheel: what it needs and no more; its command works where nothing else of the project is


def run(*command: object, **options: str) -> str:
    done = subprocess.run(
        [str(word) for word in command], capture_output=True, text=True, cwd=ROOT, env=os.environ | options
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("hatchling", reason="the dev extra has it")
    folder = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder)
    (file,) = folder.glob("*.whl")
    return file


def test_what_it_holds(wheel: Path) -> None:
    names = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    written = {
        f"sympformer/{path.relative_to(ROOT / 'src' / 'sympformer').as_posix()}"
        for path in (ROOT / "src" / "sympformer").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert written <= names
    assert all(name.startswith("sympformer/configs/") for name in names - written)  # they come from beside src
    assert {Path(name).suffix for name in names} <= KINDS
    assert wheel.stat().st_size < 3_500_000


def test_it_plays_in_a_clean_environment(wheel: Path, tmp_path: Path) -> None:
    """Its own dependencies are lent to it (no network in a test); the package itself comes from the wheel alone."""
    run(sys.executable, "-m", "venv", "--without-pip", tmp_path / "clean")
    python = tmp_path / "clean" / "bin" / "python"
    run(sys.executable, "-m", "pip", "--python", python, "install", "--no-deps", "--no-index", "--quiet", wheel)
    lent = {"PYTHONPATH": sysconfig.get_path("purelib")}  # a path, not a site: links to this clone are not followed
    where = run(python, "-c", "import sympformer; print(sympformer.__file__)", **lent)
    assert Path(where.strip()).is_relative_to(tmp_path)
    run(tmp_path / "clean" / "bin" / "sympformer", "play", "--out", tmp_path / "page.html", **lent)
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "const Flows" in page
    assert "const Playground" in page
