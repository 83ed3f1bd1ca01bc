"""The report in a real browser: no errors, no requests, tables that sort, no scrolling sideways on a phone."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sympformer.studies.report.page import write_report
from tests.browser import Visitor
from tests.studies.results import made_up

if TYPE_CHECKING:
    from playwright.sync_api import Page

SLOW = made_up.model("linear-gpt", tokens_per_second=9800)  # as text it would come after 17400
RESULTS = made_up.results(
    ["gpt", "exp-euler", "yuriiformer", SLOW, made_up.leaking("a-leak"), made_up.diverged("a-burst")]
)


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("browser") / "report.html"
    write_report(RESULTS, file)
    return file


@pytest.mark.parametrize("width", [1400, 390])
def test_no_errors_no_requests_and_no_scrolling_sideways(visit: Visitor, report: Path, width: int) -> None:
    seen = visit(report, width=width)
    seen.page.evaluate("for (const part of document.querySelectorAll('details')) part.open = true")
    assert seen.fits()
    assert (seen.troubles, seen.requests) == ([], [])


def press(page: "Page", text: str) -> tuple[list[str], list[str]]:
    """Names of the models in the order of the rows, and how the table says it is sorted, after a head was pressed."""
    table = page.locator("table.sortable")
    table.locator("thead").get_by_text(text, exact=True).last.click()
    sorts = table.locator("th[aria-sort]").evaluate_all("heads => heads.map(head => head.ariaSort)")
    return table.locator("tbody th").all_text_contents(), [sort for sort in sorts if sort != "none"]


def test_pressing_a_head_sorts_up_then_down(visit: Visitor, report: Path) -> None:
    end = ["a-leak", "a-burst"]  # without a rank they stay where they are
    page = visit(report).page
    start = page.locator("table.sortable tbody th").all_text_contents()
    assert start == ["exp-euler", "yuriiformer", "gpt", "linear-gpt", *end]
    assert press(page, "tokens/s") == (["linear-gpt", "exp-euler", "yuriiformer", "gpt", *end], ["ascending"])
    assert press(page, "tokens/s") == (["gpt", "yuriiformer", "exp-euler", "linear-gpt", *end], ["descending"])
    assert press(page, "model") == (["exp-euler", "gpt", "linear-gpt", "yuriiformer", *end], ["ascending"])
    # cells without a figure sort last
    assert press(page, "tokens")[0][:4] == ["exp-euler", "yuriiformer", "gpt", "linear-gpt"]
    assert press(page, "#") == (start, ["ascending"])


def test_the_model_under_the_pointer_stands_out(visit: Visitor, report: Path) -> None:
    page = visit(report).page
    page.locator("#plots .model.m1").first.dispatch_event("pointerover", {"bubbles": True})
    picked = page.locator(".plot.picking .picked").evaluate_all("parts => parts.map(part => part.classList[1])")
    assert set(picked) == {"m1"}
