"""The text of a page of HTML: what a reader sees of it, a line for every block, scripts and styles left out."""

import re
from html.parser import HTMLParser

UNSEEN = frozenset({"script", "style", "template", "noscript", "svg"})
# between these and what stands beside them is a line end; paragraphs and headings have a blank line around them
LINES = frozenset({"br", "div", "li", "tr", "dt", "dd", "hr", "title", "option"})
PARAGRAPHS = frozenset(
    {"p", "h1", "h2", "h3", "h4", "h5", "h6", "pre", "blockquote", "table", "ul", "ol", "dl", "section", "article"}
)


class HTMLText(HTMLParser):
    """`feed` it a page in pieces, `close` it, and take its text. White space counts only inside <pre>."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.size = 0  # characters that wait to be taken
        self._parts: list[str] = []
        self._unseen: list[str] = []  # open elements whose content nobody sees
        self._pre = 0  # open <pre>
        self._newlines = 2  # that the text ends with; there is nothing to keep apart at the beginning
        self._space = False  # whether it ends with a space

    def taken(self) -> str:
        """The text since the last time."""
        text = "".join(self._parts)
        self._parts, self.size = [], 0
        return text

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in UNSEEN:
            self._unseen.append(tag)
        self._pre += tag == "pre"
        self._break(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._break(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag in self._unseen:
            del self._unseen[self._unseen.index(tag) :]
        self._pre = max(0, self._pre - (tag == "pre"))
        self._break(tag)

    def handle_data(self, data: str) -> None:
        if not self._unseen:
            self._add(data if self._pre else re.sub(r"\s+", " ", data))

    def _break(self, tag: str) -> None:
        wanted = 2 if tag in PARAGRAPHS else tag in LINES
        if wanted and self._space and self._parts:
            self._parts[-1] = self._parts[-1].removesuffix(" ")
        self._add("\n" * (wanted - self._newlines) if wanted else " " * (tag in ("td", "th")))

    def _add(self, text: str) -> None:
        if text[:1] == " " and not self._pre and (self._newlines or self._space):
            text = text[1:]
        if text:
            self._parts.append(text)
            self.size += len(text)
            bare = text.rstrip("\n")
            self._newlines = len(text) - len(bare) + (0 if bare else self._newlines)
            self._space = text[-1] == " "
