"""The page as values and markup: small, rounded, nothing in it runs, and what was left out is said."""

import base64
import json
import re
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from sympformer.cli import main
from sympformer.errors import InputError
from sympformer.watching.command import look_at, watch, write
from sympformer.watching.record import ALIKE
from sympformer.watching.scene import (
    DIRECTIONS,
    FAINTEST,
    MOST_LINES,
    MOST_TOKENS,
    principal,
    rounded,
    scene,
    shown,
)
from tests.pages.dom import Node, read
from tests.watching.targets import EVIL_NAME, HOSTILE, Words, target

MANUAL = (Path(__file__).parents[2] / "docs" / "watch.md").read_text()


def test_tokens_and_numbers_are_spelled_out() -> None:
    spelled = {
        " a b": "␣a␣b",
        "": "∅",
        "x\ny\tz\0": "x⏎y␉z␀",
        "\u202eabc\u200f": "⟨202E⟩abc⟨200F⟩",
        "\ud800\u00a0": "⟨D800⟩⟨00A0⟩",
        "\u0301x": "◌\u0301x",
        "e\u0301": "e\u0301",
        "<b>&\U0001f680": "<b>&\U0001f680",
    }
    assert {text: shown(text) for text in spelled} == spelled
    values = torch.tensor([[1.23456, -2.0], [float("nan"), 1e-9]], dtype=torch.float64)
    assert rounded(values, 3) == [[1.23, -2], [None, 1e-9]]


