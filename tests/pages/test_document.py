"""What every page shares: hostile text is shown and not run, nothing is asked of anybody, and a visit would notice."""

import json
from pathlib import Path

import pytest

from sympformer.errors import InputError
from sympformer.pages import Html, data_island, document, tag, theme_button, write_page
from tests.browser import Visitor

HOSTILE = [
    "<script>alert(1)</script>",
    "</script><script>alert(2)</script>",
    "<!--<script>",
    "'\"><img src=x onerror=alert(3)>",
    "&lt;b&gt; &amp; &#0;",
    "line\u2028end \u0001\u0000 \u202eright to left\u202c",
    "\N{FAMILY} \U0001f469\u200d\U0001f52c \ud800",
]
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


def test_hostile_text_is_shown_and_not_run(visit: Visitor, tmp_path: Path) -> None:
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
