"""The page as values and markup: small, rounded, nothing in it runs, what was left out is said; and in a browser."""

import base64
import json
import re
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

from sympformer.cli import main
from sympformer.errors import InputError
from sympformer.opening import Opened
from sympformer.pages import Html, data_island, document, tag, theme_button, write_page
from sympformer.watching.command import look_at, watch, write
from sympformer.watching.record import ALIKE
from sympformer.watching.scene import DIRECTIONS, FAINTEST, MOST_LINES, MOST_TOKENS, principal, rounded, scene, shown
from tests.browser import Node, Visit, Visitor, read
from tests.models.cases import make
from tests.test_cli import error_of

if TYPE_CHECKING:
    from playwright.sync_api import Page

MANUAL = (Path(__file__).parents[2] / "docs" / "watch.md").read_text()
HOSTILE = [
    "<script>alert(1)</script>",
    "</script><script>alert(2)</script>",
    "<!--<script>",
    "'\"><img src=x onerror=alert(3)>",
    "&lt;b&gt;&amp; &#0;",
    "\u202eright to left\u202c",
    "\u05e9\u05dc\u05d5\u05dd\u200f",
    "a\u0000\u0007\nb",
    "\U0001f469\u200d\U0001f52c\U0001f680",
    "\u2028`${alert(4)}`\\u003c",
    "\u0301\ud800",
]
EVIL_NAME = '<img src=x onerror=alert(5)> & "quotes" \u202e\''


@dataclass(frozen=True)
class Words:
    """Texts are words with bars between them."""

    words: list[str]
    end_of_text: int | None = None

    def encode(self, text: str) -> list[int]:
        return [self.words.index(word) for word in text.split("|")]

    def decode(self, ids: list[int]) -> str:
        return "|".join(self.words[token] for token in ids)


def target(name: str, variant: str, tokenizer: Any = None, **options: Any) -> Opened:
    """A perturbed model of a variant; without a tokenizer it reads bytes."""
    size: dict[str, Any] = {"n_layer": 2, "d_model": 16, "block_size": 64}
    size["vocab_size"] = 256 if tokenizer is None else len(tokenizer.words)
    model = make(variant, **size | options)
    return Opened(name, "factory", model.float(), tokenizer, model.cfg.vocab_size, model.cfg.block_size)


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
        assert sentence in error_of(capsys, "watch", *args)
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


# --- in a real browser: slider, play, pointer, keys and choices do what they say; nothing runs that is text

