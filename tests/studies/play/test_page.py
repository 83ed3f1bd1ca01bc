"""The playground in a real browser, driven: sliders, choices, dragging, keys, the address; two widths, two themes."""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from sympformer.cli import main
from sympformer.studies.play.page import play
from tests.browser import Visitor

if TYPE_CHECKING:
    from playwright.sync_api import Page


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Opened by somebody who asks for little motion, so nothing runs before it is told to."""
    path = tmp_path_factory.mktemp("play") / "page.html"
    play(path)
    return path


def positions(page: "Page", run: int = 0) -> list[float]:
    return list(page.evaluate(f"[...Playground.runs[{run}].x]"))


def slide(page: "Page", name: str, value: float) -> None:
    page.locator(f"#{name}").evaluate(
        "(field, value) => { field.value = value; for (const kind of ['input', 'change'])"
        " field.dispatchEvent(new Event(kind, {bubbles: true})); }",
        value,
    )


def place(page: "Page", particle: int) -> tuple[float, float]:
    """Where a particle of the left picture is on the screen."""
    return tuple(page.evaluate(f"Playground.place({particle})"))


def test_the_command_writes_a_page_or_a_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["play", "--out", str(tmp_path / "new" / "p.html")]) == 0
    text = (tmp_path / "new" / "p.html").read_text(encoding="utf-8")
    assert not re.findall(r"https?://|src=|@import|url\(", text)
    assert main(["play", "--out", str(tmp_path / "new" / "p.html" / "below.html")]) == 2
    assert "cannot write the page" in capsys.readouterr().err


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [1400, 390])
def test_it_renders(visit: Visitor, file: Path, width: int, dark: bool) -> None:
    seen = visit(file, width=width, dark=dark)
    assert seen.fits()
    for name in ("view-0", "view-1", "energy", "phase"):
        coloured = seen.page.locator(f"#{name}").evaluate(
            "canvas => canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data"
            ".some((value, k, all) => k % 4 === 2 && value > all[k - 1] + 60)"
        )
        assert coloured, f"{name} has not the colours of the style sheet"
    assert (seen.troubles, seen.requests) == ([], [])


def test_it_runs_by_itself_and_stops(visit: Visitor, file: Path) -> None:
    seen = visit(file)
    seen.page.click("#run")
    seen.page.wait_for_function("() => Playground.runs[0].k >= 5")
    assert seen.page.locator("#run").get_attribute("aria-pressed") == "true"
    seen.page.locator("#view-0").press(" ")
    k = seen.page.evaluate("Playground.runs[0].k")
    seen.page.wait_for_timeout(150)
    assert seen.page.evaluate("Playground.runs[0].k") == k
    seen.page.click("#again")
    assert seen.page.evaluate("Playground.runs.map(run => run.k)") == [0, 0]
    assert seen.troubles == []


def test_sliders_change_what_they_say(visit: Visitor, file: Path) -> None:
    page = visit(file).page
    page.select_option("#integrator", "rk4")
    page.click("#step")
    assert [page.locator(f"#kernel-{run}").inner_text() for run in (0, 1)] == ["4", "4"]  # both spend the same
    page.select_option("#integrator", "etd_ab2")
    slide(page, "n", 128)
    assert len(positions(page)) == 256
    page.click("#step")
    before = positions(page)
    for name, value in {"a1": 0.5, "ba": 45, "r": 1.5, "m": 0.7, "h": 0.1}.items():
        slide(page, name, value)
        assert float(page.locator(f"#{name} + output").inner_text()) == value
    assert positions(page) == before  # the same particles go on, under other laws
    settings = page.evaluate("Playground.described(0, Playground.settings(), [0, 0])")
    assert settings["damping"] == {"r": 1.5, "m": 0.7, "t0": 1}
    assert settings["h"] == 0.1
    page.select_option("#integrator", "nesterov")  # it asks for no damping
    assert not page.locator("#r").is_visible()
    slide(page, "a1", -1)
    assert page.locator("#a1 + output").inner_text() == "0.05"  # must be positive here
    page.select_option("#system", "softmax_own")
    assert page.locator("#about p:visible").count() == 1
    slide(page, "a1", -1)
    assert page.locator("#a1 + output").inner_text() == "\N{MINUS SIGN}1"


def test_a_particle_goes_where_it_is_dragged(visit: Visitor, file: Path) -> None:
    page = visit(file).page
    page.click("#step")
    left, top = place(page, 5)
    page.mouse.move(left, top)
    page.mouse.down()
    page.mouse.move(left + 60, top - 40, steps=3)
    page.mouse.up()
    assert page.locator("#chosen").input_value() == "6"
    assert place(page, 5) == pytest.approx((left + 60, top - 40), abs=0.5)
    for run in (0, 1):  # in both flows, at rest
        assert page.evaluate(f"[...Playground.runs[{run}].y].slice(10, 12)") == [0, 0]
    assert positions(page, 0)[10:12] == positions(page, 1)[10:12]
    page.locator("#view-0").press("ArrowRight")
    moved = place(page, 5)
    assert moved[0] > left + 62
    assert moved[1] == pytest.approx(top - 40, abs=0.5)


def test_a_finger_drags_on_a_phone(visit: Visitor, file: Path) -> None:
    seen = visit(file, width=390, touch=True)
    page = seen.page
    page.locator("#view-0").scroll_into_view_if_needed()
    x, y = place(page, 0)
    session = page.context.new_cdp_session(page)
    for kind, dx in (("touchStart", 0), ("touchMove", 20), ("touchMove", 45), ("touchEnd", None)):
        points = [] if dx is None else [{"x": x + dx, "y": y + dx}]
        session.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})
    assert place(page, 0) == pytest.approx((x + 45, y + 45), abs=1)
    assert seen.troubles == []


def test_an_address_holds_the_settings(visit: Visitor, file: Path) -> None:
    page = visit(file).page
    page.select_option("#system", "stein")
    slide(page, "length", 0.7)
    slide(page, "n", 12)
    page.click("#draw")
    other = visit(file, fragment=page.evaluate("location.hash")).page
    assert other.evaluate("Playground.settings()") == page.evaluate("Playground.settings()")
    assert [positions(other, run) for run in (0, 1)] == [positions(page, run) for run in (0, 1)]


@pytest.mark.parametrize(
    ("fragment", "said"),
    [
        ("#system=<script>alert(1)</script>&a1=x&n=1e9&state=AAAA", "left out: system, a1."),
        ("#system=linear&n=12&h=NaN&state=%F0%9F%98%80&integrator=__proto__", "left out: integrator, h."),
        ("#%00%E2%80%AE=&&&==", ""),
    ],
)
def test_a_hostile_address_is_data(visit: Visitor, file: Path, fragment: str, said: str) -> None:
    seen = visit(file, fragment=fragment)
    assert said in (seen.page.locator("#said").text_content() or "")
    seen.page.click("#step")
    assert all(abs(value) < 100 for value in positions(seen.page))
    assert len(positions(seen.page)) <= 512
    assert seen.page.locator("#system").input_value() == "linear"
    assert (seen.troubles, seen.requests) == ([], [])


def test_a_step_too_large_is_said(visit: Visitor, file: Path) -> None:
    seen = visit(file, fragment="#system=quadratic&a1=2&h=1&h1=0.1&integrator=presymp_euler&r=0")
    seen.page.locator("#step").evaluate("button => { for (let k = 0; k < 60; k++) button.click(); }")
    said: Any = seen.page.locator("#said").text_content()
    assert "with momentum left all bounds" in said
    assert seen.page.evaluate("Playground.runs[1].k") == 60  # the other goes on
    assert seen.troubles == []
