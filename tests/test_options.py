"""Options from dataclasses and signatures: read from words and YAML, typed, explained; what was named is known."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pytest

from sympformer import cli, options
from sympformer.config_checks import check_types, fitted, plain
from sympformer.errors import InputError
from sympformer.files import read_yaml


@dataclass(frozen=True)
class Text:
    """Which text."""

    corpus: str = "stories"
    """Its name."""
    limit: int | None = None
    """At most so many documents."""


@dataclass(frozen=True)
class Run:
    """A run."""

    lr: float = 0.1
    """The rate,
    at its peak."""
    betas: tuple[float, float] = (0.9, 0.95)
    """Two of them."""
    kind: Literal["adamw", "muon"] = "adamw"
    rates: list[float] = field(default_factory=lambda: [0.1])
    text: Text = field(default_factory=Text)
    budget: Text | None = None
    model: dict[str, Any] = field(default_factory=dict, metadata={"options": f"{__name__}:model_options"})
    models: dict[str, dict[str, Any]] = field(default_factory=dict)


def model_options() -> dict[str, tuple[Any, Any, Any]]:
    return {"n_layer": (int, 4, "Number of layers."), "heads": (Literal["averaged", "multi"], "averaged", "Its heads.")}


heard: list[Any] = []


def command(run: Run, given: Mapping[str, Any], out: str = "here", resume: bool = False, runs: int = 1) -> int:
    """Run it.

    Args:
        out: Where to,
            in a new folder.
        resume: Go on.
        runs: How many.
    """
    heard.append((run, dict(given), out, resume, runs))
    return 0


def several(names: list[str], to: Path = Path("x")) -> None:
    """Do it to several."""
    heard.append((names, to))


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """Run a command line, with a config if there is a text; what the command has heard."""

    def run(*words: str, yaml: str | None = None, function: Any = command) -> Any:
        heard.clear()
        monkeypatch.setattr(cli, "load", lambda name: function)
        (tmp_path / "c.yaml").write_text(yaml or "")
        code = cli.main(["train", *([str(tmp_path / "c.yaml")] if yaml is not None else []), *words])
        assert code == 0 or not heard
        return heard[0] if heard else None

    return run


FILE = """
lr: 3e-4
kind: muon
rates: [1e-2, .5]
text: {corpus: on, limit: 1_000}
model: {n_layer: 08}
models:
  gpt-0.5: {variant: gpt, lr: [8e-3], tie: false, none: none, at: 1:30}
