"""No network and no cache: `sympformer train` says so in one sentence, soon, and leaves nothing behind."""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

CLOSED = "http://127.0.0.1:9"  # a port where nobody listens
PATIENCE = 30  # seconds that a person is asked to wait
# the command with every pause between tries counted and left out
PROGRAM = """
import sys, time
waited = []
time.sleep = waited.append
from sympformer.cli import main
code = main(sys.argv[1:])
print(sum(waited))
sys.exit(code)
"""


def offline(home: Path, *args: str) -> tuple[str, float]:
    """What a command says without network or cache, and how many seconds it would have waited between tries."""
    caches = {"HF_HOME": "hf", "TIKTOKEN_CACHE_DIR": "tiktoken", "SYMPFORMER_CACHE": "cache", "XDG_CACHE_HOME": "xdg"}
    environment = os.environ | {name: str(home / folder) for name, folder in caches.items()}
    for name in ("HF_ENDPOINT", "HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy"):
        environment[name] = CLOSED
    environment |= {"NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1", "OMP_NUM_THREADS": "1"}
    for name in ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE", "DATA_GYM_CACHE_DIR", "ALL_PROXY", "all_proxy"):
        environment.pop(name, None)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *args], cwd=home, env=environment, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 2, done.stderr
    return done.stderr, float(done.stdout)


@pytest.mark.slow
@pytest.mark.skipif(find_spec("datasets") is None, reason="the package datasets is not installed")
@pytest.mark.parametrize("corpus", ["tinystories", "hub:toy/stories"])
def test_a_corpus_of_the_hub(corpus: str, tmp_path: Path) -> None:
    said, waited = offline(tmp_path, "train", "--data.corpus", corpus, "--steps", "2")
    repo = {"tinystories": "roneneldan/TinyStories"}.get(corpus, "toy/stories")
    assert said.startswith(f"sympformer: error: no connection to the hub while reading {repo!r} (")
    assert said.endswith("): check the network and try again\n")
    assert said.count("\n") == 1
    assert waited <= PATIENCE
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_the_tokenizer_of_gpt2(tmp_path: Path) -> None:
    said, waited = offline(tmp_path, "train", "--data.tokenizer", "gpt2", "--steps", "2")
    assert said == (
        "sympformer: error: GPT-2's merges are not in tiktoken's cache and could not be downloaded: "
        "connect once, or give the merges file as gpt2:PATH/merges.txt\n"
    )
    assert waited <= PATIENCE
    assert list(tmp_path.iterdir()) == []
