"""The page of a comparison: read as a tree and in a real browser; and what `report` leaves beside it."""

import dataclasses
from base64 import b64decode
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from matplotlib.colors import to_hex, to_rgb
from matplotlib.text import Text
from numpy.typing import NDArray

from sympformer.cli import main
from sympformer.studies.results import plots
from sympformer.studies.results.page import page, write_all, write_report
from sympformer.studies.results.plots import (
    COLOURS,
    INK,
    SCALARS,
    UNRANKED,
    Against,
    layers,
    loss,
    pictures,
    ranking,
    style,
)
from sympformer.studies.results.results import Results
from sympformer.studies.results.statistics import Levels, effects
from tests.browser import Node, Visitor, read
from tests.studies.results import made_up

if TYPE_CHECKING:
    from playwright.sync_api import Page
SLOW = made_up.model("linear-plain-euler", tokens_per_second=9800)  # as text it would come after 17400
RESULTS = made_up.results(
    ["gpt", "exp-euler", "yuriiformer", SLOW, made_up.leaking("a-leak"), made_up.diverged("a-burst")]
)
COMMITTED = sorted((Path(__file__).resolve().parents[3] / "docs" / "results").glob("*/results.json"))


def tree_of(results: Results) -> Node:
    return read(page(results, pictures(results)))


@pytest.fixture(scope="module")
def tree() -> Node:
    return tree_of(RESULTS)


def test_verdict_rows_marks_and_plots(tree: Node) -> None:
    said = tree.all("p", "verdict")[0].text
    assert said.startswith("Best is exp-euler with 2.8")
    assert "below gpt (95 % interval \N{MINUS SIGN}0." in said
    assert said.endswith("Of 3 others 2 are better than gpt, 1 worse; 0 show no difference.")
    first = tree.all("table", "sortable")[0]
    ranked, unranked = ([row.all("th")[0].text for row in body.all("tr")] for body in first.all("tbody"))
    assert (ranked, unranked) == (["exp-euler", "yuriiformer", "gpt", "linear-plain-euler"], ["a-leak", "a-burst"])
    assert [row.all("s")[0].text for row in first.all("tr", "struck")] == ["a-leak"]
    assert {row.all("th")[0].text for row in first.all("tr", "baseline")} == {"gpt"}
    images = tree.all("img")
    assert [node.attributes["alt"] for node in images] == [node.all("h3")[0].text for node in tree.all("figure")]
    for node in images:
        kind, data = (node.attributes["src"] or "").split(",")
        assert (kind, b"exp-euler" in b64decode(data)) == ("data:image/svg+xml;base64", True)


def test_samples_audits_notes_and_origin(tree: Node) -> None:
    cards = tree.by_id("samples").all("article")
    assert len(cards) == 2 * 5
    assert cards[0].all("p")[0].text == "Once upon a time exp-euler wrote text 1."
    audits = tree.by_id("audits").all("details")
    opened = [("a-" in audit.text, "open" in audit.attributes) for audit in audits[:3]]
    assert opened == [(True, True), (True, False), (False, False)]
    assert "4.2e-01" in audits[0].text
    assert tree.by_id("notes").all("li")[1].text == "a-burst: rate 0.016, seed 0: the loss is not a number at step 212"
    assert "\nbudget:\n  tokens: 2000000\n" in tree.by_id("origin").all("pre")[0].text
    assert "diverged" in tree.by_id("learning-rates").text


def test_effects_and_changes_have_tables() -> None:
    child = dataclasses.replace(RESULTS.models[1], parent="gpt", changes=["z on → off"])
    child = dataclasses.replace(child, to_parent=child.difference)
    figures: dict[Levels, list[float]] = {("a", "x"): [4.0, 4.2], ("b", "x"): [3.5, 3.9]}
    figures |= {("a", "y"): [3.9, 4.0], ("b", "y"): [3.2, 3.6]}
    found = effects({"one": ["a", "b"], "two": ["x", "y"]}, figures)
    models = [RESULTS.models[0], child]
    tree = tree_of(dataclasses.replace(RESULTS, models=models, effects=found))
    assert "one" in tree.by_id("effects-of-the-factors").text
    assert "one x two" in tree.by_id("interactions-of-two-factors").text
    assert "z on → off" in tree.by_id("changes-to-a-parent").text


EVIL = """</title></style></script><script>alert("x")</script><img src=x onerror='alert(1)'>" onload="alert(2)"""


