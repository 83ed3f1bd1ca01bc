"""The report in a real browser: no errors, no requests, tables that sort, no scrolling sideways on a phone."""

import json
import os
import re
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from sympformer.studies.report.page import page
from tests.studies.report.dom import read
from tests.studies.results import made_up

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
BROWSER = next(filter(None, map(shutil.which, BROWSERS)), None)
PATIENCE = 90  # seconds

pytestmark = pytest.mark.skipif(BROWSER is None, reason=f"none of {', '.join(BROWSERS)} is on the PATH")

# Before the page's own script: keep a list of everything that goes wrong.
RECORDER = """
const troubles = [];
addEventListener("error", (event) => troubles.push(String(event.message)));
addEventListener("unhandledrejection", (event) => troubles.push(String(event.reason)));
document.addEventListener("securitypolicyviolation", (event) => troubles.push(event.violatedDirective));
for (const level of ["error", "warn"]) console[level] = (...words) => troubles.push(words.join(" "));
"""
# After it: press the buttons and tell the page around it what was seen.
VISITOR = """
addEventListener("load", () => {
  const table = document.querySelector("table.sortable");
  const heads = [...table.tHead.rows[1].cells];
  const names = () => [...table.querySelectorAll("tbody th")].map((cell) => cell.textContent);
  const press = (text) => {
    heads.find((head) => head.textContent === text)?.querySelector("button").click();
    return [names(), heads.map((head) => head.getAttribute("aria-sort")).filter((sort) => sort !== "none")];
  };
  const seen = {start: names(), up: press("tokens/s"), down: press("tokens/s"), words: press("model"),
                reached: press("tokens"), back: press("#")};
  const line = document.querySelector("#plots .model.m1");
  line.dispatchEvent(new PointerEvent("pointerover", {bubbles: true}));
  seen.picked = [...new Set([...document.querySelectorAll(".plot.picking .picked")].map((part) => part.classList[1]))];
  const background = () => getComputedStyle(document.body).backgroundColor;
  seen.themes = [background()];
  for (let i = 0; i < 2; i++) { document.getElementById("theme").click(); seen.themes.push(background()); }
  const box = (part) => [part.scrollWidth, part.clientWidth];
  seen.tables = [...document.querySelectorAll("#figures .wide")].map(box);
  const plots = [...document.querySelectorAll(".plot")];
  const drawn = () => plots.map((plot) => [plot.querySelector("svg").getBoundingClientRect().width, ...box(plot)]);
  seen.plots = drawn();
  plots[0].click();
  seen.enlarged = drawn()[0];
  plots[0].click();
  seen.again = drawn();
  for (const details of document.querySelectorAll("details")) details.open = true;
  seen.width = innerWidth;
  seen.needed = document.documentElement.scrollWidth;
  seen.requests = performance.getEntriesByType("resource").map((entry) => entry.name);
  seen.troubles = troubles;
  parent.postMessage(seen, "*");
});
"""
AROUND = """<!doctype html><pre id="seen"></pre><script>
const all = {};
addEventListener("message", (event) => {
  all[event.data.width] = event.data;
  document.getElementById("seen").textContent = JSON.stringify(all);
});
</script>"""


def visit(folder: Path, report: str, widths: tuple[int, ...]) -> dict[int, Any]:
    """What the visitor sees in frames of these widths, from one start of the browser."""
    first, last = report.index("<script>"), report.rindex("</body>")
    copy = f"{report[:first]}<script>{RECORDER}</script>{report[first:last]}<script>{VISITOR}</script>{report[last:]}"
    (folder / "report.html").write_text(copy, encoding="utf-8")
    frames = [f'<iframe src="report.html" style="border:0" width="{width}" height="800"></iframe>' for width in widths]
    (folder / "around.html").write_text(AROUND + "".join(frames), encoding="utf-8")
    dumped = read_page(folder / "around.html", folder / "profile")
    found = re.search(r'<pre id="seen">(.*?)</pre>', dumped, re.DOTALL)
    assert found is not None, dumped[:500]
    return {int(width): seen for width, seen in json.loads(read(found.group(0)).text).items()}


