"""Datasets from the hub, against a small hub on loopback; in its own process, for the address is read at import."""

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from sympformer.data.corpora import hub, open_corpus
from sympformer.errors import InputError
from tests.data.hub_server import Repositories, serve

needs_datasets = pytest.mark.skipif(find_spec("datasets") is None, reason="the package datasets is not installed")


def jsonl(*texts: str) -> bytes:
    return "".join(json.dumps({"text": text}) + "\n" for text in texts).encode()


CARD = {"README.md": b"---\nlicense: mit\n---\n# A tiny dataset\n"}
TRAIN, HELD_OUT = [f"Story {i} about a red kite." for i in range(40)], ["Held out one.", "Held out two."]
REPOSITORIES: Repositories = {
    "roneneldan/TinyStories": CARD | {"data/train.jsonl": jsonl(*TRAIN), "data/validation.jsonl": jsonl(*HELD_OUT)},
    "toy/single": CARD | {"data/train.jsonl": jsonl(*TRAIN)},
}
# reads a corpus and prints its documents or the one sentence; waiting between tries is left out
PROGRAM = """
import json, sys, time
time.sleep = lambda seconds: None
from sympformer.data.corpora import Reading, open_corpus
from sympformer.errors import InputError
answers = []
for name, column in json.loads(sys.argv[1]):
    try:
        documents = list(open_corpus(name, reading=Reading(column)))
        answers.append([[document.split, document.text] for document in documents])
    except InputError as error:
        answers.append(str(error))
print(json.dumps(answers))
"""


def ask(address: str, home: Path, *questions: tuple[str, str]) -> list[str | list[list[str]]]:
    environment = {**os.environ, "HF_ENDPOINT": address, "HF_HOME": str(home), "HF_HUB_DISABLE_TELEMETRY": "1"}
    environment.pop("HF_HUB_OFFLINE", None)
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", PROGRAM, json.dumps(questions)],
        capture_output=True,
        text=True,
        env=environment,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return json.loads(done.stdout)


@pytest.mark.slow
@needs_datasets
def test_datasets_from_the_hub(tmp_path: Path) -> None:
    with serve(REPOSITORIES) as address:
        named, single, wrong_name, wrong_column, wrong_config = ask(
            address,
            tmp_path,
            ("tinystories", "text"),
            ("hub:toy/single", "text"),
            ("hub:toy/none", "text"),
            ("hub:toy/single", "body"),
            ("hub:toy/single:french", "text"),
        )
    assert named == [["train", text] for text in TRAIN] + [["validation", text] for text in HELD_OUT]
    assert isinstance(single, list)
    assert sorted(text for _, text in single) == sorted(TRAIN)
    assert [split for split, _ in single].count("validation") == 2
    assert wrong_name == "the hub has no public dataset 'toy/none': check the name"
    assert wrong_column == (
        "dataset toy/single, train row 1 has no column 'body': it has text; choose one with --column"
    )
    assert "'toy/single' cannot be read: BuilderConfig 'french' not found" in wrong_config


@pytest.mark.slow
@needs_datasets
def test_a_dropped_connection_is_one_sentence(tmp_path: Path) -> None:
    with serve(REPOSITORIES, dropping="data/train.jsonl") as address:
        (answer,) = ask(address, tmp_path, ("hub:toy/single", "text"))
    assert isinstance(answer, str)
    assert answer.startswith("no connection to the hub while reading 'toy/single' (")
    assert answer.endswith("): check the network and try again")
    assert "\n" not in answer


@pytest.mark.slow
@needs_datasets
def test_no_hub_at_all_is_one_sentence(tmp_path: Path) -> None:
    (answer,) = ask("http://127.0.0.1:9", tmp_path, ("tinystories", "text"))
    assert isinstance(answer, str)
    assert answer.startswith("no connection to the hub while reading 'roneneldan/TinyStories' (")


def test_known_names_need_no_network_to_be_opened() -> None:
    assert open_corpus("tinystories").rule == "the corpus's own: train, validation"
    assert open_corpus("openwebtext").rule.startswith("a share of the text")


def test_a_missing_package_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    hub._load.cache_clear()
    with pytest.raises(InputError, match=r"needs the package datasets: .* pip install '.\[data\]'"):
        next(iter(open_corpus("tinystories")))
