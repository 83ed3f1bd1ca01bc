"""The exported folder where sympformer is not installed, from disk and from a hub, all in one process; and lm_eval."""

import base64
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import unquote, urlparse

import huggingface_hub.constants as hub_constants
import pytest
import torch
import yaml

from sympformer import cli
from sympformer.export.export import export_run
from sympformer.opening import Opened, open_model
from tests.data.hub_server import COMMIT, Handler
from tests.export.conftest import RunMaker

# Loads models by the code in their folders, where `import sympformer` fails; prints what they give.
PROGRAM = """
import json, sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.split('.')[0] == 'sympformer':
            raise ModuleNotFoundError("No module named 'sympformer'")

sys.meta_path.insert(0, Missing())
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

torch.set_num_threads(1)
ids, names, card = json.loads(sys.argv[1])
ids = torch.tensor(ids)
for name, again in names:
    tokenizer = AutoTokenizer.from_pretrained(name, trust_remote_code=True)
    model = AutoModelForCausalLM.from_pretrained(name, trust_remote_code=True)
    with torch.no_grad():
        logits = model(ids, use_cache=False).logits
    texts = [model.generate(ids[:, :4], do_sample=False, max_length=16, use_cache=c).tolist() for c in (True, False)]
    if again:
        model.save_pretrained(again)
        tokenizer.save_pretrained(again)
    print(json.dumps([type(model).__module__, logits.tolist(), texts, tokenizer('One day 🙂').input_ids]))
exec(card)
assert not [m for m in sys.modules if m.split('.')[0] == 'sympformer']
"""
VARIED = ("softmax-baseline", "softmax-yuriiformer", "softmax-etd-ab2", "linear-exp-euler", "linear-ab2")
IDS = torch.randint(250, (2, 20), generator=torch.Generator().manual_seed(0)).tolist()


def push(trained: Path, out: Path, address: str, monkeypatch: pytest.MonkeyPatch) -> int:
    """The command, with a hub at an address; what the hub's library reads when it is imported is set by hand."""
    monkeypatch.setenv("HF_TOKEN", "hf_test")
    for name, value in (("ENDPOINT", address), ("HF_HUB_OFFLINE", False), ("HF_HUB_DISABLE_XET", True)):
        monkeypatch.setattr(hub_constants, name, value)
    return cli.main(["export", str(trained), str(out), "--push", "toy/model", "--private"])


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Use 'content=")  # the hub's library about its own way of sending
@pytest.mark.usefixtures("quick_audit")
def test_pushed_and_loaded_where_sympformer_is_not(
    make_run: RunMaker,
    trained: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Folders, what was saved from them there (the source went along), a hub, and the card's code as it stands."""
    made = [make_run(variant=variant) for variant in VARIED]
    outs, again = ([tmp_path / f"{kind}-{name}.v1" for name in VARIED] for kind in ("out", "again"))
    for folder, out in zip(made, outs, strict=True):
        export_run(folder, out)
    with serve() as hub:
        out = tmp_path / "out"
        assert push(trained, out, hub.address, monkeypatch) == 0
        assert capsys.readouterr().out.endswith(f"pushed to {hub.address}/toy/model\n")
        assert (hub.created["organization"], hub.created["name"]) == ("toy", "model")
        assert hub.created.get("visibility") == "private" or hub.created.get("private") is True
        assert {"/api/repos/create", "/api/models/toy/model/commit/main"} <= set(hub.asked)
        assert hub.files == {file.name: file.read_bytes() for file in out.iterdir()}
        names = [*zip(map(str, outs), map(str, again), strict=True), *((str(place), None) for place in again)]
        card = hub.files["README.md"].decode().split("```python\n")[1].split("```")[0]
        assert "name = 'toy/model'" in card
        kept = {name: value for name, value in os.environ.items() if not name.startswith("HF_")}
        own = {"HF_HOME": str(tmp_path), "HF_HUB_DISABLE_TELEMETRY": "1", "HF_HUB_DISABLE_XET": "1"}
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, json.dumps([IDS, [*names, ("toy/model", None)], card])],
            env=kept | own | {"HF_ENDPOINT": hub.address, "HF_TOKEN": "hf_test"},
            capture_output=True, text=True, timeout=300, check=False, stdin=subprocess.DEVNULL,
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    for line, folder in zip(lines, [*made, *made, trained], strict=False):
        module, logits, (cached, plain), ids = json.loads(line)
        assert module.startswith("transformers_modules.")
        run = open_model(folder)
        torch.testing.assert_close(torch.tensor(logits), run.logits(torch.tensor(IDS)), rtol=0, atol=1e-6)
        assert cached == plain
        assert ids == run.tokenizer.encode("One day 🙂")
    assert lines[2 * len(VARIED) + 1].startswith("One day")


