"""Wrong command lines and configs: exit code 2, one sentence that says what to do, nothing written."""

import math
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from sympformer import cli

LONG = "9" * 20
# a command line (a list where a word is odd), and what the sentence says
REFUSED: list[tuple[str | list[str], str]] = [
    ("flwo", "unknown command 'flwo': choose one of .*; did you mean 'flow'"),
    ("flow --system lienar", "did you mean 'linear'"),
    ("flow --form papre", "did you mean 'paper'"),
    ("flow --particels 3", "unknown option '--particels': did you mean '--particles'"),
    ("flow --nope=3", "unknown option '--nope'"),
    ("flow extra", "unknown system 'extra'"),
    ("flow linear extra", "unknown word 'extra': options are written --name value"),
    ("flow --dim two", "--dim must be int, got 'two'"),
    ("flow --dim", "--dim needs a value"),
    ("flow --causal maybe", "--causal must be bool, got 'maybe'"),
    ("flow --config missing.yaml", "cannot read missing.yaml: No such file"),
    ("flow --integrators ab3", "did you mean 'ab2'"),
    ("flow --particles 0", "particles must be at least 1, got 0"),
    ("flow --integrators ,", "integrators is empty"),
    ("flow --particles 1000000", "GB"),
    ("flow --dim 1", "dim must be at least 2"),
    ("flow --step 0", "step must be a positive number"),
    ("flow --step nan", "step must be"),
    ("flow --t0 0", "t0 must be positive when r > 0"),
    ("flow --t0 inf", "t0 must be"),
    ("flow --r -1", "r must not be negative"),
    ("flow --condition 0.5", "condition must lie between"),
    ("flow --max_passes 7", "max_passes must be at least 8"),
    ("flow --seed -1", "seed must be"),
    ("flow --system stein --causal true", "causal is an option of"),
    ("flow --form own", "form is an option of softmax"),
    ("audit softmax-ab3", "did you mean 'softmax-ab2'"),
    ("audit runs/none", "runs/none does not exist"),
    ("audit", "target is missing: sympformer audit TARGET"),
    ("audit linear-ab2 --length 500", "length 500 exceeds the 128 tokens"),
    ("audit linear-ab2 --lenght 5", "did you mean '--length'"),
    ("audit linear-ab2 --length 4 --json none/report.json", "give the name of a file in a folder that is there"),
    ("audit linear-ab2 --json ''", "give the name of a file in a folder that is there"),
    ("describe linear-etdab2", "did you mean 'linear-etd-ab2'"),
    ("configs cpu-smal", "did you mean 'cpu-small'"),
    ("configs --out x.yaml", "say which config to copy"),
    ("report", "targets is missing: sympformer report TARGET"),
    ("watch", "targets is missing: sympformer watch TARGET"),
    ("data prpare", "unknown data command 'prpare'.*did you mean 'prepare'"),
    ("data prepare missing.txt", "corpus 'missing.txt' is neither a known name nor a file"),
    (f"data prepare --limit {LONG}", "--limit is a number of more than 63 bits"),
    ("data prepare --separator ''", "separator"),
    ("data prepare --validation 1e-320", "too small|must be|at least|hold out"),
    ("train cpu-smal", "unknown config 'cpu-smal': choose one of .*the path of a .yaml file; did you mean 'cpu-small'"),
    ("train demo", "demo is a config of 'sympformer compare', not of 'sympformer train'"),
    (["train", "--out", "x" * 300], "File name too long"),
    ("train --model.variant []", "unknown variant"),
    ("train --model.preset {}", "unknown preset"),
    ("train --model.n_layer 1000000000", "the model would need at least .* GB of memory"),
    ("train --model.d_model 10000000 --model.n_head 1", "GB of memory"),
    ("train --model.n_layers 3", "did you mean '--model.n_layer'"),
    ("train --corpus x.txt", "unknown option '--corpus': did you mean '--data.corpus'"),
    ("train --n_layer 3", "unknown option '--n_layer': did you mean '--model.n_layer'"),
    ("train --steps 12:30:45", "--steps must be int"),
    ("train --steps " + "9" * 400, "--steps is a number of more than 63 bits"),
    ("train --lr " + "9" * 400, "lr must be positive and finite"),
    (["train", "--model.variant", "\x1b[2J\x07\n"], "unknown variant"),
    (["train", "--model.variant", "many words " * 500], "unknown variant"),
    (["train", "--out", "a\udcff"], "--out is not UTF-8 text"),
    ("compare demo --choose.steps 0", "a budget of 0 steps"),
    ("compare demo --jobs 0", "jobs must be at least 1"),
    ("bench --suites stpe", "did you mean 'step'"),
    ("bench --out .", "out must name a file"),
    ("bench --rounds 0", "rounds must be at least 1"),
    ("sample RUN --temperature 1e-320", "temperature"),
    ("sample RUN --top_p 1e-320", "top_p"),
    (f"sample RUN --seed {LONG}", "--seed is a number of more than 63 bits"),
    ("sample RUN --n 0", "n must be at least 1"),
    ("sample none", "none does not exist: make one with 'sympformer train --out none'"),
    ("sample --prompt", "--prompt needs a value"),
]
CONFIGS: dict[str | bytes, str] = {
    "a: &a [1]\nb: *a": "unknown option 'a' in the config",
    "model: " + "[" * 5000: "is not YAML",
    "- 1\n- 2\n": "must hold named options",
    "1.5": "must hold named options",
    "steps: [": "is not YAML",
    b"seed: 1\n# \xff": "is not UTF-8 text: byte 0xff at offset 10",
    b"\x00\x01": "special characters",
    "lr: 0.1\nlr: 0.2": "'lr' stands twice in line 1",
    "steps: " + "9" * 5_000: "steps must be int",
    f"lr: '{'9' * 400}'": "lr must be positive and finite",
    "config: 1.5": "unknown option 'config' in the config",
    "data: 1.5": "data must hold named options, got '1.5'",
    "stesp: 3": "did you mean 'steps'",
    "data: {corpsu: 3}": "unknown option 'data.corpsu' in the config: did you mean 'data.corpus'",
}
COUNT: tuple[Any, ...] = (0, -3, -0.5, "", "many", [], {}, "1,2")
RATE: tuple[Any, ...] = (0.0, -1.0, math.nan, math.inf, "x", [])
BAD_VALUES: dict[str, tuple[Any, ...]] = {
    **dict.fromkeys(("steps", "tokens", "batch_size", "accumulate", "log_every", "eval_every", "keep_last"), COUNT),
    **dict.fromkeys(("checkpoint_every", "eval_tokens", "sample_every", "data.limit"), COUNT),
    **dict.fromkeys(("model.n_layer", "model.n_head", "model.d_model", "model.block_size"), COUNT),
    **dict.fromkeys(("lr", "clip", "scalar_lr_factor", "model.h_x", "model.h_y", "data.validation"), RATE),
    **dict.fromkeys(("optimizer", "precision", "device", "strategy", "model.form"), ("nothing-such", "")),
    **dict.fromkeys(("model.variant", "model.preset"), ("nothing-such", "")),
    "betas": ("1", "[1]", "[0.9, 1.5]", "[0.9, x]", "[]", "0.9"),
    "seed": ("-1", "x", "1.5"),
    "tensorboard": ("maybe", "2"),
    "resume": ("true", "maybe"),  # there is no run to resume
    "data.corpus": ("/nowhere.txt", "no-such-corpus", "", "hub:"),
    "data.tokenizer": ("bpe:x", "bpe:-1", "gpt3", ""),
    "out": ("/proc/none/run", "\0"),
    **dict.fromkeys(("stesp", "model.n_layers", "data.corpsu", "learning_rate", "n_layer", "data.data.corpus"), (3,)),
}