def read_page(file: Path, profile: Path) -> str:
    """The document that a browser makes of a file, after its scripts ran."""
    assert BROWSER is not None
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"]
    options += [f"--user-data-dir={profile}", "--virtual-time-budget=5000", "--dump-dom", file.as_uri()]
    # Its own group, so that the browser's helpers end with it should it hang.
    process = subprocess.Popen(
        [BROWSER, *options], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, start_new_session=True
    )
    try:
        dumped, _ = process.communicate(timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        raise
    return dumped


SLOW = made_up.model("linear-presymp-euler", tokens_per_second=9800)  # as text it would come after 17400
RESULTS = made_up.results(
    ["gpt", "exp-euler", "yuriiformer", SLOW, made_up.leaking("a-leak"), made_up.diverged("a-burst")]
)


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Any]:
    return visit(tmp_path_factory.mktemp("browser"), page(RESULTS), (1280, 390))


def test_both_widths_were_seen(seen: dict[int, Any]) -> None:
    assert sorted(seen) == [390, 1280]


@pytest.mark.parametrize("width", [1280, 390])
def test_no_errors_and_no_requests(seen: dict[int, Any], width: int) -> None:
    assert seen[width]["troubles"] == []
    assert seen[width]["requests"] == []


@pytest.mark.parametrize("width", [1280, 390])
def test_the_page_does_not_scroll_sideways(seen: dict[int, Any], width: int) -> None:
    assert seen[width]["needed"] <= width


def test_tables_fit_a_laptop(seen: dict[int, Any]) -> None:
    assert len(seen[1280]["tables"]) == 2
    for needed, there in seen[1280]["tables"]:
        assert needed <= there


@pytest.mark.parametrize("width", [1280, 390])
def test_plots_are_whole(seen: dict[int, Any], width: int) -> None:
    assert len(seen[width]["plots"]) >= 4
    for drawn, needed, there in seen[width]["plots"]:
        assert 300 < drawn <= there < width
        assert needed <= there
    assert seen[width]["again"] == seen[width]["plots"]


def test_a_tap_on_a_phone_makes_a_plot_as_large_as_it_was_drawn(seen: dict[int, Any]) -> None:
    assert seen[390]["enlarged"][0] >= 700
    assert seen[1280]["enlarged"] == seen[1280]["plots"][0]


def test_pressing_a_head_sorts_up_then_down(seen: dict[int, Any]) -> None:
    end = ["a-leak", "a-burst"]  # without a rank they stay where they are
    visited = seen[1280]
    assert visited["start"] == ["exp-euler", "yuriiformer", "gpt", "linear-presymp-euler", *end]
    assert visited["up"] == [["linear-presymp-euler", "exp-euler", "yuriiformer", "gpt", *end], ["ascending"]]
    assert visited["down"] == [["gpt", "yuriiformer", "exp-euler", "linear-presymp-euler", *end], ["descending"]]
    assert visited["words"] == [["exp-euler", "gpt", "linear-presymp-euler", "yuriiformer", *end], ["ascending"]]
    assert visited["back"] == [visited["start"], ["ascending"]]


def test_cells_without_a_figure_sort_last(seen: dict[int, Any]) -> None:
    assert seen[1280]["reached"][0][:4] == ["exp-euler", "yuriiformer", "gpt", "linear-presymp-euler"]


def test_the_model_under_the_pointer_stands_out(seen: dict[int, Any]) -> None:
    assert seen[1280]["picked"] == ["m1"]


def test_the_button_changes_light_and_dark(seen: dict[int, Any]) -> None:
    first, second, third = seen[1280]["themes"]
    assert first == third != second


def test_the_recorder_sees_what_goes_wrong(tmp_path: Path) -> None:
    """So that an empty list of troubles means something."""
    bad = '<img src="missing.png"><script>console.error("said"); undefined.field;</script></body>'
    bare = [made_up.model(name, curves=[], layers=[]) for name in ("gpt", "exp-euler")]
    report = page(made_up.results(bare, baseline=None)).replace("</body>", bad)
    (visited,) = visit(tmp_path, report, (1000,)).values()
    assert any("said" in trouble for trouble in visited["troubles"])
    assert any("undefined" in trouble for trouble in visited["troubles"])
    assert "img-src" in visited["troubles"]