@pytest.mark.usefixtures("quick_audit")
@pytest.mark.parametrize(
    ("status", "message"),
    [
        (401, "the hub does not let you write to toy/model (status 401): log in with 'hf auth login'; "),
        (500, "toy/model did not reach the hub ("),
        (None, "toy/model did not reach the hub ("),
        (507, "toy/model did not reach the hub (Error while uploading 'model.safetensors' to the Hub); "),
    ],
)
def test_a_push_that_fails_leaves_the_folder(
    status: int | None,
    message: str,
    trained: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = tmp_path / "out"
    with serve(status) as hub:
        assert push(trained, out, hub.address if status else "http://127.0.0.1:9", monkeypatch) == 2
    err = capsys.readouterr().err
    assert err.startswith(f"sympformer: error: {message}"), err
    assert err.endswith(f"the folder {out} is whole: try again with 'hf upload toy/model {out}'\n")
    assert err.count("\n") == 1
    assert (out / "model.safetensors").is_file()
    assert hub.files == {}


# --- lm_eval, with the local task of docs/examples/lm_eval

EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "lm_eval"
ROWS = [json.loads(line) for line in (EXAMPLE / "stories.jsonl").read_text(encoding="utf-8").splitlines()]


def log_likelihood(run: Opened, beginning: str, ending: str) -> float:
    seen, ids = len(run.tokenizer.encode(beginning)), run.tokenizer.encode(f"{beginning} {ending}")
    logs = run.logits(torch.tensor([ids]))[0].log_softmax(-1)
    return sum(logs[i - 1, ids[i]].item() for i in range(seen, len(ids)))


def test_the_example_is_well_formed() -> None:
    assert len(ROWS) >= 4
    assert all(row.keys() == {"beginning", "right", "wrong"} for row in ROWS)
    assert "HF_HUB_OFFLINE=1" in (EXAMPLE / "run.sh").read_text()
    assert os.access(EXAMPLE / "run.sh", os.X_OK)


@pytest.mark.slow
@pytest.mark.usefixtures("quick_audit")
@pytest.mark.skipif(find_spec("lm_eval") is None, reason="lm_eval is not installed: pip install 'lm-eval[hf]==0.4.13'")
def test_lm_eval_scores_as_we_do(make_run: RunMaker, tmp_path: Path) -> None:
    export_run(made := make_run("bpe", variant="softmax-exp-euler", block_size=128), tmp_path / "model")
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    command = [
        str(EXAMPLE / "run.sh"),
        str(tmp_path / "model"),
        "--output_path",
        str(tmp_path / "results"),
        "--log_samples",
    ]
    env = os.environ | {"PATH": path, "HF_HOME": str(tmp_path / "home")}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=env)
    assert done.returncode == 0, done.stderr
    (samples,) = (tmp_path / "results").rglob("samples_story_endings*.jsonl")
    scored, run = [json.loads(line) for line in samples.read_text().splitlines()], open_model(made)
    assert len(scored) == len(ROWS)
    for sample in scored:
        for ending, response in zip(("right", "wrong"), sample["resps"], strict=True):
            expected = log_likelihood(run, sample["doc"]["beginning"], sample["doc"][ending])
            assert float(response[0][0]) == pytest.approx(expected, abs=1e-3)


