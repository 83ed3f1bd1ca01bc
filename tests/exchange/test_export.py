"""A run as a Hugging Face folder: the same logits, the same generation, a card that is filled, and exact ways back."""

import copy
import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from huggingface_hub import ModelCard
from torch import Tensor
from transformers import AutoConfig, AutoTokenizer, GenerationConfig

from sympformer import audit, cli
from sympformer.errors import InputError
from sympformer.exchange.card import CardFacts, card
from sympformer.exchange.exporting import export_run
from sympformer.exchange.record import RECORD, Record
from sympformer.models import VARIANTS, LanguageModel
from sympformer.opening import open_model
from sympformer.provenance import this_code
from sympformer.training.checkpoint import Checkpoints, Progress
from sympformer.training.folder import RunFolder
from tests.exchange.conftest import RunMaker, load

every_variant = pytest.mark.parametrize("variant", VARIANTS)


def tokens(vocab: int, length: int = 32) -> Tensor:
    return torch.randint(vocab, (3, length), generator=torch.Generator().manual_seed(0))


def assert_same_logits(theirs: Any, own: LanguageModel) -> None:
    """Bit for bit where both go the same way. A forward pass of transformers fills a cache unless told not to; in
    float32 our own cached and plain passes differ by rounding too, up to 1.4e-6, so across the two it is float64.
    """
    ids = tokens(own.cfg.vocab_size)
    with torch.no_grad():
        assert torch.equal(theirs(ids, use_cache=False).logits, own(ids).logits)
        hidden = own.hidden(ids, own.new_cache(len(ids)), constants=own.constants(numbers=True))  # as theirs
        assert torch.equal(theirs(ids).logits, torch.nn.functional.linear(hidden, own.head_weight))
        exact = copy.deepcopy(own).double()(ids).logits
        torch.testing.assert_close(copy.deepcopy(theirs).double()(ids).logits, exact, rtol=0, atol=1e-12)
        plain = own(ids).logits
        assert (theirs(ids).logits - plain).abs().max() <= 1e-6 * plain.abs().max().clamp_min(1)


@every_variant
@pytest.mark.usefixtures("quick_audit")
def test_every_variant(variant: str, make_run: RunMaker, tmp_path: Path) -> None:
    run, out = make_run(variant=variant), tmp_path / "out"
    export_run(run, out)
    theirs, own = load(out), open_model(run).model
    assert_same_logits(theirs, own)
    ids = tokens(own.cfg.vocab_size)
    greedy = [theirs.generate(ids[:, :5], do_sample=False, use_cache=c, max_length=20) for c in (True, False)]
    assert torch.equal(greedy[0], greedy[1])
    expected = own.generate(ids[:, :5], 15, temperature=0, stop_tokens=(theirs.config.eos_token_id,))
    assert isinstance(expected, torch.Tensor)
    assert torch.equal(greedy[0], expected)
    assert open_model(out).about["sha256"] == open_model(run).about["sha256"]


@pytest.mark.slow
@every_variant
@pytest.mark.usefixtures("quick_audit")
def test_audit_of_the_exported_folder(variant: str, make_run: RunMaker, tmp_path: Path) -> None:
    export_run(make_run(variant=variant), tmp_path / "out")
    report = audit.audit_model(load(tmp_path / "out"), length=24)
    assert report.passed, report.worst


@pytest.mark.parametrize(
    "options",
    [
        {"tie_head": False},
        {"share_layers": True},
        {"start_momentum": "embedded"},
        {"preset": "paper"},
        {"preset": "modern"},
    ],
    ids=lambda options: "-".join(map(str, *options.items())),
)
@pytest.mark.usefixtures("quick_audit")
def test_other_choices(options: dict[str, object], make_run: RunMaker, tmp_path: Path) -> None:
    run = make_run(variant="softmax-exp-euler", **options)
    export_run(run, tmp_path / "out")
    assert_same_logits(load(tmp_path / "out"), open_model(run).model)
    assert open_model(tmp_path / "out").about["sha256"] == open_model(run).about["sha256"]


@pytest.mark.parametrize("umask", [0o022, 0o077])
@pytest.mark.usefixtures("quick_audit")
def test_who_may_read_it(umask: int, trained: Path, tmp_path: Path) -> None:
    """The weights too: a folder to be served or shared is read by others."""
    before = os.umask(umask)
    try:
        export_run(trained, tmp_path / "out")
    finally:
        os.umask(before)
    assert {file.stat().st_mode & 0o777 for file in (tmp_path / "out").iterdir()} == {0o666 & ~umask}


def test_the_record_tells_the_code(trained: Path, exported: Path) -> None:
    record = Record(**json.loads((exported / RECORD).read_text()))
    assert record.environment["exported_by"] == this_code().to_dict()
    assert record.environment["codes"] == [code.to_dict() for code in RunFolder.open(trained).codes]
    assert f"| code | {this_code().label} |" in (exported / "README.md").read_text()


def test_what_the_folder_holds(trained: Path, exported: Path) -> None:
    names = {file.name for file in exported.iterdir()}
    assert names >= {
        "config.json", "generation_config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json",
        "README.md", "modeling_sympformer.py", "configuration_sympformer.py", "sympformer_nn_parts.py", RECORD,
    }  # fmt: skip
    run = open_model(trained)
    config = AutoConfig.from_pretrained(exported)
    assert config.to_model_config() == run.model.cfg
    assert config.auto_map["AutoModelForCausalLM"] == "modeling_sympformer.SympFormerForCausalLM"
    generation = GenerationConfig.from_pretrained(exported)
    assert generation.eos_token_id == generation.pad_token_id == run.tokenizer.end_of_text
    assert generation.max_length is None  # to the end of the text or of the context
    loaded = AutoTokenizer.from_pretrained(exported)
    assert loaded("One day\n🙂").input_ids == run.tokenizer.encode("One day\n🙂")


