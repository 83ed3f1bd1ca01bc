"""The page in a real browser: slider, play, pointer, keys and choices do what they say; nothing runs that is text."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from sympformer.watching.command import write
from sympformer.watching.scene import shown
from tests.browser import Visit, Visitor
from tests.watching.targets import EVIL_NAME, HOSTILE, Words, target

if TYPE_CHECKING:
    from playwright.sync_api import Page

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
