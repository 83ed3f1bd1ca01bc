"""What stands beside the code stays true: workflows, templates, citation, the page for contributors."""

import os
import re
import stat
from pathlib import Path
from typing import Any

import pytest
import yaml

import sympformer

ROOT = Path(__file__).resolve().parents[1]
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
