"""A run as a folder that loads anywhere: the same logits, the same ids, a card that is filled, all or nothing."""

import ast
import json
import os
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from huggingface_hub import ModelCard
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, GenerationConfig, PreTrainedTokenizerFast
from transformers.dynamic_module_utils import get_relative_import_files

import sympformer.hf
from sympformer import audit, cli
from sympformer.data import Tokenizer, make_tokenizer, stories
from sympformer.data.tokenizers import END_OF_TEXT
from sympformer.errors import InputError
from sympformer.export import export as exporting
from sympformer.export.bundle import ENTRIES, bundle, flat_name, rewrite, source_of
from sympformer.export.card import card, plain
from sympformer.export.export import RECORD, export_run
from sympformer.models import VARIANTS
from sympformer.opening import open_model
from sympformer.provenance import this_code
from sympformer.training.checkpoint import Checkpoints, Progress
from sympformer.training.folder import RunFolder, tokenizer_config
from tests.data.places import MERGES, needs_merges
from tests.export.conftest import RunMaker
from tests.test_cli import error_of


def load(folder: Path) -> Any:
    """The causal model in a folder, by transformers, with our classes registered."""
    model = AutoModelForCausalLM.from_pretrained(folder)
    assert isinstance(model, sympformer.hf.SympFormerForCausalLM)
    return model


def tokens(vocab: int, length: int = 32) -> Tensor:
    return torch.randint(vocab, (3, length), generator=torch.Generator().manual_seed(0))


CHOICES: dict[str, dict[str, Any]] = {name: {"variant": name} for name in VARIANTS} | {
    f"{name} {value}": {"variant": "softmax-exp-euler", name: value}
    for name, value in (
        ("tie_head", False), ("share_layers", True), ("start_momentum", "embedded"),
        ("preset", "paper"), ("preset", "modern"),
    )
}  # fmt: skip


@pytest.mark.parametrize("choice", CHOICES)
@pytest.mark.usefixtures("quick_audit")
def test_the_same_model(choice: str, make_run: RunMaker, tmp_path: Path) -> None:
    """Weights, logits and texts; that a cached pass gives those of a whole one is the property of tests/hf."""
    run = make_run(**CHOICES[choice])
    export_run(run, tmp_path / "out")
    theirs, own = load(tmp_path / "out"), open_model(run).model
    ids = tokens(own.cfg.vocab_size)
    with torch.no_grad():
        assert torch.equal(theirs(ids, use_cache=False).logits, own(ids).logits)
        plain = own(ids).logits
        assert (theirs(ids).logits - plain).abs().max() <= 1e-6 * plain.abs().max().clamp_min(1)
    assert open_model(tmp_path / "out").about["sha256"] == open_model(run).about["sha256"]
    end = theirs.config.eos_token_id
    (text,) = theirs.generate(ids[:1, :5], do_sample=False)  # to its end, or as far as the model sees
    wanted = own.generate(ids[:1, :5], 28, temperature=0, stop_tokens=(end,))[0]
    assert torch.equal(text, wanted)


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


def test_what_the_folder_holds(trained: Path, exported: Path) -> None:
    assert {file.name for file in exported.iterdir()} >= {
        "config.json", "generation_config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json",
        "README.md", "modeling_sympformer.py", "configuration_sympformer.py", "sympformer_nn_parts.py", RECORD,
    }  # fmt: skip
    run, record, config = open_model(trained), json.loads((exported / RECORD).read_text()), load(exported).config
    assert config.to_model_config() == run.model.cfg
    assert config.auto_map["AutoModelForCausalLM"] == "modeling_sympformer.SympFormerForCausalLM"
    generation = GenerationConfig.from_pretrained(exported)
    assert generation.eos_token_id == generation.pad_token_id == run.tokenizer.end_of_text
    assert generation.max_length is None  # to the end of the text or of the context
    assert record["exported_by"] == this_code().to_dict()
    assert record["codes"] == [code.to_dict() for code in RunFolder.open(trained).codes]
    assert record["config"] == RunFolder.open(trained).config.to_dict()