def test_principal_axes_are_those_of_an_svd() -> None:
    x = torch.randn(5, 9, 24, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    basis, centre, shares = principal(x)
    rows = x.flatten(0, 1) - x.flatten(0, 1).mean(0)
    _, s, V = torch.linalg.svd(rows, full_matrices=False)
    torch.testing.assert_close(centre, x.mean((0, 1)))
    torch.testing.assert_close(shares, (s**2 / (s**2).sum())[:16])
    torch.testing.assert_close((basis.mT @ V.mT[:, :16]).abs(), torch.eye(16, dtype=torch.float64), rtol=0, atol=1e-8)


@pytest.fixture(scope="module")
def values() -> dict[str, Any]:
    subject, notes = look_at("ours", target("ours", "softmax-exp-euler"), "A text of bytes.")
    assert notes == []
    return scene(subject) | {"record": subject.record}


def unpacked(packed: dict[str, Any], *shape: int) -> np.ndarray:
    return np.frombuffer(base64.b64decode(packed["data"]), dtype="<i2").reshape(shape) * packed["unit"]


def test_positions_and_momenta_survive_the_packing(values: dict[str, Any]) -> None:
    record = values["record"]
    S, _, T, d = record.x.shape
    assert (S, T, d) == (5, 16, 16)
    basis, centre, _ = principal(record.x[:, 0])
    for name, expected in (("x", (record.x[:, 0] - centre) @ basis), ("y", record.y[:, 0] @ basis)):
        packed = values[name]
        assert np.abs(unpacked(packed, S, T, 16) - expected.numpy()).max() <= packed["unit"]


def test_what_is_said_of_tokens_and_layers(values: dict[str, Any]) -> None:
    record, lens = values["record"], values["lens"]
    assert values["tokens"] == [shown(c) for c in "A text of bytes."]
    assert values["starts"] == [0, 2]
    assert values["figures"]["size_x"] == rounded(record.size_x[:, 0], 3)
    assert values["figures"]["moved"][0] == [0] * 16
    assert values["curves"]["kinetic"] == rounded(record.physics.kinetic[:, 0].mean(-1))
    assert values["curves"]["h_x"] == [float(f"{row['h_x']:.4g}") for row in record.physics.scalars]
    guesses = np.array([ord(w) if len(w) == 1 else -1 for w in lens["words"]])[np.array(lens["guesses"])]
    readable = guesses.reshape(5, 16, 5)
    ids = record.lens.ids[:, 0].numpy()
    plain = (ids > 32) & (ids < 127)
    assert (readable[plain] == ids[plain]).all()
    assert plain.any()
    for layer, rows in zip(record.attention[:, 0, 0], values["attention"], strict=True):
        for row, kept in zip(layer, rows, strict=True):
            assert sorted(kept[::2]) == sorted((row >= 0.01).nonzero().flatten().tolist(), key=int)[:12] or len(kept) == 24  # fmt: skip  # noqa: E501
            assert kept[1::2] == sorted(kept[1::2], reverse=True)
            assert all(abs(row[j] - share / 1000) <= 6e-4 for j, share in zip(kept[::2], kept[1::2], strict=True))


# --- the whole page


def page_of(file: Path) -> tuple[str, Node, dict[str, Any]]:
    text = file.read_text(encoding="utf-8")
    tree = read(text)
    return text, tree, json.loads(tree.by_id("scene").text)


def test_markup_in_tokens_names_and_text_is_text(tmp_path: Path) -> None:
    words = Words([*HOSTILE, *(f"w{i}" for i in range(20))])
    evil = [target(EVIL_NAME, name, words) for name in ("softmax-exp-euler", "linear-yuriiformer")]
    write(tmp_path / "page.html", evil, "|".join(HOSTILE))
    text, tree, values = page_of(tmp_path / "page.html")
    assert len(tree.all("script")) == 5  # ours, and the island
    assert not tree.all("img")
    assert not [key for node in tree.walk() for key in node.attributes if key.startswith("on")]
    assert values["models"][0]["tokens"] == [shown(word) for word in HOSTILE]
    assert values["models"][0]["name"].startswith('<img src=x onerror=alert(5)> & "quotes" ⟨202E⟩\' (1)')
    assert tree.all("h1")[0].text.startswith("<img src=x")
    assert not re.search("[\u202a-\u202e\u2066-\u2069\u200e\u200f]", text)
    assert "http" not in text.replace("http-equiv", "").replace("http://www.w3.org/2000/svg", "")


def test_a_thousand_tokens_are_read_and_the_last_ones_shown(tmp_path: Path) -> None:
    began = time.process_time()
    long = target("long", "softmax-exp-euler", block_size=1024)
    write(tmp_path / "page.html", [long], "0123456789" * 100)
    _, tree, values = page_of(tmp_path / "page.html")
    (model,) = values["models"]
    assert time.process_time() - began < 10
    assert (tmp_path / "page.html").stat().st_size < 2e6
    assert model["first"] == 1000 - MOST_TOKENS
    assert len(model["tokens"]) == len(model["attention"][0]) == len(model["figures"]["size_x"][0]) == MOST_TOKENS
    assert f"The page shows the last {MOST_TOKENS} tokens that were read" in tree.text
    assert all(0 <= j < MOST_TOKENS for row in model["attention"][1] for j in row[::2])


def test_a_text_longer_than_the_context_is_cut_and_one_token_is_a_text(tmp_path: Path) -> None:
    write(tmp_path / "page.html", [target("short", "softmax-baseline", block_size=8)], "123456789")
    _, tree, values = page_of(tmp_path / "page.html")
    assert values["models"][0]["tokens"] == [*"12345678"]
    assert "short reads the first 8 of 9 tokens: its context holds no more." in tree.text
    write(tmp_path / "page.html", [target("one", "softmax-exp-euler", mlp="none", n_layer=1)], "x")
    _, _, values = page_of(tmp_path / "page.html")
    assert values["models"][0]["stages"] == ["embedding", "layer 1, attention"]
    assert values["models"][0]["lens"]["ranks"] == [0, 0]


def test_the_command_writes_a_page_of_variants(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "new" / "page.html"
    text = '<b>: "quoted" {x: [1]} #'
    assert main(["watch", "softmax-ab2", "linear-baseline", "--text", text, "--out", str(out)]) == 0
    assert capsys.readouterr().out == f"open {out} in a browser\n"
    _, tree, values = page_of(out)
    assert [model["family"] for model in values["models"]] == ["softmax", "linear"]
    assert values["models"][0]["tokens"] == [shown(c) for c in text]
    assert tree.all("q")[0].text == text
    assert "softmax-ab2: not trained, as it starts; it reads bytes." in tree.text


def test_wrong_input_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    bad = {
        "the text is empty": ["softmax-ab2", "--text", " "],
        "unknown model 'softmax-ab3'": ["softmax-ab3"],
        "cannot write the page": ["softmax-ab2", "--out", str(tmp_path / "file" / "page.html")],
    }
    for sentence, args in bad.items():
        assert main(["watch", *args]) == 2
        said = capsys.readouterr().err
        assert sentence in said
        assert said.count("\n") == 1
    with pytest.raises(InputError, match="say what to watch"):
        watch([])
    few = target("few", "softmax-baseline", vocab_size=50)
    with pytest.raises(InputError, match="few has no tokenizer, and too few token ids to read bytes"):
        write(tmp_path / "page.html", [few], "x")
    assert not (tmp_path / "page.html").exists()


def test_a_model_that_shows_no_rows_still_has_a_page(tmp_path: Path) -> None:
    bare = target("bare", "softmax-baseline")
    layers: Any = bare.model
    for block in layers.layers():
        shows: Any = block.attention.forward
        block.attention.forward = lambda x, view, own, shows=shows: shows(x, view._replace(kernels=None), own)
    write(tmp_path / "page.html", [bare], "abc")
    _, tree, values = page_of(tmp_path / "page.html")
    assert values["models"][0]["attention"] is None
    assert values["models"][0]["lens"] is not None
    assert "bare is shown without attention rows" in tree.text


# --- docs/watch.md


def test_the_snippet_of_the_manual_runs_and_its_numbers_are_those_of_the_code() -> None:
    (code,) = re.findall(r"```python\n(.*?)```", MANUAL, re.DOTALL)
    names: dict[str, Any] = {}
    exec(compile(code, "docs/watch.md", "exec"), names)
    said = [tuple(map(int, found.split(", "))) for found in re.findall(r"# \((\d+(?:, \d+)+)\)", code)]
    seen = names["seen"]
    assert [tuple(seen.x.shape), tuple(seen.attention.shape)] == said
    assert seen.y.shape == seen.x.shape
    assert "; ".join(stage.name for stage in seen.stages[:3]) in code
    assert f"the last {MOST_TOKENS} tokens" in MANUAL
    assert f"{DIRECTIONS} principal directions" in MANUAL
    assert f"{MOST_LINES} largest shares from {100 * FAINTEST:g} % on" in MANUAL
    assert f"a cosine of at least {ALIKE}" in MANUAL
