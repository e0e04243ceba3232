"""The `web_fetch` tool, which returns a page or document from the public web as text (G1)."""

import re
import time
from collections.abc import Callable
from html.parser import HTMLParser
from typing import Annotated
from urllib.parse import urljoin, urlsplit

from pydantic import Field

from governance.core.excerpts import shortened, spaced
from governance.core.registry import make_tool
from governance.core.tools import Tool, ToolContext
from governance.threads import run_in_thread
from governance.toolbox.client import Authorities, WebClient, parse
from governance.toolbox.http_body import HttpBody
from governance.toolbox.known_hosts import unknown_host_of
from governance.toolbox.settings import SettingsSource, ToolboxSettings

_TIMEOUT = 60.0


def make_web_fetch(settings: SettingsSource) -> Tool:
    return make_tool(
        Web(settings).web_fetch,
        title="Fetch a web page",
        timeout=_TIMEOUT,
        unknown_host=unknown_host_of(settings),
    )


class Web:
    """The `web_fetch` tool, which reads the current settings for each call."""

    def __init__(self, settings: SettingsSource) -> None:
        self._settings = settings
        self._authorities = Authorities()

    async def web_fetch(
        self,
        context: ToolContext,
        url: Annotated[
            str, Field(min_length=1, description="The http:// or https:// address to fetch.")
        ],
        max_chars: Annotated[
            int,
            Field(ge=100, le=200_000, description="The maximum number of characters to return."),
        ] = 20_000,
    ) -> str:
        """Fetch a page or document from the web and return its text. HTML is converted to readable text."""
        settings = self._settings()
        client = WebClient(context, settings=settings, tls=await self._authorities.load())
        body = await client.fetch(parse(url))
        return await run_in_thread(_render, body, context, settings=settings, max_chars=max_chars)


def _render(
    body: HttpBody, context: ToolContext, *, settings: ToolboxSettings, max_chars: int
) -> str:
    """Return the text for the model. Call this in a thread, because parsing a page may take long."""
    text, title, whole = body.decode(), "", body.is_whole
    if body.is_html:
        page, parsed = html_to_text(
            text,
            body.url,
            is_cancelled=lambda: context.is_cancelled,
            within=settings.web_parse_timeout,
        )
        text, title, whole = page.text, page.title, whole and parsed
    head = f"{body.url} · {body.media_type or 'no type given'} · {spaced(body.size)} bytes"
    lines = [
        head,
        *([f"Title: {shortened(title, limit=300)}"] if title else []),
        "",
        text[:max_chars] or "(no text)",
    ]
    if len(text) > max_chars:
        lines.append(
            f"… {spaced(len(text) - max_chars)} characters left out; ask with a larger max_chars …"
        )
    if not whole:
        lines.append("… the document is larger than what is read of it …")
    return "\n".join(lines).replace("\0", "\ufffd")


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
    """An HTML parser that extracts the title and the text of a page."""

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
        """The page's title, as a single line."""
        return " ".join("".join(self._title).split())

    @property
    def text(self) -> str:
        """The page's text, without consecutive empty lines."""
        lines: list[str] = []
        for line in "".join(self._parts).split("\n"):
            plain = line.rstrip()
            if plain or (lines and lines[-1]):
                lines.append(plain)
        return "\n".join(lines).rstrip()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
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
        """Rewrite the link in Markdown with its target, unless the target is very long or not another page."""
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
    """Parse a page. Return the parser, and whether it has parsed the whole page within `within` seconds.

    The parser is very slow on hostile input, and a thread cannot be killed. Therefore the parser receives the page in
    pieces, and parsing stops between two pieces if the call is cancelled or the time is over.
    """
    page = HtmlText(url)
    deadline = time.monotonic() + within
    for start in range(0, len(html), _PIECE):
        if is_cancelled() or time.monotonic() > deadline:
            return page, False
        page.feed(html[start : start + _PIECE])
    # Do not parse an unclosed tag or comment at the end, because that would take quadratic time.
    if not page.rawdata.startswith("<"):
        page.close()
    return page, True
