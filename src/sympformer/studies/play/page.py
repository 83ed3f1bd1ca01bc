"""`sympformer play`: one page in which a flow of particles runs live, to be touched. Opens from a file.

The page is play.html, its mathematics flows.js (a test holds it equal to `sympformer.flows`), its eyes pictures.js, its
hands playground.js.
"""

from pathlib import Path

from sympformer.pages import Html, asset, document, write_page

FILES = ("play.html", "style.css", "flows.js", "pictures.js", "playground.js")


def play(out: Path = Path("play.html")) -> None:
    """Write a page in which a flow of particles runs live: choose the system and the scheme, drag particles.

    Args:
        out: The HTML file; it needs no other file and no network.
    """
    write_page(out, page, "the page")
    print(f"Written: {out}")


def page() -> Html:
    body, style, *scripts = (asset(__package__, name) for name in FILES)
    return document("A flow of particles", body, styles=[style], scripts=scripts)
