"""What made a result: the hash sees every change of the source and nothing else; old records are of unknown code."""

import shutil
import subprocess
from pathlib import Path

import pytest

from sympformer import __version__, provenance
from sympformer.provenance import Code, code_in, codes_in, distinct, source_hash, this_code


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The package somewhere else, as a wheel would put it: no tests, no git."""
    root = tmp_path / "site-packages" / "sympformer"
    shutil.copytree(provenance.ROOT, root, ignore=shutil.ignore_patterns("__pycache__"))
    return root


def test_the_same_source_has_the_same_hash_wherever_it_lies(copy: Path) -> None:
    assert source_hash(copy) == this_code().source
    (copy / "__pycache__").mkdir()
    (copy / "__pycache__" / "cli.cpython-311.pyc").write_bytes(b"compiled")
    file = copy / "cli.py"
    file.write_bytes(file.read_bytes().replace(b"\n", b"\r\n"))  # as git writes files on Windows
    assert source_hash(copy) == this_code().source


def test_every_change_of_the_source_shows(copy: Path) -> None:
    seen = {source_hash(copy)}
    (copy / "models" / "config.py").write_text((copy / "models" / "config.py").read_text() + "\n")
    seen.add(source_hash(copy))
    (copy / "cli.py").rename(copy / "command_line.py")
    seen.add(source_hash(copy))
    (copy / "data" / "more.py").touch()
    seen.add(source_hash(copy))
    assert len(seen) == 4


def test_a_commit_is_named_where_git_keeps_the_source(tmp_path: Path) -> None:
    def git(*arguments: str) -> None:
        name = ("-c", "user.name=a", "-c", "user.email=a@b.c")
        subprocess.run(["git", *name, *arguments], cwd=tmp_path, check=True, capture_output=True)

    root = tmp_path / "sympformer"
    root.mkdir()
    file = root / "__init__.py"
    file.write_text("a = 1\n")
    assert provenance._commit(root) is None
    git("init")
    (tmp_path / "notes.txt").write_text("a project that has the package installed\n")
    git("add", "notes.txt")
    git("commit", "-m", "notes")
    assert provenance._commit(root) is None
    git("add", ".")
    git("commit", "-m", "source")
    commit = provenance._commit(root)
    assert commit is not None
    assert len(commit) == 12
    file.write_text("a = 2\n")
    assert provenance._commit(root) == f"{commit}-dirty"


def test_codes_go_through_a_record_and_back() -> None:
    here = this_code()
    assert here.version == __version__
    assert code_in({"torch": "2", **here.to_dict()}) == here
    assert codes_in(here.to_dict() | {"continued_by": [{"sympformer": "9", "source": "beef", "commit": None}]}) == [
        here,
        Code("9", "beef"),
    ]
    assert set(provenance.environment()) > {"sympformer", "source", "commit", "torch", "command", "date", "processor"}


def test_records_without_a_hash_are_of_one_unknown_code() -> None:
    old = [code_in({"sympformer": "0.1.0", "torch": "2"}), code_in({"sympformer": "0.0.9"})]
    assert [code.label for code in distinct(old)] == ["unknown code"]
    assert len(distinct([*old, this_code()])) == 2
    # a commit that left the source alone makes no other code
    assert len(distinct([Code("1", "beef", "aaa"), Code("1", "beef", "bbb")])) == 1