"""


def test_a_file_and_words_over_it(call: Any) -> None:
    run, given, out, resume, runs = call(
        "--lr", "1e-2", "--text.limit=2e3", "--resume", "--runs", "1e0", "--models.gpt-0.5.lr", "4", "--models.new.a=b",
        "--model.heads", "multi", "--betas", "0.8, .9", yaml=FILE,
    )  # fmt: skip
    model = {"n_layer": 8, "heads": "multi"}
    models: dict[str, dict[str, Any]] = {
        "gpt-0.5": {"variant": "gpt", "lr": 4, "tie": False, "none": "none", "at": "1:30"},
        "new": {"a": "b"},
    }
    assert run == Run(0.01, (0.8, 0.9), "muon", [0.01, 0.5], Text("on", 2000), None, model, models)
    assert (out, resume, runs, type(runs)) == ("here", True, 1, int)
    named = {"lr", "kind", "rates", "text.corpus", "text.limit", "model.n_layer", "model.heads", "models", "betas"}
    assert given.keys() == named | {"resume", "runs"}
    assert (given["lr"], given["model.n_layer"]) == (0.01, 8)


def test_what_is_not_named_has_its_default_and_none_can_be_named(call: Any) -> None:
    assert call() == (Run(), {}, "here", False, 1)
    run, given, *_ = call("--text.limit", "null", "--budget", "null", yaml="budget: {limit: 3}\nlr:\n  0.5\n")
    assert (run.text.limit, run.budget, given["budget"], run.lr) == (None, None, None, 0.5)
    assert call(yaml="budget: {limit: 3}\ntext:\n")[0].budget == Text(limit=3)


def test_a_group_as_a_whole_takes_the_place_of_all_of_it(call: Any) -> None:
    run, given, *_ = call("--text", "{limit: 3}", "--models", "{a: {b: 1}}", "--model", "{}", yaml=FILE)
    assert (run.text, run.models, run.model) == (Text(limit=3), {"a": {"b": 1}}, {})
    assert "text.corpus" not in given


def test_words_without_a_name(call: Any) -> None:
    assert call("a", "b", "--to", "y", function=several) == (["a", "b"], Path("y"))
    assert call("--names", "a,b", function=several) == (["a", "b"], Path("x"))


@pytest.mark.parametrize(
    ("words", "yaml", "said"),
    [
        (["--kidn=1"], None, "did you mean '--kind'?"),
        (["--model.heads", "mutli"], None, "did you mean 'multi'?"),
        (["--runs", "2.5"], None, "--runs must be int, got '2.5'"),
        (["--betas", "1"], None, "--betas must be 2 numbers, got ['1']"),
        (["--text", "3"], None, "--text must hold named options, got '3'"),
        (["--models.a", "3"], None, "models.a must hold named options, got '3'"),
        (["--models.a.lr.x", "3"], "models: {a: {lr: 1}}", "--models.a.lr.x: lr is no group of options"),
        ([], "given: 1", "unknown option 'given' in the config"),
    ],
)
def test_one_sentence_for_what_does_not_read(
    words: list[str], yaml: str | None, said: str, call: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(*words, yaml=yaml) is None
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1


def test_what_must_be_given_is_asked_for(call: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(function=several) is None
    assert "names is missing: sympformer train NAME [NAME ...] [--OPTION VALUE ...]" in capsys.readouterr().err


def test_help_shows_every_option_with_its_text(call: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("--lr", "3", "--help") is None
    page = " ".join(capsys.readouterr().out.split())
    for text in (
        "usage: sympformer train [CONFIG] [--OPTION VALUE ...] Run it.", "--lr FLOAT The rate, at its peak. (default: ",
        "--kind {adamw,muon} (default: adamw)", "--text.corpus TEXT Its name.", "--out TEXT Where to, in a new folder.",
        "They are listed by --model.help.", "cpu-small",
    ):  # fmt: skip
        assert text in page
    assert call("--model.help") is None
    assert "--model.n_layer INT Number of layers. (default: 4)" in " ".join(capsys.readouterr().out.split())


def test_values_from_python_are_held_against_their_types() -> None:
    check_types(Run(lr=1))
    wrong: list[dict[str, Any]] = [{"lr": "1"}, {"lr": True}, {"betas": [0.1, 0.2]}, {"kind": "adma"}, {"rates": 1}]
    for values in wrong:
        with pytest.raises(InputError):
            check_types(Run(**values))


def test_untyped_text_is_read_as_yaml_1_2() -> None:
    assert plain(["08", "3e-4", "1_000", "12:30:45", "2001-01-99", ".inf", "no", "null", "true", "[1, {a: 2}]"]) == [
        8, 3e-4, 1000, "12:30:45", "2001-01-99", float("inf"), "no", None, True, [1, {"a": 2}],
    ]  # fmt: skip
    assert fitted("x", int | float | str, "2.5") == 2.5
    assert fitted("x", list[str] | str, "a,b") == ["a", "b"]
    with pytest.raises(InputError, match="x must be int or float, got 'a'"):
        fitted("x", int | float, "a")


@pytest.mark.parametrize("path", sorted((Path(__file__).parents[1] / "configs").rglob("*.yaml")), ids=lambda p: p.stem)
def test_every_shipped_config_reads(path: Path) -> None:
    name = "compare" if {"models", "factors"} & read_yaml(path).keys() else "train"
    known = options.options_of(cli.load(name))
    assert options.read(known, [], read_yaml(path))