# --- a hub on loopback that takes models in and gives them out: create, validate, preupload, LFS, commit, download


@dataclass
class Hub:
    """What a hub holds and has been asked."""

    files: dict[str, bytes] = field(default_factory=dict)  # path -> content, of its one repository
    blobs: dict[str, bytes] = field(default_factory=dict)  # sha256 -> content
    asked: list[str] = field(default_factory=list)
    created: dict[str, Any] = field(default_factory=dict)
    refuse: int | None = None  # a status to answer every upload with; 507: the files themselves only
    address: str = ""


@contextmanager
def serve(refuse: int | None = None) -> Iterator[Hub]:
    """A running hub."""
    hub = Hub(refuse=refuse)
    handler = type("UploadHub", (UploadHandler,), {"hub": hub, "repositories": {}, "dropping": None})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    hub.address = f"http://127.0.0.1:{server.server_port}"
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class UploadHandler(Handler):
    hub: Hub

    def do_GET(self) -> None:
        path = unquote(urlparse(self.path).path)
        if "/resolve/" in path:
            return self._file(self.hub.files, path.partition("/resolve/")[2].partition("/")[2])
        if path.startswith("/api/models/toy/model"):
            question = path.removeprefix("/api/models/toy/model").lstrip("/")
            return self._describe("toy/model", self.hub.files, question or "revision/main")
        return self._json({"error": "not found"}, 404)

    do_HEAD = do_GET

    def do_POST(self) -> None:
        body, path = self._body(), unquote(urlparse(self.path).path)
        self.hub.asked.append(path)
        if self.hub.refuse not in (None, 507):
            return self._json({"error": "no"}, self.hub.refuse)
        if path == "/api/repos/create":
            self.hub.created = json.loads(body)
            return self._json({"url": f"{self.hub.address}/toy/model"})
        if path == "/api/validate-yaml":
            head = yaml.safe_load(json.loads(body)["content"].split("---\n")[1])
            return self._json({"errors": [], "warnings": []}) if isinstance(head, dict) else self._json({}, 400)
        if "/preupload/" in path:
            return self._json({"files": [self._mode(file["path"]) for file in json.loads(body)["files"]]})
        if path.endswith("/info/lfs/objects/batch"):
            return self._json({"transfer": "basic", "objects": [self._place(o) for o in json.loads(body)["objects"]]})
        if "/commit/" in path:
            return self._commit(body)
        return self._json({"error": f"unknown question {path}"}, 500)

    def do_PUT(self) -> None:
        content = self._body()
        if self.hub.refuse is not None:
            return self._json({"error": "no room"}, self.hub.refuse)
        self.hub.blobs[hashlib.sha256(content).hexdigest()] = content
        return self._send(b"", 200, {})

    def _body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def _mode(self, path: str) -> dict[str, Any]:
        mode = "lfs" if path.endswith(".safetensors") else "regular"
        return {"path": path, "uploadMode": mode, "shouldIgnore": False, "oid": None}

    def _place(self, wanted: dict[str, Any]) -> dict[str, Any]:
        oid = wanted["oid"]
        return {"oid": oid, "size": wanted["size"], "actions": {"upload": {"href": f"{self.hub.address}/blob/{oid}"}}}

    def _commit(self, body: bytes) -> None:
        for line in map(json.loads, body.splitlines()):
            value = line["value"]
            if line["key"] == "file":
                self.hub.files[value["path"]] = base64.b64decode(value["content"])
            elif line["key"] == "lfsFile":
                self.hub.files[value["path"]] = self.hub.blobs[value["oid"]]
        self._json({"commitUrl": f"{self.hub.address}/toy/model/commit/{COMMIT}", "commitOid": COMMIT})
