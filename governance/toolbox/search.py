"""The `web_search` tool, which finds web pages with a configurable search engine (G1)."""

import logging
from collections.abc import Sequence
from importlib import import_module
from typing import Annotated, cast

from pydantic import Field

from governance.core.exceptions import ToolFailed
from governance.core.registry import make_tool
from governance.core.tools import Tool, ToolContext
from governance.threads import run_in_thread
from governance.toolbox.addresses import Unreachable
from governance.toolbox.client import Authorities, WebClient
from governance.toolbox.search_engines import PROVIDERS, SearchProvider, SearchResult
from governance.toolbox.settings import SettingsSource
from governance.toolbox.workspace import shown

logger = logging.getLogger(__name__)

_TIMEOUT = 60.0
_TITLE = 200
_SNIPPET = 500


def make_web_search(settings: SettingsSource) -> Tool:
    return make_tool(Search(settings).web_search, title="Search the web", timeout=_TIMEOUT)


_UNREACHABLE = (
    "The search engine cannot be reached from this server. Go on without searching, or try again later. "
    "An administrator can look at the server's network, or choose another one: GOVERNANCE_SEARCH_PROVIDER."
)


class Search:
    """The `web_search` tool, which reads the current settings for each call."""

    def __init__(self, settings: SettingsSource) -> None:
        self._settings = settings
        self._authorities = Authorities()

    async def web_search(
        self,
        context: ToolContext,
        query: Annotated[str, Field(min_length=1, max_length=500, description="The search query.")],
        max_results: Annotated[
            int, Field(ge=1, le=20, description="The maximum number of results to return.")
        ] = 8,
    ) -> str:
        """Search the web and return the titles, addresses and excerpts of pages. To read a page, use web_fetch."""
        settings = self._settings()
        provider = await run_in_thread(find_provider, settings.search_provider)
        client = WebClient(
            context,
            settings=settings,
            tls=await self._authorities.load(),
            trusted=settings.search_url,
        )
        try:
            results = await provider(
                query, limit=max_results, url=settings.search_url, client=client
            )
        except Unreachable as error:
            logger.warning("The search engine cannot be reached", exc_info=error)
            raise ToolFailed(_UNREACHABLE) from error
        return _render(results[:max_results], query=query)


def find_provider(name: str) -> SearchProvider:
    """Return the search provider with this name or dotted path. Raise `ToolFailed` if there is none."""
    builtin = PROVIDERS.get(name)
    if builtin is not None:
        return builtin
    module, _, attribute = name.rpartition(".")
    try:
        provider = getattr(import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        logger.warning("There is no search provider %r", name, exc_info=error)
        raise ToolFailed(
            "Searching is not set up on this server. An administrator can correct GOVERNANCE_SEARCH_PROVIDER."
        ) from error
    return cast(SearchProvider, provider)


def _render(results: Sequence[SearchResult], *, query: str) -> str:
    if not results:
        return f"Nothing was found for {shown(query)!r}. Try other or fewer words."
    blocks = (
        "\n".join(
            part
            for part in (
                f"{number}. {shown(result.title, limit=_TITLE)}",
                f"   {shown(result.url, limit=2000)}",
                f"   {shown(result.snippet, limit=_SNIPPET)}" if result.snippet else "",
            )
            if part
        )
        for number, result in enumerate(results, start=1)
    )
    return "\n".join(blocks)
