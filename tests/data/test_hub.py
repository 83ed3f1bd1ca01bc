"""Datasets from the hub, against a small hub on loopback, in a process of its own: the address is read at import."""

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from sympformer.data import DataConfig, find, hub
from sympformer.errors import InputError
from tests.data.hub_server import Repositories, serve

CLOSED = "http://127.0.0.1:9"  # a port where nobody listens
PATIENCE = 30  # seconds that a person is asked to wait
needs_datasets = pytest.mark.skipif(find_spec("datasets") is None, reason="the package datasets is not installed")


def jsonl(*texts: str) -> bytes:
    return "".join(json.dumps({"text": text}) + "\n" for text in texts).encode()


CARD = {"README.md": b"---\nlicense: mit\n---\n# A tiny dataset\n"}
TRAIN, HELD_OUT = [f"Story {i} about a red kite." for i in range(40)], ["Held out one.", "Held out two."]
REPOSITORIES: Repositories = {
    "roneneldan/TinyStories": CARD | {"data/train.jsonl": jsonl(*TRAIN), "data/validation.jsonl": jsonl(*HELD_OUT)},
    "toy/single": CARD | {"data/train.jsonl": jsonl(*TRAIN)},
    "toy/broken": CARD | {"data/half.jsonl": jsonl(*TRAIN)},
}
# documents of a corpus or the one sentence, and how long a person would have waited between tries
PROGRAM = """
import json, sys, time
waited = []
time.sleep = waited.append
from sympformer.data import DataConfig, find, prepare
from sympformer.errors import InputError
answers = []
for options in json.loads(sys.argv[1]):
    try:
        tokens = options.pop("prepare", False) and prepare(**options)
        answers.append(tokens.reused if tokens else list(find(DataConfig(**options)).documents()))
    except InputError as error:
        answers.append(str(error))
print(json.dumps([answers, sum(waited)]))
"""


def ask(address: str, home: Path, *questions: dict[str, Any]) -> Any:
    caches = {"HF_HOME": "hf", "TIKTOKEN_CACHE_DIR": "tiktoken", "SYMPFORMER_CACHE": "cache", "XDG_CACHE_HOME": "xdg"}
    environment = os.environ | {name: str(home / folder) for name, folder in caches.items()}
    environment |= dict.fromkeys(("HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy"), CLOSED)
    environment |= {"HF_ENDPOINT": address, "HF_HUB_DISABLE_TELEMETRY": "1", "NO_PROXY": "127.0.0.1"}
    for name in ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE", "DATA_GYM_CACHE_DIR", "ALL_PROXY", "all_proxy", "no_proxy"):
        environment.pop(name, None)
    command = [sys.executable, "-W", "error", "-c", PROGRAM, json.dumps(questions)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
    answers, waited = json.loads(done.stdout)
    assert waited <= PATIENCE * len(questions)
    return answers


@pytest.mark.slow
@needs_datasets
def test_datasets_from_the_hub(tmp_path: Path) -> None:
    kept = {"corpus": "hub:toy/single", "tokenizer": "byte", "prepare": True}
    questions = ("tinystories", "hub:toy/single", "hub:toy/none", "hub:toy/single:french", "hub:toy/broken")
    with serve(REPOSITORIES, dropping="data/half.jsonl") as address:
        named, single, wrong_name, wrong_config, broken, wrong_column, first, second = ask(
            address,
            tmp_path,
            *({"corpus": name} for name in questions),
            {"corpus": "hub:toy/single", "column": "body"},
            kept,
            kept,
        )
    assert named == [["train", text] for text in TRAIN] + [["validation", text] for text in HELD_OUT]
    assert sorted(text for _, text in single) == sorted(TRAIN)
    assert [split for split, _ in single].count("validation") == 2
    assert wrong_name == "the hub has no public dataset 'toy/none': check the name"
    assert "'toy/single' cannot be read: BuilderConfig 'french' not found" in wrong_config
    assert broken.startswith("no connection to the hub while reading 'toy/broken' (")
    assert broken.endswith("): check the network and try again")
    assert wrong_column.startswith("dataset toy/single, train row 1 has no column 'body': it has text; choose one with")
    assert (first, second) == (False, True)
    # what is in the cache needs no network any more
    assert ask(CLOSED, tmp_path, kept) == [True]


@pytest.mark.slow
@needs_datasets
def test_no_hub_at_all_is_one_sentence(tmp_path: Path) -> None:
    names = {"tinystories": "roneneldan/TinyStories", "hub:toy/stories": "toy/stories"}
    answers = ask(
        CLOSED, tmp_path, *({"corpus": name, "prepare": True} for name in names), {"tokenizer": "gpt2", "prepare": True}
    )
    for repo, said in zip(names.values(), answers, strict=False):
        assert said.startswith(f"no connection to the hub while reading {repo!r} (")
        assert said.endswith("): check the network and try again")
        assert "\n" not in said
    assert answers[-1].startswith(
        "GPT-2's merges are not in tiktoken's cache and could not be downloaded: connect once"
    )
    assert [path for path in tmp_path.rglob("*") if path.suffix == ".bin" or path.name == "sheet.json"] == []


def test_names_need_no_network_to_be_found(monkeypatch: pytest.MonkeyPatch) -> None:
    named = find(DataConfig("hub:owner/name:english@v1"))
    assert named.identity == {"repo": "owner/name", "config": "english", "revision": "v1"}
    monkeypatch.setitem(sys.modules, "datasets", None)
    hub._load.cache_clear()
    with pytest.raises(InputError, match=r"needs the package datasets: .* pip install '.\[data\]'"):
        next(find(DataConfig("tinystories")).documents())