def test_nothing_in_the_results_becomes_markup() -> None:
    audit = made_up.audit(leak_at=1)
    audit["rows"][0] |= {"check": EVIL, "weights": EVIL, "note": EVIL}
    evil = made_up.model(
        EVIL, variant=EVIL, preset=EVIL, samples=[{"prompt": EVIL, "text": EVIL + EVIL}], diverged=[EVIL], layers=[],
        rates={"0.002": None, "0.008": 3.0}, parent="gpt", changes=[EVIL], code=[EVIL],
    )  # fmt: skip
    results = made_up.results(
        ["gpt", evil, made_up.model("leaking", audit=audit, code=["other"])],
        title=EVIL, budget=EVIL, notes=[EVIL], environment={EVIL: EVIL}, data={"corpus": EVIL}, config={EVIL: EVIL},
        beside={EVIL: {"gpt": 1.0}}, scored=EVIL,
    )  # fmt: skip
    tree = tree_of(results)
    assert len(tree.all("script")) == 1
    assert len(tree.all("style")) == 1
    assert all((node.attributes["src"] or "").startswith("data:") for node in tree.all("img"))
    assert not [key for node in tree.walk() for key in node.attributes if key.startswith("on")]
    assert tree.all("h1")[0].text == EVIL
    assert tree.by_id("samples").all("article")[0].all("p")[0].text == EVIL + EVIL


@pytest.mark.parametrize(
    "results",
    [
        made_up.results([made_up.diverged()], baseline=None),
        made_up.results(["exp-euler"], seeds=[3], config={}),
        made_up.results([made_up.model(name, curves=[]) for name in ("exp-euler", "ab2")], metric="bits_per_byte"),
        made_up.results([made_up.leaking(), made_up.diverged("gpt")], notes=[]),
        made_up.results([made_up.model("exp-euler", audit=None, samples=[], layers=[], curves=[])]),
    ],
    ids=["no figures", "one model, one seed", "no baseline", "nobody ranked", "not audited"],
)
def test_unusual_results_have_a_page_too(results: Results, tmp_path: Path) -> None:
    tree = read(write_all(results, tmp_path).read_text())
    assert len(tree.all("table", "sortable")[0].all("tbody")[0].all("tr")) == len(results.models)
    assert tree.all("p", "verdict")[0].text


# --- the files


