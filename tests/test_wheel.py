"""The wheel holds what it needs and no more, and its command works where nothing else of the project is."""

import os
import subprocess
import sys
import sysconfig
import zipfile
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
KINDS = {".py", ".xz", ".gz", ".js", ".css", ".html", ".yaml", ".typed"}

pytestmark = pytest.mark.skipif(
    find_spec("hatchling") is None, reason="hatchling is not installed (the dev extra has it)"
)


def run(*command: object, **options: str) -> str:
    done = subprocess.run(
        [str(word) for word in command], capture_output=True, text=True, cwd=ROOT, env=os.environ | options
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
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
