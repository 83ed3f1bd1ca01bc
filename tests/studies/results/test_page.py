"""The page of a comparison: read as a tree and in a real browser; and what `report` leaves beside it."""

import dataclasses
from base64 import b64decode
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sympformer.cli import main
from sympformer.studies.results import plots
from sympformer.studies.results.page import page, write_all, write_report
from sympformer.studies.results.plots import pictures
from sympformer.studies.results.results import Results
from sympformer.studies.results.statistics import Levels, effects
from tests.browser import Visitor
from tests.pages.dom import Node, read
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