# --- the tokenizer, as transformers reads it

EVERY = pytest.mark.parametrize("name", ["byte", "bpe:300", pytest.param("gpt2", marks=needs_merges)])
ODD = [
    "", " ", "\n\n \t\r\n", " leading and trailing  ", "naïve façade — “quotes” … 世界 مرحبا 🙂👩‍👩‍👧 e\u0301",
    "a\x00b\x7f\u200b\ufeff\u2028\u3000\xa0x", "don't I'LL we've   3.14159 1000000 __init__(self) , . ! ?",
    f"before {END_OF_TEXT} after{END_OF_TEXT}", "<|endoftext|><|endoftext", "x" * 2_000, "\U0010ffff\ud7ff",
]  # fmt: skip
any_text = st.text(st.characters(exclude_categories=["Cs"]), max_size=60)


@cache
def own(name: str) -> Tokenizer:
    return make_tokenizer(f"gpt2:{MERGES}" if name == "gpt2" else name, lambda: stories(100))


@pytest.fixture(scope="session")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A tokenizer of ours, loaded by transformers from the files that a run and an export hold."""

    @cache
    def loaded(name: str, kind: Any = AutoTokenizer) -> Any:
        folder = tmp_path_factory.mktemp("tokenizer")
        own(name).save(folder)
        for file, content in tokenizer_config(64).items():
            (folder / file).write_text(content)
        return kind.from_pretrained(folder)

    return loaded


@EVERY
@given(text=any_text, draw=st.lists(st.integers(0, 10**6), max_size=12))
def test_same_ids_and_texts(theirs: Any, name: str, text: str, draw: list[int]) -> None:
    """Broken UTF-8 and the end of a text included."""
    assert theirs(name)(text).input_ids == own(name).encode(text)
    ids = [i % own(name).vocab_size for i in draw]
    assert theirs(name).decode(ids) == own(name).decode(ids)


@EVERY
def test_odd_texts_and_special_tokens(theirs: Any, name: str) -> None:
    end = own(name).end_of_text
    for fast in (theirs(name), theirs(name, PreTrainedTokenizerFast)):
        assert isinstance(fast, PreTrainedTokenizerFast)
        assert len(fast) == own(name).vocab_size
        assert fast(ODD[1:]).input_ids == [own(name).encode(text) for text in ODD[1:]]
        assert [fast.decode(own(name).encode(text)) for text in ODD] == ODD
        assert (fast.bos_token_id, fast.eos_token_id, fast.pad_token_id) == (end, end, end)
        assert (fast.decode([end]), fast.decode([end], skip_special_tokens=True)) == (END_OF_TEXT, "")
        assert end not in fast(END_OF_TEXT).input_ids
        assert fast.encode(END_OF_TEXT, split_special_tokens=False) == [end]
        assert (fast.model_max_length, fast.padding_side) == (64, "left")
        batch = fast(["a", "a a a"], padding=True)
        assert (batch.input_ids[0][0], batch.attention_mask[0][0]) == (end, 0)


# --- the card


def test_the_card_is_filled_from_the_run(exported: Path, trained: Path) -> None:
    loaded = ModelCard.load(exported / "README.md")
    assert (loaded.data.library_name, loaded.data.pipeline_tag) == ("transformers", "text-generation")
    assert "softmax-exp-euler" in (loaded.data.tags or [])
    metrics = {result.metric_type: result.metric_value for result in loaded.data.eval_results or []}
    best = min(row["validation_loss"] for row in RunFolder.open(trained).metrics() if "validation_loss" in row)
    assert metrics["validation_loss"] == best
    checks = f"audit` passed ({len(json.loads((exported / RECORD).read_text())['audit']['rows'])} checks"
    facts = ("storybook:200", "2 of 2", "128, 64 a step", f"{best:.4f} nats", checks, "32 tokens", "the best of the")
    for fact in (*facts, f"| code | {this_code().label} |", "trust_remote_code=True"):
        assert fact in loaded.text, fact


@pytest.mark.parametrize(
    ("corpus", "dataset"),
    [("tinystories", "roneneldan/TinyStories"), ("hub:a/b:c", "a/b"), ("my: 'text' | #1\n- x", None)],
)
def test_corpora_in_the_card(corpus: str, dataset: str | None, exported: Path) -> None:
    """Those of the hub are linked; odd names stay valid YAML and Markdown."""
    record = json.loads((exported / RECORD).read_text())
    record["data"]["corpus"] = corpus
    text = card("a: b", AutoConfig.from_pretrained(exported).to_model_config(), 5, record)
    head = yaml.safe_load(text.split("---\n")[1])
    assert head.get("datasets") == (None if dataset is None else [dataset])
    assert head["model-index"][0]["results"][0]["dataset"]["name"] == corpus
    escaped = plain(corpus).replace("|", r"\|")
    assert f"| text | {escaped} |" in text


def test_names_are_text_in_the_card() -> None:
    assert plain("a_b/c-d 1.5") == "a_b/c-d 1.5"
    assert plain("x\n# <script>[a](b) `c` *d*\x1b") == r"x # \<script\>\[a\](b) \`c\` \*d\*"
    assert len(plain("y" * 1000)) == 200


def test_a_failed_audit_is_said(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    row = audit.AuditRow("prefix", "given", 1.0, 1e-9, 3)
    failed = audit.AuditReport([row], "float64", 4, 5, 0)
    monkeypatch.setattr(exporting, "audit_model", lambda model, **options: failed)
    said: list[str] = []
    assert export_run(trained, tmp_path / "out", say=said.append)["audit"]["passed"] is False
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
        record = export_run(run, tmp_path / which, which)  # type: ignore[arg-type]
        assert (record["which"], record["step"]) == (which, step)
        exported = load(tmp_path / which).to_language_model().state_dict()
        assert all(torch.equal(exported[name], weights[name]) for name in weights)


def test_all_or_nothing(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: object) -> str:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(exporting, "card", broken)
    with pytest.raises(InputError, match="No space left on device"):
        export_run(trained, tmp_path / "deep" / "out")
    assert list(tmp_path.iterdir()) == []


def test_bad_arguments(trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, full = str(tmp_path / "out"), tmp_path / "full"
    full.mkdir()
    (full / "mine").write_text("mine")
    for args, message in {
        ("none", out): "none does not exist: make one with 'sympformer train",
        (str(trained), out, "--which", "bset"): "did you mean 'best'?",
        (str(trained), out, "--push", "a/b/c"): "--push 'a/b/c' is not OWNER/NAME",
        (str(trained), out, "--push", "name"): "--push 'name' is not OWNER/NAME",
        (str(trained), out, "--private"): "--private goes with --push",
        (str(trained), str(full)): f"{full} exists and is left alone: choose another place",
        (str(trained), str(full / "mine")): f"{full / 'mine'} exists and is left alone: choose another place",
    }.items():
        assert message in error_of(capsys, "export", *args)
    assert [path.name for path in tmp_path.iterdir()] == ["full"]
    assert (full / "mine").read_text() == "mine"


# --- the bundle: nothing missing, nothing twice, nothing that only an installed sympformer could give


@pytest.fixture(scope="module")
def files() -> dict[str, str]:
    return bundle()


def imports(source: str) -> list[ast.Import | ast.ImportFrom]:
    return [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Import | ast.ImportFrom)]


def outside(source: str) -> set[str]:
    """The packages that a file imports by their full names."""
    nodes = imports(source)
    names = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    names += [node.module or "" for node in nodes if isinstance(node, ast.ImportFrom) and node.level == 0]
    return {name.split(".")[0] for name in names}


def test_it_is_whole_and_no_more(files: dict[str, str], tmp_path: Path) -> None:
    for name, source in files.items():
        (tmp_path / name).write_text(source)
        assert source.startswith("# sympformer/")
        assert "SPDX-License-Identifier: MIT" in source.splitlines()[0]
        for node in imports(source):
            if isinstance(node, ast.ImportFrom) and node.level:
                wanted = [node.module] if node.module else [alias.name for alias in node.names]
                assert all(f"{module}.py" in files for module in wanted), (name, wanted)
    reached = {Path(file).name for file in get_relative_import_files(tmp_path / "modeling_sympformer.py")}
    assert reached | {"modeling_sympformer.py"} == set(files)  # what transformers would copy
    packages = set[str]().union(*map(outside, files.values()))
    named = {"torch", "transformers", "huggingface_hub", "yaml", "numpy", "filelock"}  # all come with transformers
    assert packages - sys.stdlib_module_names <= named
    assert "sympformer_nn_steppers.py" in files
    for stranger in ("sympformer_progress", "sympformer_flows_simulate", "sympformer_training_run", "sympformer"):
        assert f"{stranger}.py" not in files


def test_only_the_imports_differ(files: dict[str, str]) -> None:
    def body(source: str) -> list[str]:
        return [ast.dump(node) for node in ast.parse(source).body if not isinstance(node, ast.Import | ast.ImportFrom)]

    for module in (*ENTRIES, "sympformer.models.config", "sympformer.ops", "sympformer.flows.integrators"):
        assert body(files[f"{flat_name(module)}.py"]) == body(source_of(module))


# --- the step itself, on a package of our own


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("sympformer.export.bundle.ROOT", root := tmp_path / "sympformer")
    for name, source in {
        "__init__.py": "from sympformer.a import unused\n",
        "a/__init__.py": "from sympformer.a.deep import thing as handed_on\nHERE = 1\n",
        "a/deep.py": "thing = 3\n",
        "a/other.py": "value = 5\n",
        "a_deep.py": "",
    }.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(source)
    return root


@pytest.mark.parametrize(
    ("line", "rewritten"),
    [
        ("from sympformer.a.deep import thing", "from .sympformer_a_deep import thing"),
        ("from sympformer.a import handed_on", "from .sympformer_a_deep import thing as handed_on"),
        ("from sympformer.a import handed_on as x, HERE", "from .sympformer_a_deep import thing as x"),
        ("from sympformer.a import HERE", "from .sympformer_a import HERE"),
        ("from sympformer.a import (\n    other,\n)", "from . import sympformer_a_other as other"),
        ("import sympformer.a.other as o", "from . import sympformer_a_other as o"),
        ("def f():\n    from sympformer.a.deep import thing", "    from .sympformer_a_deep import thing"),
        ("from os import path", "from os import path"),
    ],
)
def test_how_an_import_is_rewritten(line: str, rewritten: str, package: Path) -> None:
    (package / "start.py").write_text(f'"""Doc."""\n{line}\nAFTER = 1\n')
    source, _ = rewrite("sympformer.start")
    assert rewritten in source.splitlines()
    assert source.endswith("AFTER = 1\n")
    ast.parse(source)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("import sympformer.a", "write 'from ... import' instead"),
        ("from .a import HERE", "write the import in full"),
        ("from sympformer.a import *", "write the import in full"),
        ("from sympformer import version", "import version from the module that defines it"),
        ("from sympformer.none import x", "no module sympformer.none"),
        ("x = 1; from sympformer.a import HERE", "must stand on lines of its own"),
        (
            "from sympformer.a_deep import x\nfrom sympformer.a.deep import thing",
            r"would both become sympformer_a_deep\.py",
        ),
    ],
)
def test_imports_that_cannot_be_flattened(line: str, message: str, package: Path) -> None:
    (package / "start.py").write_text(f"{line}\n")
    with pytest.raises(ImportError, match=message):
        bundle(["sympformer.start"])
