"""The site builds, every link in it leads somewhere, and its pages ask nobody but their own server."""

import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from html.parser import HTMLParser
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

import pytest

from sympformer.cli import COMMANDS

if TYPE_CHECKING:
    from playwright.sync_api import Browser

ROOT = Path(__file__).resolve().parents[1]
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        find_spec("zensical") is None or find_spec("mkdocstrings_handlers") is None,
        reason="zensical or mkdocstrings-python is not installed (the docs extra has them)",
    ),
]


class Page(HTMLParser):
    """What a page has and what it points to."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []  # where a reader may go
        self.loads: list[str] = []  # what a browser fetches by itself
        self.feed(file.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {key: value for key, value in attrs if value is not None}
        self.ids |= {given[key] for key in ("id", "name") if key in given}
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        elif tag == "link" and "href" in given:
            self.loads.append(given["href"])
        elif "src" in given:
            self.loads.append(given["src"])


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("build")
    done = subprocess.run(
        [sys.executable, str(ROOT / "site" / "build.py"), str(folder)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return folder / "site"


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Page]:
    return {file: Page(file) for file in site.rglob("*.html")}


def test_what_the_site_has(site: Path, pages: dict[Path, Page]) -> None:
    names = {file.relative_to(site).as_posix() for file in pages}
    front = "index layers extending paper_text playground live/play theory results/index reference/sympformer.flows"
    assert {f"{name}.html" for name in front.split()} <= names
    for script in (ROOT / "docs" / "tutorials").glob("*.py"):
        assert f"tutorials/{script.stem}.html" in names
    for page in (ROOT / "docs").glob("*.md"):
        assert f"{page.stem}.html" in names
    assert ("watching.html" in names) == ("watch" in COMMANDS)
    reference = (site / "reference" / "sympformer.flows.html").read_text(encoding="utf-8")
    assert "Follow x" in reference  # from the docstring of simulate


def test_every_link_leads_somewhere(site: Path, pages: dict[Path, Page]) -> None:
    broken = []
    for file, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc or file.name == "404.html":
                continue
            target = (file.parent / unquote(parts.path)).resolve() if parts.path else file
            target = target / "index.html" if target.is_dir() else target
            known = pages[target].ids if target in pages else None
            if not target.exists() or (parts.fragment and known is not None and unquote(parts.fragment) not in known):
                broken.append(f"{file.relative_to(site)}: {link}")
    assert broken == []


def test_nothing_is_loaded_from_elsewhere(site: Path, pages: dict[Path, Page]) -> None:
    elsewhere = [
        f"{file.relative_to(site)}: {name}"
        for file, page in pages.items()
        for name in page.loads
        if urlsplit(name).netloc or (not urlsplit(name).scheme and not (file.parent / unquote(name)).exists())
        if file.name != "404.html"
    ]
    assert elsewhere == []


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *words: object) -> None:
            """Tests read what pages do, not what a server says."""

    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=site)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.mark.parametrize("width", [1400, 390])
def test_in_a_browser(browser: "Browser", address: str, site: Path, width: int) -> None:
    """Formulas are drawn, the search finds, the playground runs inside its page; nobody else is asked."""
    with browser.new_context(viewport={"width": width, "height": 900}, reduced_motion="reduce") as context:
        page = context.new_page()
        page.set_default_timeout(20_000)
        asked: list[str] = []
        troubles: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        page.on("console", lambda said: troubles.append(said.text) if said.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: troubles.append(str(error)))
        page.goto(f"{address}/index.html")
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        if (site / "assets" / "katex").exists():  # without npm formulas stay as they are typed
            assert page.locator(".katex-display .mord").count() > 5
        page.keyboard.press("Control+k")
        page.keyboard.type("conformally symplectic")
        page.get_by_role("link", name="theory").or_(page.locator("a[href*='theory']:visible")).first.wait_for()
        page.goto(f"{address}/playground.html")
        inside = page.frame_locator("iframe.live")
        inside.locator("#step").click()
        inside.locator("#kernel-0").get_by_text("1", exact=True).wait_for(state="attached")
        assert [url for url in asked if not url.startswith((address, "blob:", "data:"))] == []
        assert troubles == []