NONE = "\N{EN DASH}"
TEXT = "A little dog ran home."
FRAME = """() => {
  const began = performance.now();
  for (let n = 0; n < 20; n++) { state.at = n / 5; show(); }
  return (performance.now() - began) / 20;
}"""


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with momenta beside one without, on the same bytes."""
    file = tmp_path_factory.mktemp("watch") / "page.html"
    write(file, [target(name, name) for name in ("softmax-exp-euler", "softmax-baseline")], TEXT)
    return file


def clean(seen: Visit) -> None:
    assert seen.fits()
    assert (seen.troubles, seen.requests) == ([], [])


def places(page: "Page", n: int = 0) -> list[Any]:
    """Where the tokens of model n are."""
    circles = page.locator(".space svg").nth(n).locator(".points circle")
    return list(
        circles.evaluate_all("all => all.map(c => [Number(c.getAttribute('cx')), Number(c.getAttribute('cy'))])")
    )


def on_screen(svg: Any, spot: list[float]) -> tuple[float, float]:
    """Where a spot of the picture is, in the window."""
    svg.scroll_into_view_if_needed()
    box = svg.bounding_box()
    return box["x"] + spot[0] * box["width"] / 400, box["y"] + spot[1] * box["width"] / 400


def chosen(page: "Page") -> str:
    return page.locator("#said").inner_text()


@pytest.mark.parametrize(("width", "dark"), [(1400, False), (390, True)])
def test_the_slider_moves_all_models(visit: Visitor, two: Path, width: int, dark: bool) -> None:
    seen = visit(two, width=width, dark=dark)
    page, slider = seen.page, seen.page.locator("#depth")
    before = [places(page, n) for n in (0, 1)]
    assert page.locator("#stage").inner_text() == slider.get_attribute("aria-valuetext") == "embedding"
    slider.focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    assert slider.get_attribute("aria-valuetext") == "layer 1, MLP"
    assert page.locator(".model .stage").all_inner_texts() == ["layer 1, MLP"] * 2
    assert [row.inner_text() for row in page.locator("tr[aria-current] th").all()] == ["1 MLP", "1 MLP"]
    for n in (0, 1):
        assert places(page, n) != before[n]
    assert len(page.locator("#charts figure").all()) >= 10
    marks = page.locator("#charts .now").evaluate_all("all => all.map(line => line.getAttribute('x1'))")
    assert len(set(marks)) == 1
    page.keyboard.press("Home")
    assert [places(page, n) for n in (0, 1)] == before
    page.evaluate("for (const part of document.querySelectorAll('details')) part.open = true")
    clean(seen)


def test_each_model_has_its_own_and_pointing_chooses_the_nearest_token(visit: Visitor, two: Path) -> None:
    seen = visit(two)
    page, svg = seen.page, seen.page.locator(".space svg").first
    page.locator("#depth").fill("4")
    arrows = page.locator(".momenta").evaluate_all("all => all.map(path => path.getAttribute('d').length)")
    assert arrows[0] > 100
    assert arrows[1] == 0
    assert "There are no momenta." in page.locator(".axes-note").nth(1).inner_text()
    kinetic = page.locator("#charts figure").filter(has_text="kinetic energy").locator("figcaption").inner_text()
    assert kinetic.startswith("softmax-exp-euler ")
    assert kinetic.endswith("; softmax-baseline has none")
    assert page.locator(".numbers").nth(1).inner_text().count(NONE) == 5
    spots = places(page)
    far = max(range(len(TEXT)), key=lambda i: min(abs(spots[i][0] - u) + abs(spots[i][1] - v)
                                                  for j, (u, v) in enumerate(spots) if j != i))  # fmt: skip
    page.mouse.move(*on_screen(svg, spots[far]))
    assert chosen(page) == f"Token {far + 1} of {len(TEXT)}: {shown(TEXT[far])}"
    assert page.locator(".token[aria-pressed=true]").all_inner_texts() == [shown(TEXT[far])]
    assert page.locator(".numbers dd").first.inner_text() == shown(TEXT[far])
    assert page.locator(".points circle.chosen").count() == 2  # in both models
    assert 1 <= svg.locator(".lines line").count() <= far + 1  # causal: itself and earlier ones
    page.locator("#lines").uncheck()
    assert page.locator(".lines line").count() == 0
    clean(seen)


def test_a_tap_chooses_too(visit: Visitor, two: Path) -> None:
    seen = visit(two, width=390, touch=True)
    seen.page.touchscreen.tap(*on_screen(seen.page.locator(".space svg").first, places(seen.page)[0]))
    assert chosen(seen.page).startswith(f"Token 1 of {len(TEXT)}")
    clean(seen)


def test_keys_walk_through_the_text_and_the_lens_follows(visit: Visitor, two: Path) -> None:
    page = visit(two).page
    page.locator(".token[aria-pressed=true]").focus()
    page.keyboard.press("Home")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    assert chosen(page) == f"Token 3 of {len(TEXT)}: l"
    assert page.evaluate("document.activeElement.textContent") == "l"
    assert page.locator(".token[tabindex='0']").count() == 1  # one stop for the tabulator
    table = page.locator(".lens table").first
    assert table.locator("tbody tr").count() == 5
    assert table.locator("tbody tr").first.locator("td").count() == 6
    guess = page.locator(".guess").first.inner_text()
    final = table.locator("tbody tr").last.locator("td").nth(1).locator("bdi").inner_text()
    assert guess.startswith(f"After l comes i. The final guess {final} is first reached at ")
    marked = [row for row in table.locator("tbody th").all_inner_texts() if "●" in row]
    assert len(marked) == 1
    page.keyboard.press("End")
    assert "the text ends." in page.locator(".guess").first.inner_text()


def test_play_goes_to_the_end_and_stops(visit: Visitor, two: Path) -> None:
    seen = visit(two)
    page, button = seen.page, seen.page.locator("#play")
    page.locator("#depth").fill("2")
    button.click()
    assert (button.inner_text(), button.get_attribute("aria-pressed")) == ("Pause", "true")
    page.locator("#play:text-is('Play')").wait_for()
    assert page.locator("#depth").input_value() == "4"
    button.click()  # from the start again
    assert page.locator("#depth").input_value() == "0"
    button.click()
    clean(seen)


def test_axes_can_be_each_stages_own_or_two_tokens(visit: Visitor, two: Path) -> None:
    seen = visit(two)
    page = seen.page
    page.locator("#depth").fill("4")
    shared = places(page)
    assert not page.locator("#token-a").is_visible()
    page.locator("#axes").select_option("own")
    own = places(page)
    assert own != shared
    assert min(abs(max(us) - min(us) - frame) for us, frame in zip(zip(*own, strict=True), (356, 256), strict=True)) < 1
    page.locator("#axes").select_option("tokens")
    page.locator("#token-a").select_option("2")
    page.locator("#token-b").select_option("7")
    tokens = places(page)
    assert tokens not in (shared, own)
    page.locator("#token-b").select_option("2")  # twice the same: another direction takes its place
    assert all(abs(u) < 1e4 and abs(v) < 1e4 for u, v in places(page))
    page.locator("#names").check()
    assert page.locator(".space svg").first.locator("text:visible").count() == len(TEXT)
    clean(seen)


def test_models_of_other_depths_and_tokens_share_the_slider(visit: Visitor, tmp_path: Path) -> None:
    whole = Words([TEXT, "other"])
    models = [target("deep", "softmax-ab2", n_layer=3), target("words", "linear-baseline", whole, mlp="none")]
    write(tmp_path / "page.html", models, TEXT)
    seen = visit(tmp_path / "page.html")
    assert seen.page.locator(".text").count() == 2
    seen.page.locator("#depth").fill("3")
    assert seen.page.locator("#stage").inner_text() == "50 % of the depth"
    assert seen.page.locator(".model .stage").all_inner_texts() == ["layer 2, attention", "layer 1, attention"]
    clean(seen)


def test_hostile_text_is_shown_and_not_run(visit: Visitor, tmp_path: Path) -> None:
    words = Words([*HOSTILE, "w"])
    write(tmp_path / "page.html", [target(EVIL_NAME, "softmax-exp-euler", words)], "|".join(HOSTILE))
    seen = visit(tmp_path / "page.html", width=390)
    page = seen.page
    assert page.locator(".token").all_text_contents() == [shown(word) for word in HOSTILE]
    page.locator("#names").check()
    assert page.locator(".space text").all_text_contents() == [shown(word) for word in HOSTILE]
    for place in range(len(HOSTILE)):
        page.locator(".token").nth(place).click()
        assert chosen(page) == f"Token {place + 1} of {len(HOSTILE)}: {shown(HOSTILE[place])}"
    guesses = set(page.locator(".lens td bdi").all_text_contents())
    assert guesses <= {shown(word) for word in words.words}
    assert len(guesses & {shown(word) for word in HOSTILE}) >= 3
    assert page.locator(".model h3 bdi").inner_text().startswith("<img src=x onerror=alert(5)>")
    assert page.locator("img").count() == 0
    clean(seen)


def test_a_thousand_tokens_stay_usable(visit: Visitor, tmp_path: Path) -> None:
    write(tmp_path / "page.html", [target("long", "softmax-exp-euler", block_size=1000)], "0123456789" * 100)
    seen = visit(tmp_path / "page.html")
    page = seen.page
    assert page.locator(".token").count() == page.locator(".points circle").count() == 400
    took = page.evaluate(FRAME)
    assert took < 200  # milliseconds a frame, however busy the machine
    page.locator(".token").last.click()
    assert chosen(page).startswith("Token 1000 of 1000")
    clean(seen)


# --- what every page shares: nothing is asked of anybody, and a visit would notice

SHOW = """
const given = JSON.parse(document.getElementById("given").textContent);
document.getElementById("said").textContent = given.join("|");
"""


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_a_value_comes_out_of_its_island_as_it_went_in(text: str) -> None:
    island = data_island("given", {text: [text, 1.5, None]})
    inside = island.removeprefix('<script type="application/json" id="given">').removesuffix("</script>")
    assert not set("<>&") & set(inside)
    assert json.loads(inside) == {text: [text, 1.5, None]}


def test_hostile_text_of_any_page_is_shown_and_not_run(visit: Visitor, tmp_path: Path) -> None:
    texts = [text for text in HOSTILE if "\ud800" not in text and "\u0000" not in text]  # no file holds the others
    parts = [tag("p", text, title=text, class_="text") for text in texts]
    page = document(
        texts[1], tag("nav", theme_button()), *parts, tag("p", id="said"), data_island("given", HOSTILE),
        scripts=[Html(SHOW)],
    )  # fmt: skip
    write_page(tmp_path / "new" / "page.html", lambda: page, "the page")
    seen = visit(tmp_path / "new" / "page.html")
    assert seen.page.locator("p.text").all_text_contents() == texts
    assert seen.page.locator("p.text").evaluate_all("all => all.map(p => p.title)") == texts
    assert seen.page.title() == texts[1]
    assert seen.page.locator("#said").text_content() == "|".join(HOSTILE)
    assert (seen.troubles, seen.requests) == ([], [])


def test_the_button_changes_light_and_dark(visit: Visitor, tmp_path: Path) -> None:
    write_page(tmp_path / "page.html", lambda: document("A page", tag("nav", theme_button())), "the page")
    colours = {}
    for dark in (False, True):
        page = visit(tmp_path / "page.html", dark=dark).page
        first = page.evaluate("getComputedStyle(document.body).backgroundColor")
        page.click("#theme")
        colours[dark] = [first, page.evaluate("getComputedStyle(document.body).backgroundColor")]
    assert colours[False] == colours[True][::-1]
    assert colours[False][0] != colours[False][1]


def test_a_visit_sees_what_goes_wrong(visit: Visitor, tmp_path: Path) -> None:
    """So that an empty list of troubles means something."""
    bad = '<img src="missing.png"><script>console.warn("said"); alert("hello"); undefined.field;</script>'
    (tmp_path / "open.html").write_text(f"<!doctype html>{bad}<p style='width: 5000px'>wide</p>")
    seen = visit(tmp_path / "open.html")
    assert [name for name in seen.requests if name.endswith("missing.png")]
    assert any("said" in trouble for trouble in seen.troubles)
    assert any("undefined" in trouble for trouble in seen.troubles)
    assert any("hello" in trouble for trouble in seen.troubles)
    assert not seen.fits()

    write_page(tmp_path / "page.html", lambda: document("Refused", Html(bad)), "the page")
    refused = visit(tmp_path / "page.html")
    assert any("Content Security Policy" in trouble for trouble in refused.troubles)


def test_where_a_page_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(InputError, match=r"cannot write the page .*page.html: "):
        write_page(tmp_path / "file" / "page.html", lambda: pytest.fail("was made"), "the page")
