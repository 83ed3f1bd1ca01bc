"""One real browser for all tests of pages, and visits in it that keep a list of everything that goes wrong.

The fixtures `browser` and `visit` (tests/conftest.py) come from here. Without Chromium or playwright they skip.
"""

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Dialog, Page
NAMES = ("chromium", "chromium-browser", "google-chrome")
QUIET = ["--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage"]
PATIENCE = 10_000  # milliseconds


@dataclass
class Visit:
    """A page that was opened, and what happened to it since."""

    page: "Page"
    troubles: list[str] = field(default_factory=list)  # errors and warnings on the console, exceptions, refused loads
    requests: list[str] = field(default_factory=list)  # whatever was asked for, but for the page itself

    def fits(self) -> bool:
        """Whether nothing makes the page scroll sideways."""
        return bool(self.page.evaluate("document.documentElement.scrollWidth <= innerWidth"))


Visitor = Callable[..., Visit]


@contextmanager
def started() -> Iterator["Browser"]:
    """The browser; a test that needs it is skipped where it is not there."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed (the dev extra has it)")
    program = next(filter(None, map(shutil.which, NAMES)), None)
    if program is None:
        pytest.skip(f"none of {', '.join(NAMES)} is on the PATH (Debian: apt-get install chromium)")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=program, args=QUIET, chromium_sandbox=False)
        yield browser
        browser.close()


def _dismiss(troubles: list[str], dialog: "Dialog") -> None:
    troubles.append(f"dialog: {dialog.message}")
    dialog.dismiss()


@contextmanager
def visits(browser: "Browser") -> Iterator[Visitor]:
    """A function that opens pages; all of them are closed in the end.

    visit(file, width=1400, height=900, dark=False, touch=False, fragment="#..."): a file as a reader would open it.
    """
    contexts: list[Any] = []

    def visit(
        file: Path, width: int = 1400, height: int = 900, dark: bool = False, touch: bool = False, fragment: str = ""
    ) -> Visit:
        scheme: Any = "dark" if dark else "light"
        context = browser.new_context(
            viewport={"width": width, "height": height}, color_scheme=scheme, has_touch=touch, reduced_motion="reduce"
        )
        contexts.append(context)
        context.set_default_timeout(PATIENCE)
        address, page = file.absolute().as_uri(), context.new_page()
        seen = Visit(page)
        page.on("console", lambda said: seen.troubles.append(said.text) if said.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: seen.troubles.append(str(error)))
        page.on("dialog", partial(_dismiss, seen.troubles))
        page.on("request", lambda asked: None if asked.url.startswith(address) else seen.requests.append(asked.url))
        page.goto(address + fragment)
        return seen

    yield visit
    for context in contexts:
        context.close()


# --- just enough of a document tree to look into a page; reading fails where tags are not nested well

VOID = {"meta", "br", "hr", "input", "img"}


@dataclass
class Node:
    """An element with what stands in it."""

    tag: str
    attributes: dict[str, str | None] = field(default_factory=dict)
    children: list["Node | str"] = field(default_factory=list)

    @property
    def text(self) -> str:
        """All text below, in order."""
        return "".join(child if isinstance(child, str) else child.text for child in self.children)

    @property
    def classes(self) -> list[str]:
        return (self.attributes.get("class") or "").split()

    def walk(self) -> Iterator["Node"]:
        """Itself and all elements below."""
        yield self
        for child in self.children:
            if isinstance(child, Node):
                yield from child.walk()

    def all(self, tag: str, class_: str | None = None) -> list["Node"]:
        """Elements by name and class."""
        return [node for node in self.walk() if node.tag == tag and (class_ is None or class_ in node.classes)]

    def by_id(self, name: str) -> "Node":
        """The one element with an id."""
        (found,) = [node for node in self.walk() if node.attributes.get("id") == name]
        return found


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.root = Node("document")
        self.open = [self.root]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        node = Node(tag, dict(attrs))
        assert len(node.attributes) == len(attrs), f"an attribute twice in <{tag}>"
        self.open[-1].children.append(node)
        if tag not in VOID:
            self.open.append(node)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.open[-1].children.append(Node(tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open[-1].tag == tag, f"</{tag}> closes <{self.open[-1].tag}>"
        self.open.pop()

    def handle_data(self, data: str) -> None:
        self.open[-1].children.append(data)


def read(page: str) -> Node:
    """The tree of a page."""
    reader = _Reader()
    reader.feed(page)
    reader.close()
    assert reader.open == [reader.root], f"<{reader.open[-1].tag}> is left open"
    return reader.root
