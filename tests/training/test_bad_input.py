"""Two hundred command lines and config files that are wrong in some way: one sentence, exit code 2, nothing written."""

import contextlib
import io
import os
import tempfile
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sympformer import cli

NOT_POSITIVE = st.one_of(st.integers(max_value=0), st.just(-0.5), st.sampled_from(["", "many", [], {}, "1,2"]))
NOT_A_RATE = st.one_of(st.floats(max_value=0), st.just(float("nan")), st.just(float("inf")), st.sampled_from(["x", []]))
WORD = st.text(st.characters(codec="ascii", exclude_characters="\0"), max_size=12)
KNOWN_WORDS = {"adamw", "muon", "float32", "bfloat16", "float16", "auto", "cpu", "cuda", "ddp", "fsdp2"}
NOT_A_CHOICE: st.SearchStrategy[str] = WORD.filter(lambda word: word.strip("'\" ") not in KNOWN_WORDS)

BAD_VALUES: dict[str, st.SearchStrategy[Any]] = {
    **dict.fromkeys(["steps", "tokens", "batch_size", "accumulate", "log_every", "eval_every"], NOT_POSITIVE),
    **dict.fromkeys(["checkpoint_every", "keep_last", "eval_tokens", "sample_every", "data.limit"], NOT_POSITIVE),
    **dict.fromkeys(["model.n_layer", "model.n_head", "model.d_model", "model.block_size"], NOT_POSITIVE),
    **dict.fromkeys(["lr", "clip", "scalar_lr_factor", "model.h_x", "model.h_y", "data.validation"], NOT_A_RATE),
    **dict.fromkeys(["optimizer", "precision", "device", "strategy"], NOT_A_CHOICE),
    **dict.fromkeys(["model.variant", "model.preset", "model.architecture", "model.form"], st.just("nothing-such")),
    "betas": st.sampled_from(["1", "[1]", "[0.9, 1.5]", "[0.9, x]", "[]", "0.9"]),
    "seed": st.sampled_from(["-1", "x", "1.5"]),
    "tensorboard": st.sampled_from(["maybe", "2"]),
    "resume": st.sampled_from(["true", "maybe"]),  # there is no run to resume
    "data.corpus": st.sampled_from(["/nowhere.txt", "no-such-corpus", "", "hub:"]),
    "data.tokenizer": st.sampled_from(["bpe:x", "bpe:-1", "gpt3", ""]),
    "data.folder": st.sampled_from(["/nowhere", "."]),
    "out": st.sampled_from(["/proc/none/run", "\0"]),
}
UNKNOWN = st.sampled_from(
    ["stesp", "model.n_layers", "data.corpsu", "learning_rate", "n_layer", "x", "data.data.corpus"]
)
one_wrong_option = st.sampled_from(sorted(BAD_VALUES)).flatmap(lambda name: BAD_VALUES[name].map(lambda v: (name, v)))
wrong_options = st.one_of(one_wrong_option, one_wrong_option, one_wrong_option, st.tuples(UNKNOWN, st.just(3)))


def nested(name: str, value: Any) -> dict[str, Any]:
    for part in reversed(name.split(".")):
        value = {part: value}
    return value


def run(args: list[str]) -> tuple[int, str, list[Path]]:
    """Exit code, what was said, and the files left in an empty working directory."""
    said, before = io.StringIO(), Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
                code = cli.main(["train", *args])
        finally:
            os.chdir(before)
        return code, said.getvalue(), list(Path(folder).rglob("*"))


@pytest.fixture(scope="module", autouse=True)
def wired(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(cli.COMMANDS, "train", ("sympformer.training.commands:train", ""))
        patch.setenv("SYMPFORMER_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.mark.slow
@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(option=wrong_options, by_file=st.booleans())
def test_two_hundred_wrong_inputs(option: tuple[str, Any], by_file: bool, tmp_path_factory: Any) -> None:
    name, value = option
    if by_file and name != "resume":
        file = tmp_path_factory.mktemp("config") / "bad.yaml"
        file.write_text(yaml.safe_dump(nested(name, value)))
        args = ["--config", str(file)]
    else:
        args = [f"--{name}={value}"]
    code, said, left = run(args)
    assert code == 2, said
    assert said.startswith("sympformer: error: ")
    assert said.count("\n") == 1
    assert "Traceback" not in said
    assert left == []


@pytest.mark.slow
@settings(max_examples=50, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(text=st.one_of(WORD, st.binary(max_size=30).map(lambda b: b.decode("latin1"))))
def test_files_of_any_text(text: str, tmp_path_factory: Any) -> None:
    file = tmp_path_factory.mktemp("config") / "bad.yaml"
    file.write_text(text + "\nstesp: 3\n")
    code, said, left = run(["--config", str(file)])
    assert (code, left) == (2, [])
    assert said.startswith("sympformer: error: ")
    assert said.count("\n") == 1