def test_a_committed_results_json_is_redrawn(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """From the file alone: no run is there, and nothing of it changes."""
    kept = next(file for file in COMMITTED if file.parent.name == "storybook-cpu").read_bytes()
    (tmp_path / "results.json").write_bytes(kept)
    assert main(["report", str(tmp_path)]) == 0
    names = {file.name for file in tmp_path.iterdir()}
    assert {"table.md", "table.csv", "table.tex", "ablation.md", "rates.csv", "ranking.svg", "ranking.png"} <= names
    assert "Best is sympformer" in (tmp_path / "report.html").read_text().replace("<strong>", "")
    assert "sympformer" in capsys.readouterr().out
    assert (tmp_path / "results.json").read_bytes() == kept
    assert main(["report", str(tmp_path), "--out", str(tmp_path / "new" / "page.html")]) == 0
    assert [file.name for file in (tmp_path / "new").iterdir()] == ["page.html"]
    for more in ([str(tmp_path)], ["--baseline", "gpt"], ["--metric", "bits_per_byte"]):
        assert main(["report", str(tmp_path), *more]) == 2
        assert "its own models, baseline and metric: name it alone" in capsys.readouterr().err


def test_what_an_earlier_result_left_goes_and_what_cannot_be_drawn_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_all(made_up.results(["gpt", "exp-euler-paper"]), tmp_path)
    (tmp_path / "mine.svg").write_text("")
    assert (tmp_path / "loss-kernel-passes.png").is_file()
    write_all(made_up.results(["gpt", "exp-euler"]), tmp_path)
    assert not (tmp_path / "loss-kernel-passes.png").exists()
    before = {file: file.read_bytes() for file in tmp_path.iterdir()}
    assert tmp_path / "mine.svg" in before
    monkeypatch.setattr(plots, "layers", lambda results: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        write_all(made_up.results(["gpt", "exp-euler-paper"]), tmp_path)
    assert {file: file.read_bytes() for file in tmp_path.iterdir()} == before


# --- in a browser


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("browser") / "report.html"
    write_report(RESULTS, file)
    return file


def press(page: "Page", text: str) -> tuple[list[str], list[str]]:
    """Names of the models in the order of the rows, and how the table says it is sorted, after a head was pressed."""
    table = page.locator("table.sortable").first
    table.locator("thead").get_by_text(text, exact=True).last.click()
    sorts = table.locator("th[aria-sort]").evaluate_all("heads => heads.map(head => head.ariaSort)")
    return table.locator("tbody th").all_text_contents(), [sort for sort in sorts if sort != "none"]


def test_pressing_a_head_sorts_up_then_down(visit: Visitor, report: Path) -> None:
    end = ["a-leak", "a-burst"]  # without a rank they stay where they are
    page = visit(report).page
    up = ["linear-plain-euler", "exp-euler", "yuriiformer", "gpt"]
    assert press(page, "tokens/s") == ([*up, *end], ["ascending"])
    assert press(page, "tokens/s") == ([*up[::-1], *end], ["descending"])
    assert press(page, "model")[0] == ["exp-euler", "gpt", "linear-plain-euler", "yuriiformer", *end]
    assert press(page, "minus gpt [95 %]")[0][:4] == ["exp-euler", "yuriiformer", "linear-plain-euler", "gpt"]


@pytest.mark.parametrize("width", [1280, 390])
def test_it_fits_asks_for_nothing_and_a_plot_is_large_enough_to_read(visit: Visitor, report: Path, width: int) -> None:
    seen = visit(report, width=width)
    seen.page.evaluate("for (const part of document.querySelectorAll('details')) part.open = true")
    assert seen.fits()
    assert (seen.troubles, seen.requests) == ([], [])
    for place in ("#figures .wide", ".plot") if width == 1280 else ():  # on a phone they scroll in their boxes
        boxes = seen.page.locator(place).evaluate_all("all => all.map(box => [box.scrollWidth, box.clientWidth])")
        assert all(needed <= there for needed, there in boxes)
    shown = seen.page.locator(".plot img").evaluate_all("all => all.map(image => image.getBoundingClientRect().width)")
    assert all(image >= 700 for image in shown)


# --- the plots: what they show, and of whom
FEW = ("gpt", "yuriiformer-paper", "exp-euler", "linear-plain-euler")


@pytest.fixture(scope="module")
def results() -> Results:
    return made_up.results([*FEW, made_up.leaking(), made_up.diverged()])


def lines_of(axis: Any, name: str) -> list[Any]:
    return [line for line in axis.lines if line.get_label() == name]


def words(figure: Any) -> list[str]:
    """All text that a figure shows."""
    figure.draw_without_rendering()
    return [text.get_text() for text in figure.findobj(Text) if text.get_visible() and text.get_text()]


def test_every_plot_is_there_and_kernel_passes_only_where_they_differ(results: Results) -> None:
    drawn = [picture.name for picture in pictures(made_up.results([*FEW, "exp-euler-paper"]))]
    assert drawn == ["ranking", "loss-tokens", "loss-seconds", "loss-kernel-passes", "layers"]
    assert [picture.name for picture in pictures(results)] == ["ranking", "loss-tokens", "loss-seconds", "layers"]
    assert pictures(made_up.results([made_up.diverged()], baseline=None)) == []
    assert "layers" not in [picture.name for picture in pictures(made_up.results(["gpt"]))]


@pytest.mark.parametrize(
    ("against", "place"),
    [
        ("tokens", lambda model: 2_000_000),
        ("seconds", lambda model: 2_000_000 / model.tokens_per_second),
        ("kernel passes", lambda model: 2_000_000 / (8 * 128) * 4 * model.passes_a_layer),  # 4 layers, 8 texts of 128
    ],
)
def test_curves_end_where_training_ends_with_a_band_over_the_seeds(against: Against, place: Any) -> None:
    results = made_up.results([*FEW, "exp-euler-paper"])
    axis = loss(results, against).axes[0]
    for model, band in zip(results.models, axis.collections, strict=True):
        (line,) = lines_of(axis, model.name)
        last = [curve.loss[-1] for curve in model.curves]
        assert line.get_xdata()[-1] == pytest.approx(place(model))
        assert line.get_ydata()[-1] == pytest.approx(np.mean(last))
        corners = np.asarray(band.get_paths()[0].vertices)
        at_end = corners[np.isclose(corners[:, 0], place(model))][:, 1]
        assert (at_end.min(), at_end.max()) == (pytest.approx(min(last)), pytest.approx(max(last)))


def test_training_loss_is_a_line_and_validation_markers() -> None:
    kept: dict[str, Any] = {"train_tokens": [1_000_000, 2_000_000], "train_loss": [4.0, 3.0]}
    curves = [dataclasses.replace(curve, **kept) for curve in made_up.model("gpt").curves]
    axis = loss(made_up.results([made_up.model("gpt", curves=curves), "exp-euler"])).axes[0]
    np.testing.assert_allclose(lines_of(axis, "gpt")[0].get_data(), [[1e6, 2e6], [4.0, 3.0]])
    markers = [line for line in axis.lines if line.get_linestyle() == "None"]
    np.testing.assert_allclose(np.asarray(markers[0].get_ydata()), np.mean([curve.loss for curve in curves], 0))
    alone = made_up.results(["gpt", "exp-euler"], seeds=[7])
    assert len(loss(alone).axes[0].collections) == 0  # no band over the seeds, no interval
    assert len(lines_of(ranking(alone).axes[1], "exp-euler")) == 1


def test_many_models_all_look_different_and_the_same_in_every_plot() -> None:
    names = [f"run-{k}" for k in range(25)]
    results = made_up.results(["gpt", made_up.leaking(), *names])
    looks = [(style(results, m)["color"], style(results, m)["marker"]) for m in results.models if m.rank is not None]
    assert len(set(looks)) == len(looks) == 26
    for axis in (loss(results).axes[0], ranking(results).axes[0], layers(results).axes[0]):
        for model in results.models[2:]:
            assert {to_hex(line.get_color()) for line in lines_of(axis, model.name)} == {style(results, model)["color"]}


def test_a_failed_audit_is_grey_named_and_in_no_ranking_and_a_diverged_seed_is_not_drawn(results: Results) -> None:
    half = dataclasses.replace(made_up.model("half"), last=None, best=None, bits_per_byte=None, diverged=["seed 3"])
    assert lines_of(loss(made_up.results(["gpt", half])).axes[0], "half") == []
    axis = loss(results).axes[0]
    assert to_hex(lines_of(axis, "leaking")[0].get_color()) == UNRANKED
    assert axis.get_ylim()[0] > 2.5  # it reaches 1.2, and does not stretch the axes
    assert {*FEW, "leaking (failed audit)"} <= set(words(axis.figure))
    assert not any("leaking" in text for text in words(ranking(results)))
    captions = {picture.name: picture.caption for picture in pictures(results)}
    assert "Not ranked: leaking." in captions["ranking"]
    assert all("No figures: diverged." in caption for caption in captions.values())


def test_ranking_is_sorted_with_the_baseline_as_a_line(results: Results) -> None:
    left, right = ranking(results).axes
    names = [text.get_text().split()[0] for text in left.get_yticklabels()]
    assert names == ["exp-euler", "gpt", "linear-plain-euler", "yuriiformer-paper"]
    assert left.get_ylim()[0] > left.get_ylim()[1]  # the first at the top
    assert results.models[0].last is not None
    baseline = results.models[0].last.mean
    assert any(list(np.array(line.get_xdata())) == [baseline, baseline] for line in left.lines)
    difference = results.models[2].difference
    assert difference is not None
    assert any(list(np.array(line.get_xdata())) == [difference.low, difference.high] for line in right.lines)
    alone = ranking(made_up.results(["exp-euler", "yuriiformer"], metric="bits_per_byte"))
    assert [axis.get_xlabel() for axis in alone.axes] == ["test data, bits per byte"]


def test_layers_show_what_each_model_has(results: Results) -> None:
    panels = dict(zip(SCALARS, layers(results).axes, strict=True))
    assert lines_of(panels["momentum_rms"], "gpt") == lines_of(panels["h_x"], "yuriiformer-paper") == []
    for name, axis in panels.items():
        depths, values = lines_of(axis, "exp-euler")[0].get_data()
        assert list(depths) == [1, 2, 3, 4]
        assert list(values) == [row[name] for row in results.models[2].layers]


def test_svg_keeps_text_and_names_and_is_the_same_another_day() -> None:
    drawn = {picture.name: picture for picture in pictures(made_up.results(["gpt", "a$b_c$"]))}
    svg = drawn["loss-tokens"].svg
    assert ">a$b_c$<" in svg  # no formula
    assert ">training tokens<" in svg  # no outlines
    assert "#ffffff" not in svg  # nothing is painted white
    assert svg == {picture.name: picture for picture in pictures(made_up.results(["gpt", "a$b_c$"]))}["loss-tokens"].svg


# --- the palette


def linear(colour: str) -> NDArray[Any]:
    c = np.array(to_rgb(colour))
    return np.where(c <= 0.04045, c / 12.92, ((c + 0.055) / 1.055) ** 2.4)


@pytest.mark.parametrize("colour", [INK, UNRANKED, *COLOURS])
def test_colours_are_readable_on_white_and_on_near_black(colour: str) -> None:
    light, dark = (float(linear(one) @ [0.2126, 0.7152, 0.0722]) + 0.05 for one in (colour, "#15181c"))
    assert 1.05 / light >= 3
    assert light / dark >= 3


# Machado, Oliveira and Fernandes (2009), severity 1, on linear RGB
VISIONS = {
    "normal": np.eye(3),
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "tritanopia": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
}


def lab(rgb: NDArray[Any]) -> NDArray[Any]:
    """CIE L*a*b* of linear RGB."""
    to_xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
    xyz = to_xyz @ rgb.clip(0, 1) / [0.9505, 1, 1.089]
    f = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


@pytest.mark.parametrize("vision", VISIONS)
def test_the_first_four_are_told_apart_by_every_kind_of_colour_vision(vision: str) -> None:
    seen = [lab(np.array(VISIONS[vision]) @ linear(colour)) for colour in COLOURS[:4]]
    assert min(np.linalg.norm(a - b) for i, a in enumerate(seen) for b in seen[:i]) > 25
