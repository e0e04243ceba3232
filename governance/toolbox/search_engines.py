"""Search providers, each of which queries a search engine and parses its response.

A provider is an async function that accepts a query. `web_search` looks it up by its name in `PROVIDERS`, or by its
dotted path.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from html.parser import HTMLParser
from typing import Any, Protocol
from urllib.parse import parse_qs, urlencode, urljoin, urlsplit

import httpx

from governance.core.exceptions import ToolFailed
from governance.toolbox.client import ServerRefused, WebClient, parse
from governance.toolbox.http_body import HttpBody
from governance.toolbox.settings import SearchEngine

_DUCKDUCKGO = "https://html.duckduckgo.com/html/"
_CHALLENGE = 202  # the status with which DuckDuckGo responds to suspected bots
_TOO_MANY = frozenset({403, 429})


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchResult:
    title: str
    url: str
    snippet: str = ""


class SearchProvider(Protocol):
    """A function that queries one search engine.

    `url` is `GOVERNANCE_SEARCH_URL`; if it is empty, the provider uses the engine's own address. The function raises
    `ToolFailed`, with a sentence for the model, if the engine cannot be reached or its response cannot be parsed.
    """

    async def __call__(
        self, query: str, *, limit: int, url: str, client: WebClient
    ) -> Sequence[SearchResult]:
        """Return at most `limit` results, best first, or an empty sequence if nothing was found."""
        ...


async def duckduckgo(
    query: str, *, limit: int, url: str, client: WebClient
) -> Sequence[SearchResult]:
    """Query DuckDuckGo's HTML page, which needs no key, but allows only a few queries per minute from one address."""
    body = await client.fetch(_with_query(url or _DUCKDUCKGO, q=query))
    if body.status == _CHALLENGE:
        raise ToolFailed(
            "DuckDuckGo takes this server for a robot and answers nothing for now. Wait some minutes, or go on "
            "without searching. An administrator can choose another search engine: GOVERNANCE_SEARCH_PROVIDER."
        )
    page = _DuckDuckGoPage(body.url)
    page.feed(body.decode())
    page.close()
    if not page.results and not page.says_none:
        raise _not_understood("DuckDuckGo")
    return page.results[:limit]


async def searxng(query: str, *, limit: int, url: str, client: WebClient) -> Sequence[SearchResult]:
    """Query a SearXNG server through its JSON API (https://docs.searxng.org/dev/search_api.html)."""
    if not url:
        raise ToolFailed(
            "Searching is not set up: the search engine has no address. An administrator can set it: "
            "GOVERNANCE_SEARCH_URL."
        )
    address = _with_query(url.rstrip("/") + "/search", q=query, format="json")
    try:
        body = await client.fetch(address, headers={"Accept": "application/json"})
    except ServerRefused as refusal:
        if refusal.status not in _TOO_MANY:
            raise
        raise ToolFailed(
            f"The search engine refused to answer ({refusal.status}). Wait some minutes, or go on without searching. "
            "An administrator should look whether it allows the format json and questions from this server."
        ) from refusal
    return _read_searxng(body)[:limit]


PROVIDERS: dict[str, SearchProvider] = {
    SearchEngine.DUCKDUCKGO: duckduckgo,
    SearchEngine.SEARXNG: searxng,
}


def _read_searxng(body: HttpBody) -> list[SearchResult]:
    try:
        rows = [_row(row) for row in json.loads(body.decode())["results"]]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise _not_understood("The search engine") from None
    return [result for result in rows if result.title and _is_web(result.url)]


def _row(row: dict[str, Any]) -> SearchResult:
    return SearchResult(
        title=_line(row.get("title") or ""),
        url=str(row.get("url") or ""),
        snippet=_line(row.get("content") or ""),
    )


class _DuckDuckGoPage(HTMLParser):
    """A parser of results: a link of class `result__a`, followed by an excerpt of class `result__snippet`."""

    def __init__(self, url: str) -> None:
        super().__init__(convert_charrefs=True)
        self.results: list[SearchResult] = []
        self.says_none = False
        self._base = url
        self._reading = ""
        self._tag = ""
        self._words: list[str] = []
        self._target = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Begin to collect a link or an excerpt."""
        attributes = dict(attrs)
        classes = (attributes.get("class") or "").split()
        if "no-results" in classes:
            self.says_none = True
        for name in ("result__a", "result__snippet"):
            if name in classes:
                self._reading, self._tag, self._words = name, tag, []
                if name == "result__a":
                    self._target = _real_target(self._base, attributes.get("href") or "")

    def handle_endtag(self, tag: str) -> None:
        if not self._reading or tag != self._tag:
            return
        words, self._words = _line("".join(self._words)), []
        if self._reading == "result__a":
            if words and self._target:
                self.results.append(SearchResult(title=words, url=self._target))
        elif self.results and self._target == self.results[-1].url:
            last = self.results[-1]
            self.results[-1] = SearchResult(title=last.title, url=last.url, snippet=words)
        self._reading = ""

    def handle_data(self, data: str) -> None:
        """Collect the text of a link or an excerpt."""
        if self._reading:
            self._words.append(data)


def _real_target(base: str, target: str) -> str:
    """Return the URL that a link of DuckDuckGo leads to, or an empty string for an advertisement or an invalid link."""
    try:
        absolute = urljoin(base, target)
        parts = urlsplit(absolute)
    except ValueError:
        return ""
    if parts.path == "/l/":
        absolute = next(iter(parse_qs(parts.query).get("uddg", [])), "")
    elif parts.path == "/y.js":  # an advertisement
        return ""
    return absolute if _is_web(absolute) else ""


def _is_web(url: str) -> bool:
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    return parts.scheme in {"http", "https"} and bool(parts.netloc)


def _with_query(url: str, **parameters: str) -> httpx.URL:
    joint = "&" if "?" in url else "?"
    return parse(f"{url}{joint}{urlencode(parameters, errors='replace')}")


def _line(text: object) -> str:
    return " ".join(str(text).split())


def _not_understood(who: str) -> ToolFailed:
    return ToolFailed(
        f"{who} answered in an unknown format, so its results cannot be read. Continue without searching. "
        "An administrator can choose another search engine: GOVERNANCE_SEARCH_PROVIDER."
    )