def test_a_text_ends_where_the_context_does(exported: Path) -> None:
    model = load(exported)
    (text,) = model.generate(tokens(300, 3)[:1])
    assert 3 < len(text) <= 33  # the last token takes no place


# --- the card


def test_the_card_is_filled_from_the_run(exported: Path, trained: Path) -> None:
    loaded = ModelCard.load(exported / "README.md")
    assert loaded.data.library_name == "transformers"
    assert loaded.data.pipeline_tag == "text-generation"
    assert "softmax-exp-euler" in (loaded.data.tags or [])
    metrics = {result.metric_type: result.metric_value for result in loaded.data.eval_results or []}
    best = min(row["validation_loss"] for row in RunFolder.open(trained).metrics() if "validation_loss" in row)
    assert metrics["validation_loss"] == best
    for fact in (
        "storybook:200",
        "2 of 2",
        "128, 64 a step",
        f"{best:.4f} nats",
        "audit` passed (12 checks",
        "32 tokens",
    ):
        assert fact in loaded.text, fact
    assert "trust_remote_code=True" in loaded.text


def test_odd_names_stay_valid_yaml_and_markdown(exported: Path) -> None:
    record = Record(**json.loads((exported / RECORD).read_text()))
    odd = "my: 'text' | #1\n- x"
    record.environment["data"]["corpus"] = odd
    text = card(CardFacts("a: b", AutoConfig.from_pretrained(exported).to_model_config(), 5, record))
    head = yaml.safe_load(text.split("---\n")[1])
    assert head["model-index"][0]["results"][0]["dataset"]["name"] == odd
    assert "| text | my: 'text' \\| #1 - x |" in text


@pytest.mark.parametrize(("corpus", "dataset"), [("tinystories", "roneneldan/TinyStories"), ("hub:a/b:c", "a/b")])
def test_datasets_of_the_hub_are_linked(corpus: str, dataset: str, exported: Path) -> None:
    record = Record(**json.loads((exported / RECORD).read_text()))
    record.environment["data"]["corpus"] = corpus
    text = card(CardFacts("x", AutoConfig.from_pretrained(exported).to_model_config(), 5, record))
    assert yaml.safe_load(text.split("---\n")[1])["datasets"] == [dataset]


def test_a_failed_audit_is_said(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    row = audit.AuditRow("prefix", "given", 1.0, 1e-9, 3)
    monkeypatch.setattr(audit, "audit_model", lambda model, **options: audit.AuditReport([row], "float64", 4, 5, 0))
    said: list[str] = []
    record = export_run(trained, tmp_path / "out", say=said.append)
    assert record.audit["passed"] is False
    assert "the audit failed" in said[0]
    text = (tmp_path / "out" / "README.md").read_text()
    assert "`sympformer audit` **failed**" in text
    assert row.sentence in text


# --- the command


def test_the_command(trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    assert cli.main(["export", str(trained), str(out), "--which", "last"]) == 0
    assert capsys.readouterr().out == f"{out}: the model of {trained}, step 2 (last), audit passed\n"
    assert json.loads((out / RECORD).read_text())["which"] == "last"
    assert cli.main(["sample", str(out), "--max_new_tokens", "4"]) == 0


@pytest.mark.usefixtures("quick_audit")
def test_which_weights(make_run: RunMaker, tmp_path: Path) -> None:
    run = make_run(variant="softmax-baseline")
    best = open_model(run).model.state_dict()
    last = {name: tensor + 1 for name, tensor in best.items()}
    Checkpoints(run).save(Progress(step=7), last, {})
    for which, weights, step in (("best", best, 1), ("last", last, 7)):
        record = export_run(run, tmp_path / which, which)
        assert (record.which, record.progress["step"]) == (which, step)
        exported = load(tmp_path / which).to_language_model().state_dict()
        assert all(torch.equal(exported[name], weights[name]) for name in weights)


@pytest.mark.parametrize("held", ["file", "full"])
def test_a_place_that_holds_something_is_refused(
    held: str, trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    if held == "file":
        out.write_text("mine")
    else:
        out.mkdir()
        (out / "mine").write_text("mine")
    assert cli.main(["export", str(trained), str(out)]) == 2
    assert capsys.readouterr().err == f"sympformer: error: {out} exists and is left alone: choose another place\n"
    assert (out if held == "file" else out / "mine").read_text() == "mine"


def test_nothing_is_left_when_the_export_breaks(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: object) -> str:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("sympformer.exchange.exporting.card", broken)
    with pytest.raises(InputError, match="No space left on device"):
        export_run(trained, tmp_path / "deep" / "out")
    assert list(tmp_path.iterdir()) == []


def test_bad_arguments(trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = str(tmp_path / "out")
    for args, message in {
        ("none", out): "none does not exist: make one with 'sympformer train",
        (str(trained), out, "--which", "bset"): "did you mean 'best'?",
        (str(trained), out, "--push", "a/b/c"): "--push 'a/b/c' is not OWNER/NAME",
        (str(trained), out, "--push", "name"): "--push 'name' is not OWNER/NAME",
        (str(trained), out, "--private"): "--private goes with --push",
    }.items():
        assert cli.main(["export", *args]) == 2
        err = capsys.readouterr().err
        assert message in err
        assert err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_names_are_text_in_the_card() -> None:
    from sympformer.exchange.card import plain

    assert plain("a_b/c-d 1.5") == "a_b/c-d 1.5"
    assert plain("x\n# <script>[a](b) `c` *d*\x1b") == r"x # \<script\>\[a\](b) \`c\` \*d\*"
    assert len(plain("y" * 1000)) == 200
