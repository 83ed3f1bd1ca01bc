"""The exported folder where sympformer is not installed, and on a loopback hub, each in a process of its own."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from sympformer.exchange.exporting import export_run
from sympformer.opening import open_model
from tests.exchange.conftest import RunMaker
from tests.exchange.upload_server import serve

# Loads a model by the code in its folder, where `import sympformer` fails; prints what it gives.
BLOCKED = """
import json, sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.split('.')[0] == 'sympformer':
            raise ModuleNotFoundError("No module named 'sympformer'")

sys.meta_path.insert(0, Missing())
try:
    import sympformer
except ModuleNotFoundError:
    pass
else:
    sys.exit('sympformer is installed here')
"""
PROGRAM = (
    BLOCKED
    + """
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

torch.set_num_threads(1)
ids = torch.tensor(json.loads(sys.argv[1]))
for name, again in json.loads(sys.argv[2]):
    tokenizer = AutoTokenizer.from_pretrained(name, trust_remote_code=True)
    model = AutoModelForCausalLM.from_pretrained(name, trust_remote_code=True)
    with torch.no_grad():
        logits = model(ids, use_cache=False).logits
    texts = [model.generate(ids[:, :4], do_sample=False, max_length=16, use_cache=c).tolist() for c in (True, False)]
    if again:
        model.save_pretrained(again)
        tokenizer.save_pretrained(again)
    print(json.dumps([type(model).__module__, logits.tolist(), texts, tokenizer('One day 🙂').input_ids]))
assert not [m for m in sys.modules if m.split('.')[0] == 'sympformer']
"""
)
VARIED = ("softmax-baseline", "softmax-yuriiformer", "softmax-etd-ab2", "linear-exp-euler", "linear-ab2")
IDS = torch.randint(250, (2, 20), generator=torch.Generator().manual_seed(0)).tolist()


def environment(home: Path, **values: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HF_")}
    return kept | {"HF_HOME": str(home), "HF_HUB_DISABLE_TELEMETRY": "1", "HF_HUB_DISABLE_XET": "1", **values}


def run(program: list[str], env: dict[str, str], cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """A process that nobody answers: a question of transformers would end it."""
    command = [sys.executable, *program]
    return subprocess.run(
        command, capture_output=True, text=True, env=env, cwd=cwd, timeout=300, check=False, stdin=subprocess.DEVNULL
    )


def assert_like_the_runs(names: list[tuple[str, str | None]], runs: list[Path], env: dict[str, str]) -> None:
    """Load models by name where sympformer is not, save them again where wanted, and compare them with their runs."""
    done = run(["-c", PROGRAM, json.dumps(IDS), json.dumps(names)], env)
    assert done.returncode == 0, done.stderr
    for line, folder in zip(done.stdout.splitlines(), runs, strict=True):
        module, logits, (cached, plain), ids = json.loads(line)
        assert module.startswith("transformers_modules.")
        trained = open_model(folder)
        with torch.no_grad():
            expected = trained.model(torch.tensor(IDS)).logits
        torch.testing.assert_close(torch.tensor(logits), expected, rtol=0, atol=1e-6)
        assert cached == plain
        assert ids == trained.tokenizer.encode("One day 🙂")


@pytest.mark.slow
@pytest.mark.usefixtures("quick_audit")
def test_loads_where_sympformer_is_not_installed(make_run: RunMaker, tmp_path: Path) -> None:
    made = [make_run(variant=variant) for variant in VARIED]
    outs, again = ([tmp_path / f"{kind}-{name}.v1" for name in VARIED] for kind in ("out", "again"))
    for folder, out in zip(made, outs, strict=True):
        export_run(folder, out)
    env = environment(tmp_path / "home", HF_HUB_OFFLINE="1")
    assert_like_the_runs([(str(out), str(saved)) for out, saved in zip(outs, again, strict=True)], made, env)
    # what was saved there loads there too: the source went along
    assert_like_the_runs([(str(saved), None) for saved in again], made, env)


@pytest.mark.slow
def test_the_code_of_the_card_runs_as_it_stands(exported: Path, tmp_path: Path) -> None:
    code = (exported / "README.md").read_text(encoding="utf-8").split("```python\n")[1].split("```")[0]
    env = environment(tmp_path / "home", HF_HUB_OFFLINE="1")
    done = run(["-c", BLOCKED + code], env, cwd=exported.parent)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("One day")


@pytest.mark.slow
def test_push_and_load_from_the_hub(trained: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    with serve() as hub:
        env = environment(tmp_path / "home", HF_ENDPOINT=hub.address, HF_TOKEN="hf_test")
        done = run(["-m", "sympformer", "export", str(trained), str(out), "--push", "toy/model", "--private"], env)
        assert done.returncode == 0, done.stderr
        assert done.stdout.endswith(f"pushed to {hub.address}/toy/model\n")
        assert (hub.created["organization"], hub.created["name"]) == ("toy", "model")
        assert hub.created.get("visibility") == "private" or hub.created.get("private") is True
        assert {"/api/repos/create", "/api/models/toy/model/commit/main"} <= set(hub.asked)
        assert hub.files == {file.name: file.read_bytes() for file in out.iterdir()}
        assert b"name = 'toy/model'" in hub.files["README.md"]
        assert_like_the_runs([("toy/model", None)], [trained], env)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("status", "message"),
    [(401, "the hub does not let you write to toy/model (status 401)"), (None, "the folder did not reach the hub (")],
)
def test_a_push_that_fails_leaves_the_folder(status: int | None, message: str, trained: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    with serve(status) as hub:
        address = hub.address if status else "http://127.0.0.1:9"
        env = environment(tmp_path / "home", HF_ENDPOINT=address, HF_TOKEN="hf_test")
        done = run(["-m", "sympformer", "export", str(trained), str(out), "--push", "toy/model"], env)
    assert done.returncode == 2
    assert done.stderr.startswith(f"sympformer: error: {message}"), done.stderr
    assert done.stderr.endswith(f"the folder {out} is whole: try again with 'hf upload toy/model {out}'\n")
    assert done.stderr.count("\n") == 1
    assert (out / "model.safetensors").is_file()
    assert hub.files == {}