Refuse = Callable[..., str]


@pytest.fixture
def refuse(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Refuse:
    """Run a command that must fail in an empty folder and leave it so; what it says."""
    monkeypatch.setenv("SYMPFORMER_CACHE", str(tmp_path / "cache"))
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")

    def run(*args: str) -> str:
        capsys.readouterr()
        assert cli.main(args) == 2, args
        said = capsys.readouterr()
        assert (said.out, said.err.count("\n"), said.err[:19]) == ("", 1, "sympformer: error: "), args
        assert list((tmp_path / "here").iterdir()) == []
        assert len(said.err) < 800
        assert "\x1b" not in said.err
        assert all(len(arg) <= 200 or arg[:200] not in said.err for arg in args)
        return said.err

    return run


@pytest.mark.parametrize(("line", "said"), REFUSED, ids=lambda part: str(part)[:40])
def test_a_wrong_line(line: str | list[str], said: str, refuse: Refuse, request: pytest.FixtureRequest) -> None:
    words = shlex.split(line) if isinstance(line, str) else line
    known = {"RUN": request.getfixturevalue("tiny_run")} if "RUN" in words else {}
    assert re.search(said, refuse(*(known.get(word, word) for word in words)))


@pytest.mark.parametrize("content", CONFIGS, ids=lambda content: repr(content)[:30])
def test_a_wrong_config(content: str | bytes, refuse: Refuse, tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_bytes(content if isinstance(content, bytes) else content.encode())
    assert CONFIGS[content] in refuse("train", str(tmp_path / "bad.yaml"))


@pytest.mark.parametrize("name", BAD_VALUES)
def test_no_value_of_train_slips_through(name: str, refuse: Refuse, tmp_path: Path) -> None:
    for value in BAD_VALUES[name]:
        refuse("train", f"--{name}={value}")
        if name != "resume":
            nested = value
            for part in reversed(name.split(".")):
                nested = {part: nested}
            (tmp_path / "bad.yaml").write_text(yaml.safe_dump(nested))
            refuse("train", "--config", str(tmp_path / "bad.yaml"))
