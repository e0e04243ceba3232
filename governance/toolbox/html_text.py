"""A web page as text to read: headings, paragraphs, lists and links, without scripts, styles and pictures."""

import re
import time
from collections.abc import Callable
from html.parser import HTMLParser
from urllib.parse import urljoin, urlsplit

_PIECE = 16_384
_BLOCKS = frozenset(
    {
        "address",
        "article",
        "aside",
        "blockquote",
        "dd",
        "details",
        "dialog",
        "div",
        "dl",
        "dt",
        "fieldset",
        "figcaption",
        "figure",
        "footer",
        "form",
        "h1",
        "h2",
        "h3",
        "h4",
        "h5",
        "h6",
        "header",
        "hr",
        "li",
        "main",
        "nav",
        "ol",
        "p",
        "pre",
        "section",
        "summary",
        "table",
        "tr",
        "ul",
    }
)
_HIDDEN = frozenset({"script", "style", "template", "svg", "noscript"})
_HEADINGS = {f"h{level}": "#" * level + " " for level in range(1, 7)}
_LONGEST_LINK = 300


class HtmlText(HTMLParser):
    """Extracts the `title` and the `text` of HTML."""

    def __init__(self, url: str) -> None:
        super().__init__(convert_charrefs=True)
        self._url = url
        self._parts: list[str] = []
        self._title: list[str] = []
        self._in_title = False
        self._hidden: list[str] = []
        self._preformatted = 0
        self._link: tuple[int, str] | None = None

    @property
    def title(self) -> str:
        """The page's title on one line."""
        return " ".join("".join(self._title).split())

    @property
    def text(self) -> str:
        """The page's text, with at most one empty line in a row."""
        lines: list[str] = []
        for line in "".join(self._parts).split("\n"):
            plain = line.rstrip()
            if plain or (lines and lines[-1]):
                lines.append(plain)
        return "\n".join(lines).rstrip()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Begin an element."""
        if tag in _HIDDEN:
            self._hidden.append(tag)
        elif tag == "title":
            self._in_title = not self._title
        elif tag == "a":
            self._link = (len(self._parts), dict(attrs).get("href") or "")
        elif tag == "br":
            self._parts.append("\n")
        elif tag in {"td", "th"}:
            self._parts.append("\t")
        elif tag in _BLOCKS:
            self._begin_block(tag)

    def handle_endtag(self, tag: str) -> None:
        """End an element."""
        if tag in _HIDDEN:
            if tag in self._hidden:
                del self._hidden[self._hidden.index(tag) :]
        elif tag == "title":
            self._in_title = False
        elif tag == "a" and self._link is not None:
            self._end_link(*self._link)
            self._link = None
        elif tag == "pre":
            self._preformatted = max(self._preformatted - 1, 0)
            self._parts.append("\n\n")
        elif tag in _BLOCKS:
            self._parts.append("\n" if tag in {"li", "tr", "dt"} else "\n\n")

    def handle_data(self, data: str) -> None:
        if self._hidden:
            return
        if self._in_title:
            self._title.append(data)
        elif self._preformatted:
            self._parts.append(data)
        else:
            text = re.sub(r"\s+", " ", data)
            starts_line = not self._parts or self._parts[-1].endswith("\n")
            self._parts.append(text.lstrip() if starts_line else text)

    def _begin_block(self, tag: str) -> None:
        if tag == "pre":
            self._preformatted += 1
        if tag == "li":
            self._parts.append("\n- ")
        else:
            self._parts.append("\n" if tag == "tr" else "\n\n" + _HEADINGS.get(tag, ""))

    def _end_link(self, start: int, target: str) -> None:
        """Write the link's target behind its words, unless it is as long as a page of its own."""
        words = "".join(self._parts[start:]).strip()
        try:
            absolute = urljoin(self._url, target.strip())
            is_web = urlsplit(absolute).scheme in {"http", "https"}
        except ValueError:
            return
        if words and is_web and len(absolute) <= _LONGEST_LINK and not target.startswith("#"):
            self._parts[start:] = [f"[{words}]({absolute})"]


def html_to_text(
    html: str, url: str, *, is_cancelled: Callable[[], bool], within: float
) -> tuple[HtmlText, bool]:
    """Return the extractor, and whether it read all of it in time.

    The parser is very slow on hostile input, and a thread cannot be ended. So it gets the text piece by piece.
    """
    page = HtmlText(url)
    deadline = time.monotonic() + within
    for start in range(0, len(html), _PIECE):
        if is_cancelled() or time.monotonic() > deadline:
            return page, False
        page.feed(html[start : start + _PIECE])
    # A tag or a remark without end: to try each place in it takes for ever.
    if not page.rawdata.startswith("<"):
        page.close()
    return page, True
